"""Which kind of disk a machine takes, and as what it is billed: Google's by the type of machine, Azure's by size.

Source of Google's: Compute Engine's guide, "GPU machine types" and "Hyperdisk machine type support": A3 Ultra, A4, A4X
and G4 take Hyperdisk alone, all older ones persistent disks; of those, A3 takes both. Of Azure's: "Azure managed disk
types"; a disk is billed as the next larger tier, whether it is full or not.
"""

from __future__ import annotations

PERSISTENT, HYPERDISK = "pd-balanced", "hyperdisk-balanced"
_HYPERDISK_ONLY = ("a3-ultragpu-", "a4-", "a4x-", "g4-")
_NO_HYPERDISK = ("n1-", "a2-", "g2-")

SIZES = {1: 4, 2: 8, 3: 16, 4: 32, 6: 64, 10: 128, 15: 256, 20: 512, 30: 1024, 40: 2048, 50: 4096, 60: 8192, 70: 16384}
SIZES[80] = 32767  # GiB by the tier's number
LETTERS = {"Premium": "P", "StandardSSD": "E", "Standard": "S"}
_SMALLEST_HDD = 4


def disk_type(machine_type: str) -> str:
    """Return the kind of disk, as Google calls it, for a machine type without what is attached to it."""
    return HYPERDISK if machine_type.startswith(_HYPERDISK_ONLY) else PERSISTENT


def accepts_disk(machine_type: str, kind: str) -> bool:
    """Say whether a machine type takes a kind of disk that exists; of what is not known here Google decides."""
    if machine_type.startswith(_HYPERDISK_ONLY):
        return kind.startswith("hyperdisk-")
    return kind != HYPERDISK or not machine_type.startswith(_NO_HYPERDISK)


def tier(sku: str, size_gb: int) -> str:
    """Return what an Azure disk of this SKU (`Premium_LRS`) and size is billed as: `P10 128 GiB` in the catalogue.

    The SKU itself for one that has no tiers (Ultra Disk, Premium SSD v2).
    """
    letter = LETTERS.get(sku.partition("_")[0])
    least = _SMALLEST_HDD if letter == "S" else min(SIZES)
    found = next((number for number, size in SIZES.items() if size >= size_gb and number >= least), None)
    return sku if letter is None or found is None else f"{letter}{found} {SIZES[found]} GiB"
