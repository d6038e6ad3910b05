"""Documents about machines: their launch, their state, their disks, the ways to them."""
