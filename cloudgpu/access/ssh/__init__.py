"""SSH: keys, host keys, connections, commands."""
