"""The dated prices of GPU machines, embedded and refreshed, and what is known of their GPUs. Read when first asked.

Names are imported at first use, so that setting the directory of refreshed prices (`cloudgpu.catalog.location`)
imports nothing else.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cloudgpu.catalog.price_history import component_prices, past_prices
    from cloudgpu.catalog.read import (
        check_region,
        compiled_on,
        driver_for,
        gpu,
        gpu_by_name,
        gpus,
        instance_type,
        instance_types,
        listed_price,
        listed_quotas,
        offers,
        omitted_types,
        on_demand_price,
        priced_regions,
        public_images,
        quota_of,
        quotas_of,
        regions,
        spec_of,
    )
    from cloudgpu.catalog.storage import counted_price, disk_price, storage_kinds

__all__ = [
    "check_region",
    "compiled_on",
    "component_prices",
    "counted_price",
    "disk_price",
    "driver_for",
    "gpu",
    "gpu_by_name",
    "gpus",
    "instance_type",
    "instance_types",
    "listed_price",
    "listed_quotas",
    "offers",
    "omitted_types",
    "on_demand_price",
    "past_prices",
    "priced_regions",
    "public_images",
    "quota_of",
    "quotas_of",
    "regions",
    "spec_of",
    "storage_kinds",
]
_MODULES = {
    **dict.fromkeys(("past_prices", "component_prices"), "cloudgpu.catalog.price_history"),
    **dict.fromkeys(("counted_price", "disk_price", "storage_kinds"), "cloudgpu.catalog.storage"),
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(_MODULES.get(name, "cloudgpu.catalog.read")), name)
    globals()[name] = found
    return found
