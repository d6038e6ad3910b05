"""Makes the documents of `ls` and of machines, by the ledger. Imports few modules, because `ls` has to be fast."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudgpu.control.session.base import are_accounts_here, is_mine, missing_settings
from cloudgpu.control.session.last_run import LastRun, overdue_sentence, read_last_run, unguarded_sentence
from cloudgpu.control.session.session import Session, living_machines, present_machines
from cloudgpu.core.model.identity import AccountElsewhere, Unanswered
from cloudgpu.core.model.machine import Machine, sync_subject_of
from cloudgpu.core.values.times import iso
from cloudgpu.views.machines import foreign_document, machine_document, queried_accounts_document

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime

    from cloudgpu.control.inventory.sync import SyncResult
    from cloudgpu.core.events.log import Event
    from cloudgpu.errors import CloudgpuError
    from cloudgpu.views.documents.machines.machines import (
        ClusterDocument,
        ClusterMachinesDocument,
        LsDocument,
        MachineDocument,
    )
    from cloudgpu.views.documents.money.budgets import CreditDocument
    from cloudgpu.views.documents.parts import UnansweredScope


def oldest_synced_at(session: Session, machines: list[Machine]) -> str | None:
    """Return when the least recently synced of the living machines was synced; None without any.

    A sync without an answer from one region counts for the machines of the other regions.
    """
    return _oldest_seen_at(machines, last_synced_at(session, machines))


def _oldest_seen_at(machines: list[Machine], synced_at: dict[str, str]) -> str | None:
    return min(
        (
            max(machine.seen_at or machine.intended_at, synced_at.get(machine.id, ""))
            for machine in living_machines(machines)
        ),
        default=None,
    )


def last_synced_at(session: Session, machines: list[Machine]) -> dict[str, str]:
    """Return when each living machine was last synced, by id. A sync writes no event about an unchanged machine."""
    syncs: dict[str, list[Event]] = {}
    synced_at: dict[str, str] = {}
    for machine in living_machines(machines):
        scope = sync_subject_of(machine)
        if scope not in syncs:
            sync_events = (session.ledger.last(scope), session.ledger.last(f"gap:{scope}"))
            syncs[scope] = [event for event in sync_events if event is not None]
        seeing_syncs = [event.occurred_at for event in syncs[scope] if machine.id not in event.body["unseen"]]
        if seeing_syncs:
            synced_at[machine.id] = max(seeing_syncs)
    return synced_at


def _with_seen_at(machine: Machine, synced_at: dict[str, str]) -> Machine:
    """Return a machine with the time of its last sync as `seen_at`; unchanged if no sync has ever seen it."""
    # A sync may have queried machines only, so it says nothing about named resources.
    if machine.seen_at is None or machine.is_named_resource or machine.id not in synced_at:
        return machine
    return machine._replace(seen_at=max(machine.seen_at, synced_at[machine.id]))


def list_machines(
    session: Session,
    *,
    refresh: bool = False,
    ended: bool = False,
    mine: bool = False,
    queues: Mapping[str, str] | None = None,
) -> LsDocument:
    """Return the document of `ls`: machines that have not ended or are retained; with `ended` all.

    `refresh` syncs every account first. With `mine` only machines of the settings' owner. An account that did not
    answer is named under `unanswered`; its machines are as last seen, like local machines of other computers, which
    are named under `elsewhere`. `queues` are texts about clusters' queues, by cluster id, as far as known.
    """
    sync = sync_reported(session) if refresh else None
    integrity_problem = session.integrity_problem()
    if integrity_problem is not None:
        session.report(f"the ledger is in doubt, so machines may be missing here: {integrity_problem}")
    machines = session.ledger.machines() if ended else session.ledger.present_machines()
    last_run = read_last_run(session.ledger)
    warning = (
        session.moved_sentence()
        or unguarded_sentence(session, machines, last_run)
        or overdue_sentence(session, machines, last_run)
    )
    if warning is not None:
        session.report(warning)
    shown = [
        machine
        for machine in (machines if ended else present_machines(machines))
        if not mine or is_mine(session, machine)
    ]
    synced_at = last_synced_at(session, machines)
    accounts = queried_accounts_document(sync.queried, sync.not_queried) if sync else queried_accounts_document()
    documents = machine_documents(session, shown, sync.gpus_now if sync else {}, synced_at=synced_at)
    return {
        "machines": documents,
        "clusters": _cluster_documents(shown, documents, queues or {})
        if any(machine.cluster_node for machine in shown)
        else [],
        "view_as_of": _oldest_seen_at(machines, synced_at),
        "last_run": None if last_run.ok_at is None else iso(last_run.ok_at),
        "credits": _credit_documents(last_run, machines, session.clock()),
        "foreign": [foreign_document(instance) for instance in sync.foreign] if sync else [],
        "integrity_problem": integrity_problem,
        "unanswered": [_gap_document(gap) for gap in sync.unanswered if not _is_of_other_computer(gap)] if sync else [],
        "elsewhere": [_gap_document(gap) for gap in sync.unanswered if _is_of_other_computer(gap)] if sync else [],
        **accounts,
    }


def _is_of_other_computer(gap: Unanswered) -> bool:
    """Return whether it is about local machines of another computer, which nothing here could query."""
    return isinstance(gap, AccountElsewhere) and gap.only_there


def _gap_document(gap: Unanswered) -> UnansweredScope:
    return {"scope": gap.scope, "why": gap.why}


def _credit_documents(last_run: LastRun, machines: Collection[Machine], now: datetime) -> list[CreditDocument]:
    if not last_run.credits:
        return []
    from cloudgpu.views.cost import credits_document

    return credits_document(last_run.credits, machines, now)


def _cluster_documents(
    machines: Sequence[Machine], documents: Sequence[MachineDocument], queues: Mapping[str, str]
) -> list[ClusterDocument]:
    from cloudgpu.core.clusters.members import clusters
    from cloudgpu.views.clusters import cluster_document

    documents_by_id = {document["id"]: document for document in documents}
    return [
        cluster_document(
            nodes, [documents_by_id[node.id] for node in nodes], queue=queues.get(nodes[0].cluster_node.id)
        )
        for nodes in clusters(machines)
        if nodes[0].cluster_node is not None
    ]


def build_cluster_document(
    session: Session, machines: Sequence[Machine], errors: Sequence[CloudgpuError] = ()
) -> ClusterMachinesDocument:
    """Return the document of a cluster with its machines, as of `stop`, `start`, `extend` and `hold`."""
    from cloudgpu.views.clusters import cluster_document

    documents = machine_documents(session, list(machines))
    return {
        **cluster_document(machines, documents),
        "machines": documents,
        "failed": [error.as_dict() for error in errors],
    }


def machine_documents(
    session: Session,
    machines: list[Machine],
    gpus_now: Mapping[str, Sequence[str]] | None = None,
    *,
    synced_at: dict[str, str] | None = None,
) -> list[MachineDocument]:
    """Return machines as plain values, each with whether this home has its account, as far as known.

    `gpus_now` are the users of the GPUs of each machine's computer, by machine id, if just queried. `synced_at` is the
    result of `last_synced_at` (None: it is called here).
    """
    now, gpu_users = session.clock(), gpus_now or {}
    synced_at = last_synced_at(session, machines) if synced_at is None else synced_at
    accounts_here = are_accounts_here(session, machines)
    absent = missing_settings(session, machines, accounts_here)
    machines = [_with_seen_at(machine, synced_at) for machine in machines]
    return [
        machine_document(
            machine,
            now,
            reachable=is_reachable,
            absent=None if missing is None else f"{missing.why} {missing.remedy}",
            gpu_users=gpu_users.get(machine.id, ()),
        )
        for machine, is_reachable, missing in zip(machines, accounts_here, absent, strict=True)
    ]


def build_machine_document(session: Session, machine: Machine) -> MachineDocument:
    """Return the document of a machine, as of `stop`, `start`, `extend` and `hold`."""
    (document,) = machine_documents(session, [machine])
    return document


def sync_reported(session: Session) -> SyncResult:
    """Sync all accounts, because the ledger may not know every machine, and report what the sync changed."""
    from cloudgpu.control.inventory.sync import sync_all

    result = sync_all(session)
    for sentence in result.sentences:
        session.report(sentence)
    return result
