"""What would be cheaper: compare, estimate, recommend, rent or buy."""
