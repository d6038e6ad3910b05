"""Where files are, and how they are read."""
