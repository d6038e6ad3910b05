"""Turns what was seen of machines, disks and images into lines of the ledger."""
