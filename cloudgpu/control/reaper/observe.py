"""Gathers a run's inputs: each machine's record and policy, and the agent's answer if it could be idle.

A run looks at all accounts and writes what is news; a rehearsal looks and writes nothing. What is to be ended is looked
at again, under its lock: what its provider says now, and its samples of now.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from cloudgpu.control.activity.agents import ask_activity, probe
from cloudgpu.control.inventory.sync import sync_accounts
from cloudgpu.control.inventory.sync_accounts import list_accounts
from cloudgpu.control.inventory.sync_some import sync_some
from cloudgpu.control.pricing.traffic import record_traffic
from cloudgpu.control.session.accounts import queried_accounts, split_gaps, used_accounts
from cloudgpu.control.session.base import account_names
from cloudgpu.control.session.identity import AccountScope, by_account, covered_ids, unqueried_accounts
from cloudgpu.control.session.session import Session, living_machines
from cloudgpu.core.activity.report import Report
from cloudgpu.core.events.observations import instance_observed, is_news
from cloudgpu.core.events.projection import project_event
from cloudgpu.core.model.identity import QueriedAccount, Unanswered, is_in_unanswered, regions_that_may_cost
from cloudgpu.core.model.instances import TAG_ID, TAG_LEDGER, Instance, Listing, State
from cloudgpu.core.model.machine import Machine, command_name, has_retained_resources
from cloudgpu.core.model.resources import Kind
from cloudgpu.core.policies.policy import Rule
from cloudgpu.core.reaper.clusters import with_cluster_activity
from cloudgpu.core.reaper.decisions import Decision, MachineView
from cloudgpu.core.reaper.result import EndItem, NotEnded, Outcome, busy, lock_of, split_ends
from cloudgpu.core.reaper.seen import to_ask, with_report, with_row, with_silence, with_word
from cloudgpu.core.resources import retention as retention_rules
from cloudgpu.core.values.times import from_iso
from cloudgpu.errors import LedgerUnavailable, ProviderUnavailable, Silent

if TYPE_CHECKING:
    from cloudgpu.config.policies.chosen import ChosenPolicy

RETRY_AFTER_S = 2.0  # what did not answer is asked once more in the same run: the next one is ten minutes of bill away


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a sync has found: the rows that a run judges, and by id which of them a provider has just spoken of.

    `foreign` are machines of other ledgers. `sentences` say what was put right. `queried` are the accounts that were
    asked; `not_queried` are those that only a credential on this computer names, and that it does not open.
    """

    rows: tuple[Machine, ...]
    answered: Collection[str]
    foreign: tuple[Instance, ...] = ()
    unanswered: tuple[Unanswered, ...] = ()
    sentences: tuple[str, ...] = ()
    queried: tuple[QueriedAccount, ...] = ()
    not_queried: tuple[Unanswered, ...] = ()


def observe_machines(session: Session, *, sweep: bool) -> Snapshot:
    """Ask every account, side by side, write what is news, and return what is to be judged.

    A sweep asks for disks and images, too; else only accounts where the image of a parked machine is not made yet. A
    sweep asks anew which regions there are; other runs go by those of the last day and by those of the ledger.
    """
    machines = session.ledger.machines()
    accounts = used_accounts(session)
    unfinished = [
        machine
        for machine in machines
        if has_retained_resources(machine) and machine.parked and not retention_rules.is_parked(machine)
    ]
    remembered = nullcontext() if sweep else session.use_remembered_regions(regions_that_may_cost(machines))
    with remembered:
        sync = sync_accounts(
            session, accounts, retained=sweep or account_names(session, unfinished), retry_after_s=RETRY_AFTER_S
        )
    if sync.unlisted:
        sync.answered |= _query_unlisted(session, sync.unlisted)
    to_judge = living_machines(session.ledger.machines()) + (_retained_images(session) if sweep else [])
    answered = sync.answered | (_queried_resources(session, to_judge, sync.unanswered) if sweep else set())
    return Snapshot(
        tuple(to_judge),
        answered,
        tuple(sync.foreign),
        tuple(sync.unanswered),
        tuple(sync.sentences),
        sync.queried,
        tuple(sync.not_queried),
    )


def _query_unlisted(session: Session, unlisted: Collection[str]) -> set[str]:
    """Ask accounts that were silent for their machines by the ids; return those of which something is known now.

    A listing needs more than a machine's own region: which regions there are, say.
    """
    machines = [machine for machine in living_machines(session.ledger.machines()) if machine.account in unlisted]
    asked = [machine for machine in machines if machine.launch_status == "made" and machine.provider_id]
    unknown = sync_some(session, asked)
    return {machine.id for machine in asked if machine.id not in unknown}


def rehearse(session: Session) -> Snapshot:
    """Ask every account what there is and write nothing: the rows are as if it were written.

    What is not in an answer counts as not answered; what disks and images there are, is not asked.
    """
    known, now = session.ledger.machines(), session.clock()
    accounts = used_accounts(session)
    with session.use_remembered_regions(regions_that_may_cost(known)):
        listings = list_accounts(session, accounts)
    living = living_machines(known)
    scopes = [_account_scope(session, one, listing, living) for one, listing in zip(accounts, listings, strict=True)]
    instances = [one for listing in listings for one in listing.instances]
    ledger = session.ledger.id
    ours = _by_machine([one for one in instances if one.tags.get(TAG_LEDGER) == ledger])
    reached = covered_ids(living, scopes)
    views = tuple(
        _with_observation(machine, ours.get(machine.id) if machine.id in reached else None, now)
        for machine in living_machines(known)
    )
    unanswered, closed = split_gaps(session, (gap for listing in listings for gap in listing.unanswered))
    silent = {gap.scope for gap in (*unanswered, *closed)}
    unqueried = unqueried_accounts(
        session, [machine for machine in living_machines(known) if machine.account not in silent], scopes
    )
    unanswered += [gap for gap in unqueried if gap.scope not in silent]
    strays = [f"{one} is in no record here; the next run of reap records it" for one in _unrecorded_ids(ours, known)]
    return Snapshot(
        rows=tuple(machine for machine in views if machine.terminated_at is None),
        answered=reached & ours.keys(),
        foreign=tuple(one for one in instances if one.tags.get(TAG_LEDGER) != ledger),
        unanswered=tuple(unanswered),
        sentences=tuple(strays),
        queried=queried_accounts(session, accounts, closed),
        not_queried=tuple(closed),
    )


def _account_scope(session: Session, account: str, listing: Listing, machines: Sequence[Machine]) -> AccountScope:
    """Return the account of a listing; its identity is queried if it may have machines."""
    scope = AccountScope(session, account)
    scope.record(listing.identities)
    return scope.query_for(machines)


def _retained_images(session: Session) -> list[Machine]:
    """Return what is kept as an image: of machines that are gone, and by name."""
    machines = [
        machine
        for machine in session.ledger.machines()
        if has_retained_resources(machine) and retention_rules.is_parked(machine)
    ]
    resources = [
        machine
        for machine in session.ledger.billable_machines()
        if machine.is_named_resource and machine.terminated_at is None
    ]
    return machines + [machine for machine in resources if machine.state == Kind.IMAGE]


def _queried_resources(session: Session, machines: Sequence[Machine], unanswered: Sequence[Unanswered]) -> set[str]:
    """Return the ids of retained resources in accounts and regions that answered the full run."""
    silent = {gap.scope for gap in unanswered}
    resources = [machine for machine in machines if machine.is_named_resource or machine.terminated_at is not None]
    here, _ = by_account(session, [machine for machine in resources if machine.name not in silent])
    return {
        machine.id
        for name, some in here.items()
        for machine in some
        if not is_in_unanswered(silent, name, machine.region)
    }


def _by_machine(instances: Sequence[Instance]) -> dict[str, Instance]:
    """Return one instance per cloudgpu-id, the living before the ended."""
    ordered = sorted(instances, key=lambda one: one.state is not State.TERMINATED)
    return {one.tags[TAG_ID]: one for one in ordered}


def _with_observation(machine: Machine, instance: Instance | None, now: datetime) -> Machine:
    if instance is None or machine.launch_status == "open" or not is_news(machine, instance):
        return machine
    return project_event(machine, instance_observed(instance, now, machine=machine))


def _unrecorded_ids(ours: Mapping[str, Instance], machines: list[Machine]) -> list[str]:
    recorded = {machine.id for machine in machines}
    return [one for one, instance in ours.items() if one not in recorded and instance.state is not State.TERMINATED]


SSH_TIMEOUT_S = 10.0  # over SSH


def machine_views(
    session: Session,
    machines: Sequence[Machine],
    policies: Mapping[str, ChosenPolicy],
    answered: Collection[str],
    *,
    store: bool = True,
) -> tuple[list[MachineView], dict[str, Report]]:
    """Return the view of each machine and the agents' answers; `store`: write these to disk.

    Asked are machines that could be idle: one that runs long enough, is not held, has not reported itself as in use,
    and whose policy ends idle machines or whose lease is near its end. First its provider is asked, where only that
    knows its self-reported activity; then, if that does not decide it, the machine over SSH.
    """
    views = [
        _view_without_report(machine, policies[machine.id], answered=machine.id in answered) for machine in machines
    ]
    now = session.clock()
    asked = to_ask(views, now)
    answers = ask_activity(session, asked, store=store)
    if answers:
        views = [with_word(one, answers.get(one.machine.id)) for one in views]
        asked = to_ask(views, now)
    reports = probe_twice(session, asked, store=store)
    results = [with_report(one, reports.get(one.machine.id)) for one in views] if reports else views
    results = [with_silence(one, answers.get(one.machine.id)) for one in results] if answers else results
    return with_cluster_activity(results, now), reports


def probe_twice(session: Session, machines: Sequence[Machine], *, store: bool = True) -> dict[str, Report]:
    """Query each machine's agent; again if a warned machine did not answer, as its end waits for that answer.

    Another machine that said nothing is asked by the next run: a dead one costs its time at every try. Both tries have
    the time of one.
    """
    started = time.monotonic()
    reports = probe(session, machines, timeout_s=SSH_TIMEOUT_S, store=store)
    remaining = SSH_TIMEOUT_S - (time.monotonic() - started)
    warned = {command_name(machine) for machine in machines if Rule.IDLE in machine.warnings}
    waiting = [
        machine for machine in machines if reports[machine.id].machine_now is None and command_name(machine) in warned
    ]
    return reports | (probe(session, waiting, timeout_s=remaining, store=store) if waiting and remaining >= 1 else {})


def _view_without_report(machine: Machine, chosen: ChosenPolicy, *, answered: bool) -> MachineView:
    last_active = from_iso(machine.last_active) if machine.last_active else None
    return MachineView(machine, chosen.policy, chosen.why, last_active=last_active, answered=answered)


def gather(session: Session, machines: Sequence[Machine]) -> int:
    """Fetch and store the new samples of these machines; return how many had some.

    A machine in use is asked by no run, and its agent forgets after a day: so a run a night gathers. Raises nothing.
    """
    running = [
        machine
        for machine in machines
        if machine.state == State.RUNNING and machine.terminated_at is None and machine.address
    ]
    return sum(one.machine_now is not None for one in probe(session, running).values())


LOCK = "reaper"
Judge = Callable[[Sequence[MachineView], Sequence[Machine]], list[Decision]]  # by all rows of the clusters among them


def cluster_nodes(session: Session, views: Sequence[MachineView], *, at_work: bool = True) -> list[Machine]:
    """Return the ledger's rows of all nodes of the clusters of these machines, those that have ended, too.

    Without `at_work`, not of a cluster on which a command works: that its launch is not whole yet is no news then.
    """
    wanted = {one.machine.cluster.id for one in views if one.machine.cluster is not None}
    if not wanted:
        return []
    machines = [
        machine for machine in session.ledger.machines() if machine.cluster is not None and machine.cluster.id in wanted
    ]
    if at_work:
        return machines
    locks = {lock_of(machine) for machine in machines}
    busy = {name for name in locks if session.is_locked(name)}
    return [machine for machine in machines if lock_of(machine) not in busy]


@contextmanager
def lock_each(session: Session, items: Sequence[EndItem]) -> Iterator[tuple[list[EndItem], list[NotEnded]]]:
    """Hold the machines' locks; yield those that are held, and those on which somebody else is at work. Waits for none.

    Machines of one request share a lock.
    """
    with ExitStack() as locks:
        held: dict[str, bool] = {}
        for item in items:
            name = lock_of(item.machine)
            if name not in held:
                held[name] = _is_locked(session, name, locks)
        mine = [item for item in items if held[lock_of(item.machine)]]
        yield mine, [busy(item) for item in items if not held[lock_of(item.machine)]]


def _is_locked(session: Session, name: str, locks: ExitStack) -> bool:
    try:
        locks.enter_context(session.lock(name, wait=False))
    except LedgerUnavailable:
        raise
    except ProviderUnavailable:
        return False
    return True


def split_still_to_end(session: Session, items: Sequence[EndItem], judge: Judge) -> tuple[list[EndItem], Outcome]:
    """Judge these machines once more by their rows of now; return those that are still to be ended, and the others.

    Between a sync and the lock somebody may have held a machine, extended its lease, or ended it.
    """
    latest = [replace(item.seen, machine=session.ledger.machine(item.id) or item.machine) for item in items]
    rows = cluster_nodes(session, latest)
    decisions = judge(latest, rows)
    judged = [replace(item, seen=seen, decision=one) for item, seen, one in zip(items, latest, decisions, strict=True)]
    return split_ends(judged, rows)


def recheck(session: Session, items: Sequence[EndItem], judge: Judge) -> tuple[list[EndItem], Outcome]:
    """Return those that are still to be ended, by a sync of now, and what came of the others."""
    outcome, now = Outcome(), session.clock()
    fresh = _recheck_views(session, items, outcome)
    rows = cluster_nodes(session, fresh)
    rechecked = [EndItem(one, decision, now) for one, decision in zip(fresh, judge(fresh, rows), strict=True)]
    ends, others = split_ends(rechecked, rows)
    outcome.add(others)
    return ends, outcome


def _recheck_views(session: Session, items: Sequence[EndItem], outcome: Outcome) -> list[MachineView]:
    """Return what is known now of those that answered again; the others are named, and left alone."""
    living = [one for one in items if one.machine.terminated_at is None and not one.machine.is_named_resource]
    silent = sync_some(session, [one.machine for one in living])
    retried = [one.machine for one in living if one.id in silent and not isinstance(silent[one.id], Silent)]
    if retried:
        session.pause(RETRY_AFTER_S)
        asked = {machine.id for machine in retried}
        silent = {one: fault for one, fault in silent.items() if one not in asked} | sync_some(session, retried)
    outcome.unanswered += [Unanswered(one.machine.name, silent[one.id].message) for one in living if one.id in silent]
    remaining = [one for one in items if one.id not in silent]
    machines = {one.id: session.ledger.machine(one.id) or one.machine for one in remaining}
    running = [
        machine for machine in machines.values() if machine.state == State.RUNNING and machine.terminated_at is None
    ]
    reports = probe_twice(session, running) if running else {}
    if reports:
        _count_traffic(session, machines, reports)
    return [with_report(with_row(one.seen, machines[one.id]), reports.get(one.id)) for one in remaining]


def _count_traffic(session: Session, machines: Mapping[str, Machine], reports: Mapping[str, Report]) -> None:
    """Write the bytes out that the machines' counters show, before they end; what one says wrongly ends no run."""
    for machine, report in reports.items():
        if report.answer is not None:
            with suppress(ValueError, KeyError, TypeError):
                record_traffic(session, machines[machine], report.answer)
