"""Where files lie, and how they are read."""
