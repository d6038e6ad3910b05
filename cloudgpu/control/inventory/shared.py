"""Deletes the cloud resources that a cluster's machines shared, once none of them is left or none was ever made.

These resources are free. If one cannot be deleted now, `cloudgpu orphans` deletes it later; the machine still counts
as terminated.
"""

from __future__ import annotations

from contextlib import suppress

from cloudgpu.control.session.session import Session
from cloudgpu.core.model.machine import Machine
from cloudgpu.errors import CloudgpuError
from cloudgpu.providers.cluster_abilities import ClearsShared

PAUSES_S = (0.2, 1.0, 2.0, 4.0, 8.0, 15.0, 0.0)  # a cloud lists deleted resources for a while


def delete_shared_resources(session: Session, machine: Machine) -> Machine:
    """Delete what the cluster of a terminated machine shared, unless another node lives; return the machine.

    The user is notified if something is left.
    """
    provider = _clearing(session, machine)
    if provider is None or machine.cluster is None:
        return machine
    last = "it is still in use"
    try:
        for pause in PAUSES_S:
            if provider.clear_shared(machine.cluster.id, machine.region):
                return machine
            session.pause(pause)
    except CloudgpuError as error:
        last = error.message
    session.report(
        f"Shared resources of cluster {machine.cluster.name} could not be deleted ({last}). They are free. "
        "To delete them: cloudgpu orphans --clean"
    )
    return machine


def delete_unused_shared(session: Session, machine: Machine) -> None:
    """Try once to delete what a cluster shares whose machines were not made; nothing while one lives, or may.

    Raises nothing but defects.
    """
    with suppress(CloudgpuError):
        provider = _clearing(session, machine)
        if provider is not None and machine.cluster is not None:
            provider.clear_shared(machine.cluster.id, machine.region)


def _clearing(session: Session, machine: Machine) -> ClearsShared | None:
    """Return the provider that clears what a cluster shared; None where it has nothing to, or a node is left."""
    if machine.cluster is None or machine.cluster.nodes == 1:
        return None
    provider = session.provider_of(machine)
    return provider if isinstance(provider, ClearsShared) and not _has_other_nodes(session, machine) else None


def _has_other_nodes(session: Session, machine: Machine) -> bool:
    """Say whether another node of its cluster lives, or may."""
    nodes = (row for row in session.ledger.machines() if row.cluster is not None and row.id != machine.id)
    ours = (row for row in nodes if row.cluster and machine.cluster and row.cluster.id == machine.cluster.id)
    return any(row.terminated_at is None for row in ours)
