"""Stores budgets, and refuses requests that they do not admit."""
