"""Policies and limits as files."""
