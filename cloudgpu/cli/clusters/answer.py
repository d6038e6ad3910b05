"""What a verb says that acted on all nodes of a cluster: each fault, and the exit code of the gravest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import typer

from cloudgpu.cli.clusters.listing import complete_text, what
from cloudgpu.cli.common import Format, emit, tell
from cloudgpu.control.clusters.together import gravest
from cloudgpu.control.inventory.listing import cluster

if TYPE_CHECKING:
    from cloudgpu.control.clusters.together import Together
    from cloudgpu.control.session.session import Session
    from cloudgpu.errors import CloudgpuError
    from cloudgpu.views.documents.machines.clusters import ClusterMachinesDocument
    from cloudgpu.views.documents.machines.machines import ClusterDocument, MachineDocument


def answer(session: Session, done: Together, output: Format, said: Callable[[ClusterMachinesDocument], str]) -> None:
    """Print what came of all nodes, as `said` where all went well; leave with the exit code of the gravest fault."""
    value = cluster(session, done.machines, done.faults)
    emit(output, value, partly(value) if done.faults else said(value))
    leave(done.faults)


def partly(value: ClusterMachinesDocument) -> str:
    """Return how the nodes stand where something failed at one of them."""
    return f"{value['name']}: {complete_text(value, value['machines'])}."


def leave(faults: Sequence[CloudgpuError]) -> None:
    """Say each fault; leave with the exit code of the gravest, if there is one."""
    for fault in faults:
        tell(f"error: {fault.message} {fault.next or ''}".rstrip())
    worst = gravest(faults)
    if worst is not None:
        raise typer.Exit(worst.exit_code)


def as_one(value: ClusterDocument) -> MachineDocument:
    """Return a cluster as a question shows a machine: of its type `4 x TYPE`."""
    return value | {"instance_type": what(value)}
