"""Which kind of disk a type of machine takes: a balanced one, persistent or, on the newest machines, Hyperdisk.

Source: Compute Engine's guide, "GPU machine types" and "Hyperdisk machine type support": A3 Ultra, A4, A4X and G4 take
Hyperdisk alone, all older ones persistent disks; of those, A3 takes both.
"""

from __future__ import annotations

PERSISTENT, HYPERDISK = "pd-balanced", "hyperdisk-balanced"
_HYPERDISK_ONLY = ("a3-ultragpu-", "a4-", "a4x-", "g4-")
_NO_HYPERDISK = ("n1-", "a2-", "g2-")


def disk_type(machine_type: str) -> str:
    """Return the kind of disk, as Google calls it, for a machine type without what is attached to it."""
    return HYPERDISK if machine_type.startswith(_HYPERDISK_ONLY) else PERSISTENT


def takes(machine_type: str, kind: str) -> bool:
    """Say whether a machine type takes a kind of disk that exists; of what is not known here Google decides."""
    if machine_type.startswith(_HYPERDISK_ONLY):
        return kind.startswith("hyperdisk-")
    return kind != HYPERDISK or not machine_type.startswith(_NO_HYPERDISK)
