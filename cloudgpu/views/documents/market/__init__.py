"""Documents about what can be bought."""
