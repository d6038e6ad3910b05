"""Takes away what the machines of a cluster shared, once the last of them is proved gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudgpu.errors import CloudgpuError
from cloudgpu.providers.abilities import LaunchesTogether

if TYPE_CHECKING:
    from cloudgpu.control.session.session import Session
    from cloudgpu.core.model.machine import Machine

PAUSES_S = (0.2, 1.0, 2.0, 4.0, 8.0, 15.0, 0.0)  # a cloud shows for a while what it has let go of


def without_shared(session: Session, machine: Machine) -> Machine:
    """Return a machine that has ended, after what its cluster shared was asked to go; as it is while a node lives.

    It costs nothing: what cannot be removed now is said, and keeps no `down` from its end. `cloudgpu orphans` finds it.
    """
    cluster = machine.cluster
    if cluster is None or cluster.nodes == 1:
        return machine
    provider = session.provider_of(machine)
    if not isinstance(provider, LaunchesTogether) or _is_one_left(session, machine):
        return machine
    last = "it is still in use"
    try:
        for pause in PAUSES_S:
            if provider.clear_shared(cluster.id, machine.region):
                return machine
            session.pause(pause)
    except CloudgpuError as error:
        last = error.message
    session.tell(
        f"{cluster.name}: a placement group or a security group may be left, which costs nothing ({last}). "
        "To remove it: cloudgpu orphans --clean"
    )
    return machine


def _is_one_left(session: Session, machine: Machine) -> bool:
    """Say whether another node of its cluster lives, or may."""
    nodes = (row for row in session.ledger.machines() if row.cluster is not None and row.id != machine.id)
    ours = (row for row in nodes if row.cluster and machine.cluster and row.cluster.id == machine.cluster.id)
    return any(row.terminated_at is None for row in ours)
