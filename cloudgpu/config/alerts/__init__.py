"""Where alerts go and how their text is written."""
