"""Verbs that run unattended."""
