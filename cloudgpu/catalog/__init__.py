"""The dated prices of GPU machines, embedded and refreshed, and what is known of their GPUs. Read when first asked.

Nothing is imported before it is asked for: who only says where refreshed prices lie (`cloudgpu.catalog.place`) pays for
nothing else.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cloudgpu.catalog.price_history import history, parts
    from cloudgpu.catalog.read import (
        check_region,
        compiled_on,
        driver_for,
        gpu,
        gpus,
        instance_type,
        left_out,
        listed_price,
        listed_quotas,
        named_gpu,
        offers,
        on_demand_price,
        priced_in,
        public_images,
        quota_of,
        quotas_of,
        regions,
        spec_of,
        types,
    )
    from cloudgpu.catalog.storage import counted_price, disk_price, storage_kinds

__all__ = [
    "check_region",
    "compiled_on",
    "counted_price",
    "disk_price",
    "driver_for",
    "gpu",
    "gpus",
    "history",
    "instance_type",
    "left_out",
    "listed_price",
    "listed_quotas",
    "named_gpu",
    "offers",
    "on_demand_price",
    "parts",
    "priced_in",
    "public_images",
    "quota_of",
    "quotas_of",
    "regions",
    "spec_of",
    "storage_kinds",
    "types",
]
_HOMES = {
    **dict.fromkeys(("history", "parts"), "cloudgpu.catalog.price_history"),
    **dict.fromkeys(("counted_price", "disk_price", "storage_kinds"), "cloudgpu.catalog.storage"),
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    found = getattr(import_module(_HOMES.get(name, "cloudgpu.catalog.read")), name)
    globals()[name] = found
    return found
