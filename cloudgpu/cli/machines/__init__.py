"""Verbs about machines and what they leave."""
