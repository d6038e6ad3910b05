"""Reads what a user requested, and names what is wrong with it."""
