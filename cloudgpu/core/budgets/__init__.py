"""Budgets: what they admit, their status, what they stop."""
