"""Finds and removes what launches have left."""
