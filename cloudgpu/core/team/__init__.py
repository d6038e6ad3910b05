"""Who may do what in a lab: roles, rights, published policies."""
