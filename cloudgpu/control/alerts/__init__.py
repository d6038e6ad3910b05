"""Finds what is worth an alert and sends it."""
