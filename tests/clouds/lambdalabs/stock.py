"""What our model of Lambda Cloud sells: types with prices in cents, as docs and public lists of 2026 spell them."""

from __future__ import annotations

from typing import Any, NamedTuple

REGIONS = {
    "us-east-1": "Virginia, USA",
    "us-west-1": "California, USA",
    "us-south-1": "Texas, USA",
    "europe-central-1": "Germany",
}


class Type(NamedTuple):
    """A type of machines: its GPUs in Lambda's words, cents an hour, and what it has."""

    gpu: str
    count: int
    cents: int
    vcpus: int
    memory_gib: int
    storage_gib: int
    arm: bool = False


TYPES = {
    "gpu_1x_a10": Type("A10 (24 GB PCIe)", 1, 129, 30, 200, 1400),
    "gpu_1x_a100_sxm4": Type("A100 (40 GB SXM4)", 1, 199, 30, 200, 512),
    "gpu_8x_a100_80gb_sxm4": Type("A100 (80 GB SXM4)", 8, 2232, 240, 1800, 20480),
    "gpu_1x_h100_pcie": Type("H100 (80 GB PCIe)", 1, 329, 26, 200, 1024),
    "gpu_1x_h100_sxm5": Type("H100 (80 GB SXM5)", 1, 429, 26, 225, 2816),
    "gpu_1x_gh200": Type("GH200 (96 GB)", 1, 229, 64, 432, 4096, arm=True),
    "gpu_8x_v100": Type("Tesla V100 (16 GB)", 8, 632, 92, 448, 6041),
    "gpu_1x_rtx6000": Type("RTX 6000 (24 GB)", 1, 69, 14, 46, 512),
    "gpu_1x_a6000": Type("RTX A6000 (48 GB)", 1, 109, 14, 100, 512),
    "cpu_4x_general": Type("N/A", 0, 20, 4, 16, 128),
}


def described(name: str, cents: int | None = None) -> dict[str, Any]:
    """Return a type as the interface shows it, at a price of its own if one is named."""
    found = TYPES[name]
    return {
        "name": name,
        "description": f"{found.count}x {found.gpu}",
        "gpu_description": found.gpu,
        "price_cents_per_hour": found.cents if cents is None else cents,
        "specs": {
            "vcpus": found.vcpus,
            "memory_gib": found.memory_gib,
            "storage_gib": found.storage_gib,
            "gpus": found.count,
        },
    }
