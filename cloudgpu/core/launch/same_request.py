"""Which machine a launch request has already: two requests are the same by their fingerprint, or by their key."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace

from cloudgpu.core.model.launch import LaunchRequest
from cloudgpu.core.model.machine import Machine, comes_back
from cloudgpu.core.values.naming import derived_key, digest, lock_name
from cloudgpu.core.values.times import minute
from cloudgpu.errors import InvalidRequest


def living_of(machines: Sequence[Machine], key: str | None, fingerprint: str) -> Machine | None:
    """Return the machine of this request that lives, or that can be started from what is kept of it.

    Raises InvalidRequest when `key` cannot be used for it.
    """
    if key is None:
        same = [machine for machine in machines if _is_of(machine, fingerprint) and _is_there(machine)]
        return max(same, key=lambda machine: machine.terminated_at is None) if same else None
    for machine in machines:
        if launch_key(machine) != key or (machine.launch_status in ("refused", "void") and not comes_back(machine)):
            continue
        if machine.cluster is not None and machine.launch_failed:
            continue  # it was ended again, as not all of its cluster could be launched
        if machine.terminated_at is not None and not comes_back(machine):
            raise InvalidRequest(
                f"The machine of --key {key} ended at {minute(machine.terminated_at)}; "
                "a key can launch only one machine.",
                field="--key",
                value=key,
                next="Use another --key for a new machine.",
            )
        if machine.request not in (fingerprint, machine.key):  # one that was taken up without its launch bears its key
            raise InvalidRequest(
                f"--key {key} belongs to {machine.name}, which was launched by a different request.",
                field="--key",
                value=key,
                next=f"Repeat that request as it was, or use another --key (cloudgpu show {machine.name}).",
            )
        return machine if _is_there(machine) else None
    return None


def launch_key(machine: Machine) -> str:
    """Return the key under which a machine was launched, or the cluster that it is a node of."""
    cluster = machine.cluster
    return machine.key.removesuffix(f"--{cluster.node}") if cluster is not None and cluster.nodes > 1 else machine.key


def _is_there(machine: Machine) -> bool:
    return comes_back(machine) or (machine.terminated_at is None and machine.launch_status == "made")


def _is_of(machine: Machine, fingerprint: str) -> bool:
    """Say whether a row is of this request: by its fingerprint, or by its key where its launch is not known here."""
    if machine.request == machine.key:
        return lock_name(machine.key) == lock_name(derived_key(fingerprint, 1))
    return bool(machine.request == fingerprint)


def unsettled_of(machines: Sequence[Machine], lock: str) -> Machine | None:
    """Return the unfinished attempt that is launched under this lock, if there is one."""
    open_ = (machine for machine in machines if machine.terminated_at is None and machine.launch_status == "open")
    return next((machine for machine in open_ if lock_name(machine.key) == lock), None)


def _of_cluster(request: LaunchRequest) -> tuple[str, ...]:
    cluster = request.cluster
    return () if cluster is None else (str(cluster.nodes), cluster.engine)


def fingerprint_of(request: LaunchRequest, name: str | None) -> str:
    """Return what makes two requests the same: everything but how long the machine may live and who may reach it."""
    want, setup = request.want, request.setup
    return digest(
        request.provider,
        request.account,
        want.gpu or "",
        str(want.gpu_count),
        want.instance_type or "",
        want.region or "",
        want.zone or "",
        str(want.market),
        request.template,
        request.owner,
        request.project,
        name or "",
        *_of_cluster(request),
        json.dumps(asdict(replace(setup, network=replace(setup.network, ssh_from=()))), sort_keys=True),
    )
