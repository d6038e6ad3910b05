"""Budgets: what they admit, how they stand, what they stop."""
