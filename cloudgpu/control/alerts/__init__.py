"""Finds what is wrong, records it as alerts, and sends these."""
