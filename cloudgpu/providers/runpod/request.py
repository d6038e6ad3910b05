"""Makes a request at one offer exact, and the body of the call from it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from cloudgpu.core.model.launch import Attempt, LaunchRequest, Setup
from cloudgpu.core.model.offers import Available, Note, NoteKind, Requirements, Trust
from cloudgpu.core.policies.guards import Agent
from cloudgpu.errors import InvalidRequest
from cloudgpu.providers.abilities import AttachedResource, PlacementConstraint, Resolved
from cloudgpu.providers.machine.container_start import TAGS, ContainerSpec, image_of, packed
from cloudgpu.providers.runpod import offers, pod_key
from cloudgpu.providers.runpod.client import Runpod
from cloudgpu.providers.runpod.machines import MEMORY, PLACE
from cloudgpu.providers.runpod.options import COMMUNITY, image_fault, is_image

WORKSPACE, SSH_PORT = "/workspace", 22
MIN_GB, DEFAULT_GB, MAX_GB = 10, 50, 4000  # of /workspace; the least is RunPod's
CONTAINER_DISK, VOLUME_RUNNING, VOLUME_STOPPED = "container_disk", "volume_running", "volume_stopped"
NO_VOLUMES = "On RunPod, cloudgpu keeps no named volumes."
OPEN = "SSH of a pod is open to everybody, for RunPod has no rules about who may connect; it takes keys only"
NOT_TIMED = "nothing at RunPod ends a pod at its renew-until: only a run of cloudgpu reap does (cloudgpu cron install)"
READABLE = "RISK: it is a stranger's computer, whose owner can read everything on it"


@dataclass(frozen=True, slots=True)
class Call:
    """What the call will say, looked up; plain JSON values. Sizes are GB; `ends` is whether a pod may end itself."""

    gpu: str
    count: int
    memory: int
    cloud: str
    where: str
    image: str
    container_gb: int
    volume_gb: int
    ends: bool = False
    host_key: str = "reads"


def constraint(setup: Setup, requirements: Requirements) -> PlacementConstraint:
    """Return that a setup ties to no place. Raises InvalidRequest for what a pod cannot have."""
    del requirements
    if setup.image is not None and not is_image(setup.image):
        raise image_fault(setup.image)
    if setup.volume is not None and setup.volume.size_gb is None:
        raise _no_volume(setup.volume.name)
    return PlacementConstraint()


def resolve(runpod: Runpod, request: LaunchRequest, item: Available) -> Resolved:
    """Return the exact launch call of an offer, its attached costs and remarks. Reads only.

    Raises NoCapacity where the data centre does not have it now, InvalidRequest for what a pod cannot have.
    """
    setup = request.setup
    constraint(setup, request.want)
    _check(setup)
    gpu = offers.sold(runpod, item)
    ends = pod_key.is_proved(runpod)
    call = Call(
        gpu=gpu["id"],
        count=item.accelerators[0].count,
        memory=int(gpu.get("memory") or 0),
        cloud=COMMUNITY if item.zone == COMMUNITY else offers.SECURE,
        where=item.zone,
        image=setup.image or runpod.options.image,
        container_gb=runpod.options.container_gb,
        volume_gb=_volume_gb(setup.disk_gb),
        ends=ends,
    )
    return Resolved(
        call=asdict(call),
        attached=_attached(call),
        guards=(pod_key.TIMED_BY,) if ends else (),
        remarks=(*_cluster_remarks(request), *_remarks(call, item)),
        left_out=("cloud_init",),
        agent=Agent.ENDS if ends else Agent.TELLS,
    )


def _check(setup: Setup) -> None:
    """Raise InvalidRequest for a part of a setup that RunPod has not."""
    net = setup.network
    if setup.volume is not None:
        raise _no_volume(setup.volume.name)
    for option, value in (("--subnet", net.subnet), ("--security-group", net.security_group), ("--jump", net.jump)):
        if value is not None:
            message = f"RunPod has no networks of your own, so {option} {value} cannot be."
            raise InvalidRequest(message, field=option, value=value, next=f"Leave {option} out.")
    if not net.public_ip:
        message = "A pod without a public port cannot be reached by SSH."
        raise InvalidRequest(message, field="--no-public-ip", next="Leave --no-public-ip out.")


def _cluster_remarks(request: LaunchRequest) -> tuple[str, ...]:
    """Return what the plan of a cluster says; nothing for one pod. Raises InvalidRequest for one with an engine."""
    cluster = request.cluster
    if cluster is None or cluster.nodes == 1:
        return ()
    if cluster.engine != "none":
        message = f"Pods reach each other by their SSH alone, and {cluster.engine} needs other ports."
        raise InvalidRequest(
            message,
            field="--engine",
            value=cluster.engine,
            next="Launch with --engine none, or choose another --provider.",
        )
    return (f"the {cluster.nodes} pods reach each other by their public SSH ports alone",)


def _no_volume(name: str) -> InvalidRequest:
    remedy = f"Leave --volume out; --disk GB is the size of {WORKSPACE}, which a stop keeps."
    return InvalidRequest(NO_VOLUMES, field="--volume", value=name, next=remedy)


def _volume_gb(requested: int | None) -> int:
    if requested is None or MIN_GB <= requested <= MAX_GB:
        return DEFAULT_GB if requested is None else requested
    message = f"A {WORKSPACE} of {requested:,} GB cannot be: RunPod has {MIN_GB} to {MAX_GB:,}."
    raise InvalidRequest(message, field="--disk", value=str(requested), next=f"Ask for {MIN_GB} to {MAX_GB} GB.")


def _attached(call: Call) -> tuple[AttachedResource, ...]:
    """Return what is billed beside the GPU: the volume costs twice as much while the pod is stopped."""
    return (
        AttachedResource("container disk", CONTAINER_DISK, call.container_gb, while_stopped=False),
        AttachedResource(f"{WORKSPACE} while it runs", VOLUME_RUNNING, call.volume_gb, while_stopped=False),
        AttachedResource(
            f"{WORKSPACE} while it is stopped",
            VOLUME_STOPPED,
            call.volume_gb,
            while_stopped=True,
            while_running=False,
        ),
    )


def _remarks(call: Call, item: Available) -> list[str]:
    kept = f"only {WORKSPACE} ({call.volume_gb} GB) outlives a stop; the home and all else are erased"
    found = [kept, Note(OPEN, NoteKind.ACCESS), Note(NOT_TIMED, NoteKind.GUARD)]
    if not call.ends:
        found.append(Note(pod_key.UNPROVED_TEXT, NoteKind.GUARD))
    if item.trust is Trust.COMMUNITY:
        found.append(Note(READABLE, NoteKind.ACCESS))
    return found


def pod_name(token: str) -> str:
    """Return what the pod of a launch is called: whoever comes later finds it by that."""
    return f"cg-{token}"


def body(attempt: Attempt) -> Mapping[str, Any]:
    """Return the body of the call: all tags are in the pod's environment from its first moment."""
    call = Call(**attempt.call)
    start = packed(attempt, ContainerSpec(end=pod_key.STOP_COMMAND if call.ends else "", keep=WORKSPACE, port=SSH_PORT))
    env = {
        TAGS: json.dumps(dict(attempt.tags), sort_keys=True),
        PLACE: call.where,
        MEMORY: str(call.memory),
        "PUBLIC_KEY": "\n".join(attempt.boot.client_public_keys),
        **({} if call.ends else {pod_key.CHECK: pod_key.CHECK_PROGRAM}),
        **start.env,
    }
    asks = "" if call.ends else f'python3 -c "${pod_key.CHECK}"; unset {pod_key.CHECK}; '
    made: dict[str, Any] = {
        "name": pod_name(attempt.token),
        "cloud": call.cloud,
        "gpu": {"id": call.gpu, "count": call.count},
        "image": image_of(attempt, call.image),
        "args": f"sh -c {shlex.quote(asks + start.command)}",
        "disk": call.container_gb,
        "mounts": {"persistent": {"size": call.volume_gb, "path": WORKSPACE}},
        "env": env,
        "ports": [f"{SSH_PORT}/tcp"],
    }
    return made if call.cloud == COMMUNITY else {**made, "dataCenterIds": [call.where]}
