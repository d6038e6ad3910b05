"""Managed disks are billed by tiers of size: the next larger one, whether it is full or not."""

from __future__ import annotations

SIZES = {1: 4, 2: 8, 3: 16, 4: 32, 6: 64, 10: 128, 15: 256, 20: 512, 30: 1024, 40: 2048, 50: 4096, 60: 8192, 70: 16384}
SIZES[80] = 32767  # GiB by the tier's number: "Azure managed disk types"
LETTERS = {"Premium": "P", "StandardSSD": "E", "Standard": "S"}
_SMALLEST_HDD = 4


def tier(sku: str, size_gb: int) -> str:
    """Return what a disk of this SKU (`Premium_LRS`) and size is billed as, as the catalogue calls it: `P10 128 GiB`.

    The SKU itself for one that has no tiers (Ultra Disk, Premium SSD v2).
    """
    letter = LETTERS.get(sku.partition("_")[0])
    least = _SMALLEST_HDD if letter == "S" else min(SIZES)
    found = next((number for number, size in SIZES.items() if size >= size_gb and number >= least), None)
    return sku if letter is None or found is None else f"{letter}{found} {SIZES[found]} GiB"
