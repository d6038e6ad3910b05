"""Networks and firewall rules."""
