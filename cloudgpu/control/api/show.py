"""Answers `show`: one machine, why it counts as what it does, and all lines of the ledger about it."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, cast

from cloudgpu.control.inventory.listing import machine_documents
from cloudgpu.control.jobs.listing import PREFIX, find, is_known, job_value
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
    """Return the answer of `show`; ask the machine's provider first where `refresh` says so, and for `why` itself.

    Of a cluster by its name, each of its nodes with what was asked for.
    """
    rows = session.find_any(name, ended=True)
    if refresh:
        rows = tuple(_refreshed(session, row) for row in rows) if len(rows) == 1 else _all_refreshed(session, rows)
    plain = machine_documents(session, list(rows))
    values = [
        _shown(session, row, one, refresh=refresh, history=history, why=why)
        for row, one in zip(rows, plain, strict=True)
    ]
    if rows[0].gang is None or name in (rows[0].name, rows[0].id):
        return values[0]
    from cloudgpu.views.clusters import cluster_value

    whole = {**cluster_value(rows, plain), "machines": values}
    return cast("ShownClusterDocument", whole)


def _refreshed(session: Session, machine: Machine) -> Machine:
    from cloudgpu.control.inventory.sync import refresh as look

    return (
        look(session, machine, record_unchanged=True) if machine.provider_id and not machine.terminated_at else machine
    )


def _all_refreshed(session: Session, machines: Sequence[Machine]) -> tuple[Machine, ...]:
    """Ask about all nodes, in as few calls as that takes; raise the first fault where one is not answered."""
    from cloudgpu.control.inventory.sync_some import sync_some

    faults = sync_some(session, [machine for machine in machines if machine.provider_id and not machine.terminated_at])
    for fault in faults.values():
        raise fault
    return tuple(session.ledger.machine(machine.id) or machine for machine in machines)


def _shown(
    session: Session, machine: Machine, value: MachineDocument, *, refresh: bool, history: bool, why: bool
) -> ShownDocument:
    document: ShownDocument = {**value}  # type: ignore[typeddict-item]  # what is not asked for lacks
    if why:
        from cloudgpu.control.reaper.explain import explain_machine

        document["why"] = explain_machine(session, machine, refresh=refresh)
    if history:
        document["history"] = [_line(event) for event in _lines_about(session, machine)]
    return document


def find_shown_job(session: Session, name: str | None) -> JobDocument | None:
    """Return the job that a name means; None where it means a machine.

    A job has the name of its machine: while that lives, `job:NAME` is the job. Raises InstanceNotFound for a job that
    there is not.
    """
    if name is None or not (name.startswith(PREFIX) or is_known(session, name)):
        return None
    if not name.startswith(PREFIX):
        with suppress(InstanceNotFound):
            session.find_any(name)
            return None
    return job_value(session, find(session, name))


def _lines_about(session: Session, machine: Machine) -> list[Event]:
    """Return the lines about a machine by seq: its own, and those of budgets that were overridden for it."""
    past = (one for one in session.ledger.events("budgets") if one.body.get("machine") == machine.id)
    return sorted([*session.ledger.events(machine.id), *past], key=lambda one: one.seq)


def _line(event: Event) -> HistoryLine:
    return {
        "seq": event.seq,
        "occurred_at": event.occurred_at,
        "clock": event.clock,
        "recorded_at": event.recorded_at,
        "actor": event.actor,
        "kind": event.kind,
        "body": dict(event.body),
    }
