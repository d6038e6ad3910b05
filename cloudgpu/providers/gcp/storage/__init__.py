"""Disks, snapshots, images, and orphans."""
