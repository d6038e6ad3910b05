"""What is billed in addition to a machine: disks, addresses, traffic."""
