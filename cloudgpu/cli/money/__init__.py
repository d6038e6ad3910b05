"""Verbs about what was and will be spent."""
