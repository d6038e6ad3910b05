"""Who may reach a machine: addresses, host keys, tunnels."""
