"""Templates: found and rendered."""
