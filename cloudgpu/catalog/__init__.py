"""The embedded, dated prices of GPU machines, and what is known of their GPUs. Read when it is first asked."""

from __future__ import annotations

from cloudgpu.catalog.images import driver_for, public_images
from cloudgpu.catalog.read import (
    check_region,
    compiled_on,
    disk_price,
    gpu,
    gpus,
    instance_type,
    left_out,
    listed_price,
    listed_quotas,
    named_gpu,
    offers,
    priced_in,
    quota_of,
    regions,
    types,
)

__all__ = [
    "check_region",
    "compiled_on",
    "disk_price",
    "driver_for",
    "gpu",
    "gpus",
    "instance_type",
    "left_out",
    "listed_price",
    "listed_quotas",
    "named_gpu",
    "offers",
    "priced_in",
    "public_images",
    "quota_of",
    "regions",
    "types",
]
