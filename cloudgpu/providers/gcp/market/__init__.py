"""Prices, quotas and availability on Google Cloud."""
