"""Descriptions of desktops and of their work."""
