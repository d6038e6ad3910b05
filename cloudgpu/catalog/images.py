"""Answers which driver a GPU needs and which public images there are, from the embedded facts."""

from __future__ import annotations

from cloudgpu.catalog.read import catalogue, named_gpu
from cloudgpu.core.catalog.gpus import GpuDriver, PublicImage


def driver_for(gpu: str) -> GpuDriver | None:
    """Return what drives a GPU, by its name in the catalogue; None for one whose generation is not known."""
    spec = named_gpu(gpu)
    family = "" if spec is None else spec.architecture
    rows = catalogue()["drivers"]
    return next((GpuDriver(**row) for row in rows if family and family.startswith(row["family"])), None)


def public_images(provider: str, use: str, machine: str) -> tuple[PublicImage, ...]:
    """Return the images of a provider for `use` (`cuda` or `plain`) on a kind of processor, the preferred one first."""
    images = (PublicImage(**row) for row in catalogue()["images"])
    return tuple(one for one in images if (one.provider, one.use, one.machine) == (provider, use, machine))
