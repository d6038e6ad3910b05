"""Virtual networks and security groups."""
