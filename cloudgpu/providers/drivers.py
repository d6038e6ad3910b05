"""Which public image a GPU wants, and how a plain one gets NVIDIA's driver: the same on every cloud. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cloudgpu.catalog import driver_for, public_images
from cloudgpu.core.catalog.gpus import PublicImage
from cloudgpu.core.model.offers import Available

DRIVER_TEMPLATE = "cuda"  # it installs a driver itself, so its image must have none


def has_driver(item: Available, template: str) -> bool:
    """Say whether an image with today's driver is what this offer wants."""
    facts = driver_for(item.accelerators[0].name) if item.accelerators else None
    return facts is not None and facts.is_current and template != DRIVER_TEMPLATE


def wanted_images(kind: str, item: Available, machine: str, template: str) -> Sequence[PublicImage]:
    """Return the public images of a cloud for an offer, the preferred one first; `machine` is its processor."""
    if has_driver(item, template):
        return public_images(kind, "cuda", machine)
    plain = public_images(kind, "plain", machine)
    facts = driver_for(item.accelerators[0].name) if item.accelerators else None
    return tuple(one for one in plain if facts is None or one.system == (facts.system or one.system))


def installed(item: Available, image: str, template: str) -> tuple[Mapping[str, str] | None, tuple[str, ...]]:
    """Return how a plain image (its name) gets its driver, and what has to be said about it.

    The first are settings of the template that installs a driver; None: none is installed.
    """
    if not item.accelerators:
        return None, ()
    gpu = item.accelerators[0].name
    facts = driver_for(gpu)
    if facts is None:
        return None, (f"no NVIDIA driver for {gpu} is known, so none is installed on {image}",)
    wanted = {"driver": facts.driver, "toolkit": facts.toolkit}
    recalled = f" ({facts.recalled}: recalled, not verified)" if facts.recalled else ""
    if template == DRIVER_TEMPLATE:
        said = f"the template {template} has to be set to driver {facts.driver} and toolkit {facts.toolkit} for {gpu}"
        return None, (f"{said}{recalled}",) if facts.system else ()
    said = (
        f"today's images with a driver do not support {gpu} ({facts.family}): {image} is used, and cloud-init "
        f"installs {facts.driver} and {facts.toolkit}, the last for it, in the machine's first minutes{recalled}"
    )
    return wanted, (said,)
