"""Verbs about disks and images that outlive machines."""
