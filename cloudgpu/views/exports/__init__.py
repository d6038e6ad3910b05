"""Exports for other programs: CSV, FOCUS."""
