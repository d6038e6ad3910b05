"""Checks a template's container image for a launch: supported GPUs, disk size, and the cost of its pull.

No provider is queried: an image that a GPU cannot run is refused before.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from cloudgpu.core.catalog.container_images import (
    Misfit,
    family_of,
    min_disk_gb,
    misfit,
    parse_reference,
    pull_minutes,
    release_range_of,
    sizes_gb,
)
from cloudgpu.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cloudgpu.config.templates.find import Template
    from cloudgpu.core.model.facts import ClusterNode
    from cloudgpu.core.model.launch import Setup
    from cloudgpu.core.model.offers import Accelerator, Offer
    from cloudgpu.providers.base import Provider

CONTAINER_PART = "container"  # among the parts of a template that a provider supports
_NVIDIA_REGISTRY = "nvcr.io/nvidia/"
LICENCE_REMARK = "starting an image of NVIDIA's accepts NVIDIA's licence: read it on the image's page of NGC"


def check_container(provider: Provider, template: Template, cluster: ClusterNode | None) -> None:
    """Raise InvalidRequest for a template with a container where the provider, or the cluster's engine, runs none."""
    image = template.container_image
    if image and cluster is not None and cluster.engine != "none":
        raise InvalidRequest(
            f"The template {template.name} is a container, and engine: {cluster.engine} runs jobs outside of it.",
            field="--engine",
            value=cluster.engine,
            next="Add --engine none, or choose a template without `container`: --template pytorch",
        )
    if image and CONTAINER_PART not in provider.supported_parts:
        raise InvalidRequest(
            f"The {provider.kind} provider runs no containers, and the template {template.name} is one: {image}.",
            field="--template",
            value=template.name,
            next="Choose another --provider, or a template without `container`: --template pytorch",
        )


def with_disk_size(setup: Setup, template: Template) -> Setup:
    """Return the setup with a system disk that holds the template's container, where its size is not given.

    Raises InvalidRequest for a disk that is too small for it.
    """
    image = template.container_image
    minimum_gb = min_disk_gb(image) if image and family_of(image) else 0
    if setup.disk_gb is None or setup.disk_gb >= minimum_gb:
        return setup if setup.disk_gb is not None or not image else replace(setup, disk_gb=min_disk_gb(image))
    raise InvalidRequest(
        f"A system disk of {setup.disk_gb} GB is too small for {image}: it needs {minimum_gb} GB.",
        field="--disk",
        value=str(setup.disk_gb),
        next=f"Add --disk {minimum_gb}, or leave it out.",
    )


def filter_runnable(template: Template, offers: Sequence[Offer]) -> tuple[tuple[Offer, ...], tuple[str, ...]]:
    """Return the offers whose GPUs can run the template's container, and remarks on the others.

    Raises InvalidRequest, with the newest tag that works there, where none can.
    """
    image = template.container_image
    if not image or not offers:
        return tuple(offers), ()
    unsupported_gpus = {offer: pair for offer in offers if (pair := _unsupported_gpu(image, offer)) is not None}
    if len(unsupported_gpus) == len(offers):
        raise _unsupported_gpu_error(template, image, *unsupported_gpus[offers[0]])
    remarks = {f"passed over: {gpu.name}, which {image} does not support" for gpu, _ in unsupported_gpus.values()}
    return tuple(offer for offer in offers if offer not in unsupported_gpus), tuple(sorted(remarks))


def _unsupported_gpu(image: str, offer: Offer) -> tuple[Accelerator, Misfit] | None:
    """Return the offer's GPU that the image does not support, and why; None where it supports all, as far as known."""
    from cloudgpu.catalog import spec_of  # reads the whole catalogue

    for gpu in offer.configuration.accelerators:
        spec = spec_of(gpu.name, gpu.memory_gib)
        reason = misfit(image, spec.compute_capability) if spec is not None else None
        if reason is not None:
            return gpu, reason
    return None


def _unsupported_gpu_error(template: Template, image: str, gpu: Accelerator, reason: Misfit) -> InvalidRequest:
    other_gpu = "Choose another --gpu."
    if reason.newest_tag and "tag" in template.settings:
        remedy = f'Write into config.toml: [templates.{template.name}] and tag = "{reason.newest_tag}". Or: {other_gpu}'
    elif reason.newest_tag:
        reference = parse_reference(image)
        new_image = f"{reference.repository}:{reason.newest_tag}" if reference else reason.newest_tag
        remedy = f"Use {new_image} in {template.path}. Or: {other_gpu}"
    else:
        remedy = f"cloudgpu knows no release of it for this GPU. {other_gpu}"
    return InvalidRequest(
        f"{image} needs CUDA compute capability {reason.required}, and {gpu.name} has {reason.gpu_capability}.",
        field="--template",
        value=template.name,
        next=remedy,
    )


def container_remarks(template: Template, offer: Offer) -> Iterator[str]:
    """Yield the plan's remarks on a container: its size, the cost of its pull, its licence, what is unknown."""
    image = template.container_image
    if not image:
        return
    pull_gb, disk_gb = sizes_gb(image)
    fastest, slowest = pull_minutes(image)
    max_cost = offer.price.per_hour.scaled(Fraction(slowest, 60)).text()
    size_note = "" if family_of(image) else ", assumed: its size is not known"
    yield (
        f"container {image}: {pull_gb:g} GB to pull, {disk_gb:g} GB on the disk{size_note}; "
        f"{fastest} to {slowest} minutes after the machine is ready, billed: {max_cost} at most"
    )
    if image.startswith(_NVIDIA_REGISTRY):
        yield LICENCE_REMARK
    if release_range_of(image) is None:
        yield f"which GPUs {image} supports is not known to cloudgpu: on others it fails at its first kernel"
