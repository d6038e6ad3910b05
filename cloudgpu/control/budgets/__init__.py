"""Keeps budgets, and refuses what they do not admit."""
