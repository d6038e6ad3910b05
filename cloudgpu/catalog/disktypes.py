"""Which kind of disk a machine type accepts at Google, and which size tier a disk is billed as at Azure.

Source of Google's: Compute Engine's guide, "GPU machine types" and "Hyperdisk machine type support": A3 Ultra, A4, A4X
and G4 take Hyperdisk alone, all older ones persistent disks; of those, A3 takes both. Of Azure's: "Azure managed disk
types"; a disk is billed as the next larger tier, whether it is full or not.
"""

from __future__ import annotations

PERSISTENT_DISK, HYPERDISK = "pd-balanced", "hyperdisk-balanced"
_HYPERDISK_ONLY = ("a3-ultragpu-", "a4-", "a4x-", "g4-")
_NO_HYPERDISK = ("n1-", "a2-", "g2-")

TIER_SIZES_GIB = {
    1: 4,
    2: 8,
    3: 16,
    4: 32,
    6: 64,
    10: 128,
    15: 256,
    20: 512,
    30: 1024,
    40: 2048,
    50: 4096,
    60: 8192,
    70: 16384,
}
TIER_SIZES_GIB[80] = 32767  # the tier number is the key: a P10 has 128 GiB
TIER_LETTERS = {"Premium": "P", "StandardSSD": "E", "Standard": "S"}
_SMALLEST_HDD_TIER = 4


def disk_type(machine_type: str) -> str:
    """Return the kind of boot disk, as Google calls it, for a machine type (named without its attached GPUs)."""
    return HYPERDISK if machine_type.startswith(_HYPERDISK_ONLY) else PERSISTENT_DISK


def accepts_disk(machine_type: str, kind: str) -> bool:
    """Say whether a machine type accepts an existing disk of this kind; True also where only Google knows."""
    if machine_type.startswith(_HYPERDISK_ONLY):
        return kind.startswith("hyperdisk-")
    return kind != HYPERDISK or not machine_type.startswith(_NO_HYPERDISK)


def billed_tier(sku: str, size_gb: int) -> str:
    """Return what an Azure disk of this SKU (`Premium_LRS`) and size is billed as: `P10 128 GiB` in the catalogue.

    The SKU itself for one that has no tiers (Ultra Disk, Premium SSD v2).
    """
    letter = TIER_LETTERS.get(sku.partition("_")[0])
    smallest_tier = _SMALLEST_HDD_TIER if letter == "S" else min(TIER_SIZES_GIB)
    tier_number = next(
        (number for number, size in TIER_SIZES_GIB.items() if size >= size_gb and number >= smallest_tier), None
    )
    return sku if letter is None or tier_number is None else f"{letter}{tier_number} {TIER_SIZES_GIB[tier_number]} GiB"
