"""Documents about machines: launch, state, disks, access."""
