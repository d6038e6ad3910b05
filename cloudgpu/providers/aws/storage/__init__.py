"""EBS volumes, snapshots, images, and what is left of them."""
