"""Parses and checks the options of `up`, `cost` and other verbs."""
