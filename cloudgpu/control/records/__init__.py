"""Turns observations of machines, disks and images into ledger entries."""
