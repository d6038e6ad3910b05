"""Makes the document of `show`: one machine or cluster, why it counts as in use or idle, and its ledger entries."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, cast

from cloudgpu.control.inventory.listing import machine_documents
from cloudgpu.control.jobs.listing import NAME_PREFIX, find, is_known, job_document
from cloudgpu.core.model.machine import Machine
from cloudgpu.errors import InstanceNotFound

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudgpu.control.session.session import Session
    from cloudgpu.core.events.log import Event
    from cloudgpu.views.documents.jobs.jobs import JobDocument
    from cloudgpu.views.documents.machines.machines import (
        HistoryLine,
        MachineDocument,
        ShownClusterDocument,
        ShownDocument,
    )


def show_document(
    session: Session, name: str | None, *, refresh: bool = False, history: bool = False, why: bool = False
) -> ShownDocument:
    """Return the document of `show`, for a cluster with the same of each node.

    With `refresh`, ask the provider first; with `why` too, ask the machine itself.
    """
    machines = session.find_machine_or_nodes(name, ended=True)
    if refresh:
        machines = _refresh_all(session, machines)
    documents = machine_documents(session, list(machines))
    shown = [
        _with_details(session, machine, document, refresh=refresh, history=history, why=why)
        for machine, document in zip(machines, documents, strict=True)
    ]
    if machines[0].cluster_node is None or name in (machines[0].name, machines[0].id):
        return shown[0]
    from cloudgpu.views.clusters import cluster_document

    return cast("ShownClusterDocument", {**cluster_document(machines, documents), "machines": shown})


def _refresh_all(session: Session, machines: Sequence[Machine]) -> tuple[Machine, ...]:
    """Return the machines as their providers report them, asked in as few calls as possible. Raises the first error."""
    from cloudgpu.control.inventory.sync import refresh
    from cloudgpu.control.inventory.sync_some import sync_some

    to_query = [machine for machine in machines if machine.provider_id and not machine.terminated_at]
    if len(machines) == 1:
        return tuple(refresh(session, machine, record_unchanged=True) for machine in to_query) or tuple(machines)
    for error in sync_some(session, to_query).values():
        raise error
    return tuple(session.ledger.machine(machine.id) or machine for machine in machines)


def _with_details(
    session: Session, machine: Machine, machine_document: MachineDocument, *, refresh: bool, history: bool, why: bool
) -> ShownDocument:
    """Return the document with `why` and `history`, if requested."""
    document: ShownDocument = {**machine_document}  # type: ignore[typeddict-item]  # `why` and `history` may be missing
    if why:
        from cloudgpu.control.reaper.explain import build_why_document

        document["why"] = build_why_document(session, machine, is_live=refresh)
    if history:
        document["history"] = [_history_line(event) for event in _events_about(session, machine)]
    return document


def find_shown_job(session: Session, name: str | None) -> JobDocument | None:
    """Return the document of the job with this name; None if a machine has it.

    A job has the name of its machine: while that machine exists, only `job:NAME` means the job. Raises InstanceNotFound
    for an unknown job.
    """
    if name is None or not (name.startswith(NAME_PREFIX) or is_known(session, name)):
        return None
    if not name.startswith(NAME_PREFIX):
        with suppress(InstanceNotFound):
            session.find_machine_or_nodes(name)
            return None
    return job_document(session, find(session, name))


def _events_about(session: Session, machine: Machine) -> list[Event]:
    """Return a machine's own events, and those of budgets that were overridden for it, by their order in the ledger."""
    overrides = (event for event in session.ledger.events("budgets") if event.body.get("machine") == machine.id)
    return sorted([*session.ledger.events(machine.id), *overrides], key=lambda event: event.seq)


def _history_line(event: Event) -> HistoryLine:
    return {
        "seq": event.seq,
        "occurred_at": event.occurred_at,
        "clock": event.clock,
        "recorded_at": event.recorded_at,
        "actor": event.actor,
        "kind": event.kind,
        "body": dict(event.body),
    }
