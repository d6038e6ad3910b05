"""Deletes the cloud resources that a cluster's machines shared, once none of them exists any more.

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
    provider = _provider_to_clear(session, machine)
    if provider is None or machine.cluster is None:
        return machine
    reason = "it is still in use"
    try:
        for pause_s in PAUSES_S:
            if provider.clear_shared(machine.cluster.id, machine.region):
                return machine
            session.pause(pause_s)
    except CloudgpuError as error:
        reason = error.message
    session.report(
        f"Shared resources of cluster {machine.cluster.name} could not be deleted ({reason}). They are free. "
        "To delete them: cloudgpu orphans --clean"
    )
    return machine


def delete_unused_shared(session: Session, machine: Machine) -> None:
    """Try once to delete what a cluster shared whose machines were not launched, unless one of them may exist.

    Raises no CloudgpuError.
    """
    with suppress(CloudgpuError):
        provider = _provider_to_clear(session, machine)
        if provider is not None and machine.cluster is not None:
            provider.clear_shared(machine.cluster.id, machine.region)


def _provider_to_clear(session: Session, machine: Machine) -> ClearsShared | None:
    """Return the provider if it deletes shared resources and no other node of the cluster may exist, else None."""
    if machine.cluster is None or machine.cluster.nodes == 1:
        return None
    provider = session.provider_of(machine)
    return provider if isinstance(provider, ClearsShared) and not _has_other_nodes(session, machine) else None


def _has_other_nodes(session: Session, machine: Machine) -> bool:
    """Return whether another node of the machine's cluster exists, or may exist."""
    return any(
        machine.cluster and other.cluster and other.cluster.id == machine.cluster.id and other.terminated_at is None
        for other in session.ledger.machines()
        if other.id != machine.id
    )
