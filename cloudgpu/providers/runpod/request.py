"""Turns a request and an offer into the exact launch call, and that into the body sent to RunPod."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from cloudgpu.core.model.launch import Attempt, LaunchRequest, Setup
from cloudgpu.core.model.offers import MachineConfiguration, Note, NoteKind, Requirements, Trust
from cloudgpu.core.policies.guards import Agent
from cloudgpu.errors import InvalidRequest
from cloudgpu.providers.abilities import AttachedResource, PlacementConstraint, Resolved
from cloudgpu.providers.machine.container_start import TAGS_VARIABLE, ContainerSpec, image_to_run, pack_start
from cloudgpu.providers.runpod import offers, pod_key
from cloudgpu.providers.runpod.client import Runpod
from cloudgpu.providers.runpod.machines import MEMORY_VARIABLE, REGION_VARIABLE
from cloudgpu.providers.runpod.options import COMMUNITY, image_error, is_image

WORKSPACE, SSH_PORT = "/workspace", 22
MIN_GB, DEFAULT_GB, MAX_GB = 10, 50, 4000  # sizes of /workspace; the minimum is RunPod's
CONTAINER_DISK, VOLUME_RUNNING, VOLUME_STOPPED = "container_disk", "volume_running", "volume_stopped"
NO_VOLUMES = "On RunPod, cloudgpu keeps no named volumes."
SSH_IS_OPEN = "SSH of a pod is open to everybody, for RunPod has no rules about who may connect; it takes keys only"
NO_TIMER = "nothing at RunPod ends a pod at its renew-until: only a run of cloudgpu reap does (cloudgpu cron install)"
OWNER_READS = "RISK: it is a stranger's computer, whose owner can read everything on it"


@dataclass(frozen=True, slots=True)
class Call:
    """The exact launch call, saved with the attempt as JSON. Sizes are GB.

    `gpu` is RunPod's id of it, `count` how many, `memory` of each; `cloud` is SECURE or COMMUNITY, `where` the data
    centre (or COMMUNITY). `ends`: the pod can stop itself. `host_key`: it is read from the pod's log.
    """

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
    """Return an empty constraint: no setup limits the region. Raises InvalidRequest for what a pod cannot have."""
    del requirements
    if setup.image is not None and not is_image(setup.image):
        raise image_error(setup.image)
    if setup.volume is not None and setup.volume.size_gb is None:
        raise _no_volume_error(setup.volume.name)
    return PlacementConstraint()


def resolve(runpod: Runpod, request: LaunchRequest, offer: MachineConfiguration) -> Resolved:
    """Return the exact launch call of an offer, its attached costs and remarks. Reads only.

    Raises NoCapacity if the data centre does not have it now, InvalidRequest for what a pod cannot have.
    """
    setup = request.setup
    constraint(setup, request.requirements)
    _check_supported(setup)
    gpu = offers.gpu_of_offer(runpod, offer)
    ends = pod_key.reads_no_other_pod(runpod)
    call = Call(
        gpu=gpu["id"],
        count=offer.accelerators[0].count,
        memory=int(gpu.get("memory") or 0),
        cloud=COMMUNITY if offer.zone == COMMUNITY else offers.SECURE,
        where=offer.zone,
        image=setup.image or runpod.options.image,
        container_gb=runpod.options.container_gb,
        volume_gb=_volume_gb(setup.disk_gb),
        ends=ends,
    )
    return Resolved(
        call=asdict(call),
        attached=_attached_costs(call),
        guards=(pod_key.STOPS_ITSELF_NOTE,) if ends else (),
        remarks=(*_cluster_remarks(request), *_remarks(call, offer)),
        left_out=("cloud_init",),
        agent=Agent.ENDS if ends else Agent.TELLS,
    )


def _check_supported(setup: Setup) -> None:
    """Raise InvalidRequest for a part of a setup that RunPod does not have."""
    network = setup.network
    if setup.volume is not None:
        raise _no_volume_error(setup.volume.name)
    for option, value in (
        ("--subnet", network.subnet),
        ("--security-group", network.security_group),
        ("--jump", network.jump),
    ):
        if value is not None:
            message = f"RunPod has no networks of your own, so {option} {value} is not possible."
            raise InvalidRequest(message, field=option, value=value, next=f"Leave {option} out.")
    if not network.public_ip:
        message = "A pod without a public port cannot be reached by SSH."
        raise InvalidRequest(message, field="--no-public-ip", next="Leave --no-public-ip out.")


def _cluster_remarks(request: LaunchRequest) -> tuple[str, ...]:
    """Return the remarks on a cluster; none for a single pod. Raises InvalidRequest for a cluster with an engine."""
    cluster = request.cluster
    if cluster is None or cluster.nodes == 1:
        return ()
    if cluster.engine != "none":
        raise InvalidRequest(
            f"Pods reach each other by their SSH alone, and {cluster.engine} needs other ports.",
            field="--engine",
            value=cluster.engine,
            next="Launch with --engine none, or choose another --provider.",
        )
    return (f"the {cluster.nodes} pods reach each other by their public SSH ports alone",)


def _no_volume_error(name: str) -> InvalidRequest:
    remedy = f"Leave --volume out; --disk GB is the size of {WORKSPACE}, which a stop keeps."
    return InvalidRequest(NO_VOLUMES, field="--volume", value=name, next=remedy)


def _volume_gb(requested: int | None) -> int:
    if requested is None or MIN_GB <= requested <= MAX_GB:
        return DEFAULT_GB if requested is None else requested
    message = f"A {WORKSPACE} of {requested:,} GB cannot be: RunPod has {MIN_GB} to {MAX_GB:,}."
    raise InvalidRequest(message, field="--disk", value=str(requested), next=f"Ask for {MIN_GB} to {MAX_GB} GB.")


def _attached_costs(call: Call) -> tuple[AttachedResource, ...]:
    """Return the attached costs: the volume costs twice as much while the pod is stopped."""
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


def _remarks(call: Call, offer: MachineConfiguration) -> list[str]:
    stop_text = f"only {WORKSPACE} ({call.volume_gb} GB) outlives a stop; the home and all else are erased"
    remarks = [stop_text, Note(SSH_IS_OPEN, NoteKind.ACCESS), Note(NO_TIMER, NoteKind.GUARD)]
    if not call.ends:
        remarks.append(Note(pod_key.UNPROVED_TEXT, NoteKind.GUARD))
    if offer.trust is Trust.COMMUNITY:
        remarks.append(Note(OWNER_READS, NoteKind.ACCESS))
    return remarks


def pod_name(token: str) -> str:
    """Return the name of a launch's pod, by which it is found later."""
    return f"cg-{token}"


def launch_body(attempt: Attempt) -> Mapping[str, Any]:
    """Return the body of the call. All tags are in the pod's environment from the start."""
    call = Call(**attempt.call)
    script = pack_start(
        attempt,
        ContainerSpec(
            end_command=pod_key.STOP_COMMAND if call.ends else "", persistent_dir=WORKSPACE, ssh_port=SSH_PORT
        ),
    )
    env = {
        TAGS_VARIABLE: json.dumps(dict(attempt.tags), sort_keys=True),
        REGION_VARIABLE: call.where,
        MEMORY_VARIABLE: str(call.memory),
        "PUBLIC_KEY": "\n".join(attempt.boot.client_public_keys),
        **({} if call.ends else {pod_key.CHECK_VARIABLE: pod_key.CHECK_PROGRAM}),
        **script.env,
    }
    check_command = "" if call.ends else f'python3 -c "${pod_key.CHECK_VARIABLE}"; unset {pod_key.CHECK_VARIABLE}; '
    request_body: dict[str, Any] = {
        "name": pod_name(attempt.token),
        "cloud": call.cloud,
        "gpu": {"id": call.gpu, "count": call.count},
        "image": image_to_run(attempt, call.image),
        "args": f"sh -c {shlex.quote(check_command + script.command)}",
        "disk": call.container_gb,
        "mounts": {"persistent": {"size": call.volume_gb, "path": WORKSPACE}},
        "env": env,
        "ports": [f"{SSH_PORT}/tcp"],
    }
    return request_body if call.cloud == COMMUNITY else {**request_body, "dataCenterIds": [call.where]}
