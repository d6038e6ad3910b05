"""Brings prices, regions and quotas up to date."""
