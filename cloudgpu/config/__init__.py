"""Finds and reads settings, templates, desktops and policies into core's values."""
