"""Copies files to and from a machine."""
