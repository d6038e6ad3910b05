"""What is billed beside a machine: disks, addresses, traffic."""
