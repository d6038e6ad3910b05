"""The names in the catalogue, for shell completion: GPUs, instance types, regions. Reads no refreshed prices."""

from __future__ import annotations

from cloudgpu.catalog.location import catalogue


def gpu_names() -> list[str]:
    """Return the GPUs in lower case, as users type them."""
    return sorted(name.lower() for name in catalogue()["gpus"])


def instance_types(provider: str | None = None, gpu: str | None = None) -> list[str]:
    """Return the instance types of a provider, or of all, with a GPU of this name (`a100-80gb:8`), if any."""
    name, _, count = (gpu or "").lower().partition(":")
    return sorted(
        type_name
        for listed_provider, types in catalogue()["types"].items()
        if _matches(provider, listed_provider)
        for type_name, entry in types.items()
        if str(entry["gpu"]).lower().startswith(name) and (not count or str(entry["count"]) == count)
    )


def region_names(provider: str | None = None) -> list[str]:
    """Return the regions of a provider, or of all, that have a price: a row of the catalogue begins with its region."""
    by_provider = catalogue()["prices"].items()
    prices = [rows for name, by_type in by_provider if _matches(provider, name) for rows in by_type.values()]
    return sorted({row[0] for rows in prices for row in rows})


def _matches(provider: str | None, listed_provider: str) -> bool:
    return provider in {None, "", "any", listed_provider}
