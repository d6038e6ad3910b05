"""Names in the catalogue that can be typed: GPUs, instance types, regions. Reads no refreshed prices."""

from __future__ import annotations

from cloudgpu.catalog.location import catalogue


def gpu_names() -> list[str]:
    """Return the GPUs, in the small letters in which people type them."""
    return sorted(name.lower() for name in catalogue()["gpus"])


def instance_types(provider: str | None = None, gpu: str | None = None) -> list[str]:
    """Return the instance types of a provider, or of all, with a GPU of this name (`a100-80gb:8`), if any."""
    name, _, count = (gpu or "").lower().partition(":")
    return sorted(
        type_
        for kind, types in catalogue()["types"].items()
        if _is_of(provider, kind)
        for type_, row in types.items()
        if str(row["gpu"]).lower().startswith(name) and (not count or str(row["count"]) == count)
    )


def region_names(provider: str | None = None) -> list[str]:
    """Return the regions of a provider, or of all, in which something has a price."""
    kinds = catalogue()["prices"].items()
    prices = [rows for kind, by_type in kinds if _is_of(provider, kind) for rows in by_type.values()]
    return sorted({row[0] for rows in prices for row in rows})


def _is_of(provider: str | None, kind: str) -> bool:
    return provider in {None, "", "any", kind}
