"""Which types of the catalogue a wish means: the same on every cloud. Pure."""

from __future__ import annotations

from cloudgpu.core.catalog.catalog import InstanceType
from cloudgpu.core.catalog.matching import same_gpu
from cloudgpu.core.model.offers import Want


def is_meant(one: InstanceType, want: Want) -> bool:
    """Say whether a type of the catalogue is what was wanted.

    A share of a GPU is meant only by its type's name. One that may not be launched any more is meant where it, or its
    GPU, was asked for: what the cloud offers decides, not the list.
    """
    if want.instance_type is not None and want.instance_type != one.name:
        return False
    if want.gpu is not None and not (same_gpu(one.gpu.name, want.gpu) and one.gpu.count == want.gpu_count):
        return False
    if want.instance_type is None and one.gpu.share < 1:
        return False
    return not one.legacy or want.gpu is not None or want.instance_type is not None
