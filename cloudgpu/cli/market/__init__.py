"""Verbs about what can be bought."""
