"""Prices, quotas and availability on Azure."""
