"""Verbs that set up, examine and repair."""
