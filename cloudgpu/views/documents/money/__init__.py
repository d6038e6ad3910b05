"""Documents about what was spent, and what could be."""
