"""The library's face."""
