"""Prices, spot history, quotas and availability on AWS."""
