"""Currencies, discounts and fees in the settings."""
