"""Reads what a user asked for, and names what is wrong with it."""
