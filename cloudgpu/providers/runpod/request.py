"""Turns a request and an offer into the exact launch call, and that into the body sent to RunPod."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from cloudgpu.core.model.launch import Attempt, LaunchRequest, Setup
from cloudgpu.core.model.offers import MachineConfiguration, Note, NoteKind, Trust
from cloudgpu.core.policies.guards import Agent
from cloudgpu.providers.abilities import AttachedResource, PlacementConstraint, Resolved
from cloudgpu.providers.machine.container_start import TAGS_VARIABLE, ContainerSpec, image_to_run, pack_start
from cloudgpu.providers.runpod import offers, pod_key
from cloudgpu.providers.runpod.client import Runpod
from cloudgpu.providers.runpod.machines import MEMORY_VARIABLE, REGION_VARIABLE
from cloudgpu.providers.runpod.options import CLOUD, COMMUNITY, DEFAULT_IMAGE
from cloudgpu.providers.shared import containers
from cloudgpu.providers.shared.rules import disk_gb

WORKSPACE, SSH_PORT = "/workspace", 22
MIN_GB, DEFAULT_GB, MAX_GB = 10, 50, 4000  # sizes of /workspace; the minimum is RunPod's
CONTAINER_DISK, VOLUME_RUNNING, VOLUME_STOPPED = "container_disk", "volume_running", "volume_stopped"
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


def constraint(setup: Setup) -> PlacementConstraint:
    """Return an empty constraint: no setup limits the region. Raises InvalidRequest for what a pod cannot have."""
    return containers.placement_constraint(CLOUD, setup, DEFAULT_IMAGE)


def resolve(runpod: Runpod, request: LaunchRequest, offer: MachineConfiguration) -> Resolved:
    """Return the exact launch call of an offer, its attached costs and remarks. Reads only.

    Raises NoCapacity if the data centre does not have it now, InvalidRequest for what a pod cannot have.
    """
    setup = request.setup
    constraint(setup)
    containers.check_setup(CLOUD, setup)
    cluster_remarks = containers.cluster_remarks(
        request, "Pods reach each other by their SSH alone", "pods reach each other by their public SSH ports alone"
    )
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
        volume_gb=disk_gb(
            setup.disk_gb, CLOUD, MIN_GB, default=DEFAULT_GB, maximum=MAX_GB, limited_by=CLOUD, disk=WORKSPACE
        ),
        ends=ends,
    )
    return Resolved(
        call=asdict(call),
        attached=_attached_costs(call),
        guards=(pod_key.STOPS_ITSELF_NOTE,) if ends else (),
        remarks=(*cluster_remarks, *_remarks(call, offer)),
        left_out=("cloud_init",),
        agent=Agent.ENDS if ends else Agent.TELLS,
    )


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
