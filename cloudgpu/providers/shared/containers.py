"""What clouds that rent out containers cannot have: networks and volumes of the user's, and ports between containers.

A container has one public SSH port, and a disk of its own that a stop keeps.
"""

from __future__ import annotations

import re

from cloudgpu.core.model.launch import LaunchRequest, Setup
from cloudgpu.errors import InvalidRequest
from cloudgpu.providers.abilities import PlacementConstraint

IMAGE = re.compile(r"[a-z0-9][a-z0-9._/:-]{0,199}(?::[A-Za-z0-9_][A-Za-z0-9._-]{0,127}|@sha256:[0-9a-f]{64})")


def placement_constraint(cloud: str, setup: Setup, example_image: str) -> PlacementConstraint:
    """Return an empty constraint, because no setup limits where a container is launched; `cloud` is for messages.

    Raises InvalidRequest for an image without its tag, and for a volume that would have to exist.
    """
    if setup.image is not None and not IMAGE.fullmatch(setup.image):
        message = f"{setup.image!r} is not a container image with its tag; {cloud} runs containers."
        raise InvalidRequest(
            message, field="--image", value=setup.image, next=f"Write it like --image {example_image}."
        )
    if setup.volume is not None and setup.volume.size_gb is None:
        raise _no_volume_error(cloud, setup.volume.name)
    return PlacementConstraint()


def check_setup(cloud: str, setup: Setup) -> None:
    """Raise InvalidRequest for a part of a setup that a container cannot have."""
    network = setup.network
    if setup.volume is not None:
        raise _no_volume_error(cloud, setup.volume.name)
    for option, value, why in (
        ("--subnet", network.subnet, "has no networks of your own"),
        ("--security-group", network.security_group, "has no rules about who may connect"),
        ("--jump", network.jump, "has no networks behind a jump host"),
        ("--no-public-ip", "" if network.public_ip else "true", "reaches a machine by its public SSH port alone"),
    ):
        if value:
            message = f"{option} means nothing on {cloud}, which {why}."
            raise InvalidRequest(message, field=option, value=value, next=f"Leave {option} out.")


def _no_volume_error(cloud: str, name: str) -> InvalidRequest:
    remedy = "Leave --volume out: --disk is the size of the disk that a stop keeps."
    return InvalidRequest(f"cloudgpu keeps no volumes on {cloud}.", field="--volume", value=name, next=remedy)


def cluster_remarks(request: LaunchRequest, limit: str, remark: str) -> tuple[str, ...]:
    """Return the remark on a cluster: `remark` completes "the 4 ..."; none for a single machine.

    Raises InvalidRequest for a cluster with an engine, whose daemons need ports between the machines. `limit` is the
    sentence about that, without its full stop.
    """
    cluster = request.cluster
    if cluster is None or cluster.nodes == 1:
        return ()
    if cluster.engine != "none":
        raise InvalidRequest(
            f"{limit}, and {cluster.engine} needs ports between them.",
            field="--engine",
            value=cluster.engine,
            next="Launch with --engine none, or with another --provider.",
        )
    return (f"the {cluster.nodes} {remark}",)
