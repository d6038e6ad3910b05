"""Which kind of disk a type of machine takes: a balanced one, persistent or, on the newest machines, Hyperdisk.

Source: Compute Engine's guide, "GPU machine types" and "Hyperdisk machine type support": A3 Ultra, A4, A4X and G4 take
Hyperdisk alone, all older ones persistent disks.
"""

from __future__ import annotations

PERSISTENT, HYPERDISK = "pd-balanced", "hyperdisk-balanced"
_HYPERDISK_ONLY = ("a3-ultragpu-", "a4-", "a4x-", "g4-")


def disk_type(machine_type: str) -> str:
    """Return the kind of disk, as Google calls it, for a machine type without what is attached to it."""
    return HYPERDISK if machine_type.startswith(_HYPERDISK_ONLY) else PERSISTENT
