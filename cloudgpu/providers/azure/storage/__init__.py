"""Managed disks, snapshots, images, and what is left of them."""
