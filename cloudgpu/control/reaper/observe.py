"""Gathers a run's inputs: each machine's record and policy, and the agent's answer if it could be idle.

A run syncs all accounts and records changes; a dry run lists and records nothing. Before a machine is ended, its
provider and its agent are queried again, under its lock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from cloudgpu.control.activity.agents import ask_activity, probe
from cloudgpu.control.inventory.retention import named_resources
from cloudgpu.control.inventory.sync import SyncResult, sync_accounts
from cloudgpu.control.inventory.sync_accounts import list_accounts
from cloudgpu.control.inventory.sync_some import sync_some
from cloudgpu.control.pricing.traffic import record_traffic
from cloudgpu.control.session.accounts import queried_accounts, split_gaps, used_accounts
from cloudgpu.control.session.base import account_names
from cloudgpu.control.session.identity import AccountScope, by_account, covered_ids, unqueried_accounts
from cloudgpu.control.session.session import Session, living_machines
from cloudgpu.core.activity.report import Report
from cloudgpu.core.events.observations import differs_from_record, instance_observed
from cloudgpu.core.events.projection import project_event
from cloudgpu.core.model.identity import QueriedAccount, Unanswered, is_in_unanswered, regions_that_may_cost
from cloudgpu.core.model.instances import TAG_ID, TAG_LEDGER, Instance, Listing, State
from cloudgpu.core.model.machine import Machine, command_name, has_retained_resources
from cloudgpu.core.model.resources import Kind
from cloudgpu.core.policies.policy import Rule
from cloudgpu.core.reaper.clusters import with_cluster_activity
from cloudgpu.core.reaper.decisions import Decision, MachineView
from cloudgpu.core.reaper.result import EndItem, NotEnded, Outcome, busy, lock_of, split_ends
from cloudgpu.core.reaper.seen import to_ask, with_last_use_at_provider, with_machine, with_provider_fault, with_report
from cloudgpu.core.resources import retention as retention_rules
from cloudgpu.core.values.times import from_iso
from cloudgpu.errors import AnswerTimeout, LockBusy

if TYPE_CHECKING:
    from cloudgpu.config.policies.chosen import ChosenPolicy

RETRY_AFTER_S = 2.0  # a second try in the same run: until the next one, machines cost


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The result of a sync: the machines to evaluate, and the ids of those that their provider answered for.

    `foreign` are machines of other ledgers. `sentences` say what was corrected. `queried` are the accounts that were
    asked; `not_queried` are those of which this computer has only a credential that is refused; `unread` are those of
    which no machine could be read, though there may be some.
    """

    machines: tuple[Machine, ...]
    answered: Collection[str]
    foreign: tuple[Instance, ...] = ()
    unanswered: tuple[Unanswered, ...] = ()
    sentences: tuple[str, ...] = ()
    queried: tuple[QueriedAccount, ...] = ()
    not_queried: tuple[Unanswered, ...] = ()
    unread: frozenset[str] = frozenset()


def observe_machines(session: Session, *, sweep: bool) -> Snapshot:
    """Sync every account in parallel, record changes, and return what is to be evaluated.

    A sweep also lists disks and images; other runs do only in accounts where the image of a parked machine is not ready
    yet. A sweep lists the regions again; other runs use those of the last day and those of the ledger.
    """
    machines = session.ledger.machines()
    accounts = used_accounts(session)
    unfinished = [
        machine
        for machine in machines
        if has_retained_resources(machine) and machine.parked and not retention_rules.is_parking_complete(machine)
    ]
    with nullcontext() if sweep else session.use_remembered_regions(regions_that_may_cost(machines)):
        sync = sync_accounts(
            session, accounts, retained=sweep or account_names(session, unfinished), retry_after_s=RETRY_AFTER_S
        )
    read_by_id = _query_by_id(session, sync) if sync.unanswered else []
    sync.answered |= {machine.id for machine in read_by_id}
    to_evaluate = living_machines(session.ledger.machines()) + (_retained_images(session) if sweep else [])
    answered = sync.answered | (_queried_resources(session, to_evaluate, sync.unanswered) if sweep else set())
    return Snapshot(
        tuple(to_evaluate),
        answered,
        tuple(sync.foreign),
        tuple(sync.unanswered),
        tuple(sync.sentences),
        sync.queried,
        tuple(sync.not_queried),
        frozenset(sync.unread - account_names(session, read_by_id)),
    )


def _query_by_id(session: Session, sync: SyncResult) -> list[Machine]:
    """Query machines that no listing showed by their ids; return those that were answered.

    They are those of accounts without a listing, which may fail where this works, for example because it has to list
    the regions first; and those that a listing showed without their tags, so that nothing else could end them. An
    account may have another name in the ledger than here.
    """
    nameless_ids = {gap.scope for gap in sync.unanswered}  # of a machine that cannot be read, its provider's id
    machines = [
        machine
        for machine in living_machines(session.ledger.machines())
        if machine.launch_status == "made" and machine.provider_id
    ]
    examples = {(machine.account, machine.identity): machine for machine in machines}  # one of each account
    silent = {account for account, machine in examples.items() if account_names(session, [machine]) & sync.unlisted}
    to_query = [
        machine
        for machine in machines
        if (machine.account, machine.identity) in silent or machine.provider_id in nameless_ids
    ]
    errors = sync_some(session, to_query)
    return [machine for machine in to_query if machine.id not in errors]


def observe_dry_run(session: Session) -> Snapshot:
    """List the machines of every account for a dry run, and return the snapshot as if that were recorded.

    A machine that is not listed counts as not answered. Disks and images are not listed.
    """
    machines, now = session.ledger.machines(), session.clock()
    accounts = used_accounts(session)
    with session.use_remembered_regions(regions_that_may_cost(machines)):
        listings = list_accounts(session, accounts)
    living = living_machines(machines)
    scopes = [_account_scope(session, one, listing, living) for one, listing in zip(accounts, listings, strict=True)]
    instances = [instance for listing in listings for instance in listing.instances]
    ledger_id = session.ledger.id
    ours_by_id = _by_machine([instance for instance in instances if instance.tags.get(TAG_LEDGER) == ledger_id])
    covered = covered_ids(living, scopes)
    observed = [
        _with_observation(machine, ours_by_id.get(machine.id) if machine.id in covered else None, now)
        for machine in living
    ]
    unanswered, refused_accounts = split_gaps(session, (gap for listing in listings for gap in listing.unanswered))
    silent_scopes = {gap.scope for gap in (*unanswered, *refused_accounts)}
    unqueried = unqueried_accounts(
        session, [machine for machine in living if machine.account not in silent_scopes], scopes
    )
    unanswered += [gap for gap in unqueried if gap.scope not in silent_scopes]
    recorded = {machine.id for machine in machines}
    return Snapshot(
        machines=tuple(machine for machine in observed if machine.terminated_at is None),
        answered=covered & ours_by_id.keys(),
        foreign=tuple(instance for instance in instances if instance.tags.get(TAG_LEDGER) != ledger_id),
        unanswered=tuple(unanswered),
        sentences=tuple(
            f"{id_} is in no record here; the next run of reap records it"
            for id_, instance in ours_by_id.items()
            if id_ not in recorded and instance.state is not State.TERMINATED
        ),
        queried=queried_accounts(session, accounts, refused_accounts),
        not_queried=tuple(refused_accounts),
    )


def _account_scope(session: Session, account: str, listing: Listing, machines: Sequence[Machine]) -> AccountScope:
    """Return the account of a listing; its identity is queried if it may have machines."""
    scope = AccountScope(session, account)
    scope.record(listing.identities)
    return scope.query_for(machines)


def _retained_images(session: Session) -> list[Machine]:
    """Return the parked machines that have an image, and the named images."""
    parked = [
        machine
        for machine in session.ledger.machines()
        if has_retained_resources(machine) and retention_rules.is_parking_complete(machine)
    ]
    return parked + [image for image in named_resources(session.ledger) if image.state == Kind.IMAGE]


def _queried_resources(session: Session, machines: Sequence[Machine], unanswered: Sequence[Unanswered]) -> set[str]:
    """Return the ids of retained resources in accounts and regions that answered the sweep."""
    silent_scopes = {gap.scope for gap in unanswered}
    resources = [machine for machine in machines if machine.is_named_resource or machine.terminated_at is not None]
    by_name, _ = by_account(session, [machine for machine in resources if machine.name not in silent_scopes])
    return {
        machine.id
        for name, group in by_name.items()
        for machine in group
        if not is_in_unanswered(silent_scopes, name, machine.region)
    }


def _by_machine(instances: Sequence[Instance]) -> dict[str, Instance]:
    """Return one instance per cloudgpu-id, the living before the ended."""
    return {
        instance.tags[TAG_ID]: instance
        for instance in sorted(instances, key=lambda instance: instance.state is not State.TERMINATED)
    }


def _with_observation(machine: Machine, instance: Instance | None, now: datetime) -> Machine:
    """Return the machine as its record would be once the listed state is recorded."""
    if instance is None or machine.launch_status == "open" or not differs_from_record(machine, instance):
        return machine
    return project_event(machine, instance_observed(instance, now, machine=machine))


SSH_TIMEOUT_S = 10.0


def machine_views(
    session: Session,
    machines: Sequence[Machine],
    policies: Mapping[str, ChosenPolicy],
    answered: Collection[str],
    *,
    store: bool = True,
) -> tuple[list[MachineView], dict[str, Report]]:
    """Return the view of each machine and the agents' answers; `store`: write these to disk.

    Only machines that could be idle are queried: one that runs long enough, is not held, has not reported itself as in
    use, and whose policy ends idle machines or whose lease is near its end. First its provider is queried, if only that
    has its self-reported activity; then, if that does not decide it, the machine over SSH.
    """
    views = [
        view_without_report(machine, policies[machine.id], answered=machine.id in answered) for machine in machines
    ]
    now = session.clock()
    to_query = to_ask(views, now)
    answers = ask_activity(session, to_query, store=store)
    if answers:
        views = [with_last_use_at_provider(view, answers.get(view.machine.id)) for view in views]
        to_query = to_ask(views, now)
    reports = probe_twice(session, to_query, store=store)
    results = [with_report(view, reports.get(view.machine.id)) for view in views] if reports else views
    results = (
        [with_provider_fault(result, answers.get(result.machine.id)) for result in results] if answers else results
    )
    return with_cluster_activity(results, now), reports


def probe_twice(session: Session, machines: Sequence[Machine], *, store: bool = True) -> dict[str, Report]:
    """Query each machine's agent; again if a warned machine did not answer, as its end waits for that answer.

    Other machines without an answer are queried by the next run, since each try takes its time. Both tries together
    have the timeout of one.
    """
    started_s = time.monotonic()
    reports = probe(session, machines, timeout_s=SSH_TIMEOUT_S, store=store)
    remaining_s = SSH_TIMEOUT_S - (time.monotonic() - started_s)
    warned_names = {command_name(machine) for machine in machines if Rule.IDLE in machine.warnings}
    waiting = [
        machine
        for machine in machines
        if reports[machine.id].machine_now is None and command_name(machine) in warned_names
    ]
    return reports | (
        probe(session, waiting, timeout_s=remaining_s, store=store) if waiting and remaining_s >= 1 else {}
    )


def view_without_report(machine: Machine, chosen: ChosenPolicy, *, answered: bool = True) -> MachineView:
    """Return the view of a machine by its record; `answered`: its provider has answered for it."""
    last_active = from_iso(machine.last_active) if machine.last_active else None
    return MachineView(machine, chosen.policy, chosen.why, last_active=last_active, answered=answered)


def store_new_samples(session: Session, machines: Sequence[Machine]) -> int:
    """Fetch and store the new samples of these machines; return how many had some.

    Runs do not query a machine in use, and its agent keeps samples for a day: so a nightly run (a sweep) fetches them.
    Raises nothing.
    """
    running = [
        machine
        for machine in machines
        if machine.state == State.RUNNING and machine.terminated_at is None and machine.address
    ]
    return sum(report.machine_now is not None for report in probe(session, running).values())


REAPER_LOCK = "reaper"
Decide = Callable[
    [Sequence[MachineView], Sequence[Machine]], list[Decision]
]  # decides on views, given all nodes of their clusters


def cluster_nodes(session: Session, views: Sequence[MachineView], *, include_locked: bool = True) -> list[Machine]:
    """Return all nodes of the clusters of these machines by the ledger, ended ones too.

    Without `include_locked`, not of a cluster that a running command has locked: it may still be launching.
    """
    cluster_ids = {view.machine.cluster.id for view in views if view.machine.cluster is not None}
    if not cluster_ids:
        return []
    machines = [
        machine
        for machine in session.ledger.machines()
        if machine.cluster is not None and machine.cluster.id in cluster_ids
    ]
    if include_locked:
        return machines
    locked_names = {name for name in map(lock_of, machines) if session.is_locked(name)}
    return [machine for machine in machines if lock_of(machine) not in locked_names]


@contextmanager
def lock_each(session: Session, items: Sequence[EndItem]) -> Iterator[tuple[list[EndItem], list[NotEnded]]]:
    """Take the machines' locks without waiting; yield those that are locked, and those that somebody else has locked.

    Machines of one request share a lock.
    """
    with ExitStack() as locks:
        is_held: dict[str, bool] = {}
        for item in items:
            name = lock_of(item.machine)
            if name not in is_held:
                is_held[name] = _try_lock(session, name, locks)
        locked = [item for item in items if is_held[lock_of(item.machine)]]
        yield locked, [busy(item) for item in items if not is_held[lock_of(item.machine)]]


def _try_lock(session: Session, name: str, locks: ExitStack) -> bool:
    try:
        locks.enter_context(session.lock(name, wait=False))
    except LockBusy:
        return False
    return True


def split_by_current_record(
    session: Session, items: Sequence[EndItem], decide: Decide
) -> tuple[list[EndItem], Outcome]:
    """Decide again by the current records; return the machines still to be ended, and the outcome of the others.

    Between the sync and the lock somebody may have held a machine, extended its lease, or ended it.
    """
    views = [replace(item.view, machine=session.ledger.machine(item.id) or item.machine) for item in items]
    nodes = cluster_nodes(session, views)
    decided = zip(items, views, decide(views, nodes), strict=True)
    return split_ends([replace(item, view=view, decision=decision) for item, view, decision in decided], nodes)


def recheck(session: Session, items: Sequence[EndItem], decide: Decide) -> tuple[list[EndItem], Outcome]:
    """Return the machines that are still to be ended after another sync, and the outcome of the others."""
    outcome, now = Outcome(), session.clock()
    fresh_views = _recheck_views(session, items, outcome)
    nodes = cluster_nodes(session, fresh_views)
    rechecked = [
        EndItem(one, decision, now) for one, decision in zip(fresh_views, decide(fresh_views, nodes), strict=True)
    ]
    ends, outcome_of_others = split_ends(rechecked, nodes)
    outcome.add(outcome_of_others)
    return ends, outcome


def _recheck_views(session: Session, items: Sequence[EndItem], outcome: Outcome) -> list[MachineView]:
    """Return the current views of the machines that answered again; the others go into `outcome`."""
    living = [item for item in items if item.machine.terminated_at is None and not item.machine.is_named_resource]
    sync_errors = sync_some(session, [item.machine for item in living])
    retried = [
        item.machine
        for item in living
        if item.id in sync_errors and not isinstance(sync_errors[item.id], AnswerTimeout)
    ]
    if retried:
        session.pause(RETRY_AFTER_S)
        retried_ids = {machine.id for machine in retried}
        sync_errors = {one: error for one, error in sync_errors.items() if one not in retried_ids} | sync_some(
            session, retried
        )
    outcome.unanswered += [
        Unanswered(item.machine.name, sync_errors[item.id].message) for item in living if item.id in sync_errors
    ]
    remaining = [item for item in items if item.id not in sync_errors]
    machines = {item.id: session.ledger.machine(item.id) or item.machine for item in remaining}
    running = [
        machine for machine in machines.values() if machine.state == State.RUNNING and machine.terminated_at is None
    ]
    reports = probe_twice(session, running) if running else {}
    if reports:
        _record_traffic(session, machines, reports)
    return [with_report(with_machine(item.view, machines[item.id]), reports.get(item.id)) for item in remaining]


def _record_traffic(session: Session, machines: Mapping[str, Machine], reports: Mapping[str, Report]) -> None:
    """Record the egress that the machines' counters show, before they end; an invalid count is ignored."""
    for machine, report in reports.items():
        if report.answer is not None:
            with suppress(ValueError, KeyError, TypeError):
                record_traffic(session, machines[machine], report.answer)
