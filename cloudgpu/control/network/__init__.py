"""Who may reach a machine: addresses, host keys, keys that were let in."""
