"""Starts stopped machines: their new lease, its admission by budgets, and the call itself."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from datetime import datetime, timedelta

from cloudgpu.control.budgets.admission import append_if_admitted, check_credit, read_credit, sync_before_admission
from cloudgpu.control.inventory.sync import refresh
from cloudgpu.control.lifecycle import timers
from cloudgpu.control.lifecycle.lifecycle import (
    admit_all,
    lease_event,
    lock_machine,
    resolve_launch,
    start_refused_event,
    stoppable_provider,
)
from cloudgpu.control.policies.resolve import check_renewable, lifetime_of_start, limits_of, policy_of
from cloudgpu.control.pricing.price_history import configuration_of, start_price_events
from cloudgpu.control.session.guarding import check_start_guarded, without_waiver
from cloudgpu.control.session.session import Session
from cloudgpu.control.team.authorization import check_override, check_right_and_claim_owner, requester_record
from cloudgpu.core.budgets.refusal import Remedy, shorter_launch
from cloudgpu.core.clusters.completeness import partly_started
from cloudgpu.core.events.log import Draft
from cloudgpu.core.events.machine_events import requested
from cloudgpu.core.events.observations import not_before
from cloudgpu.core.launch.limit_checks import lease_within_limits
from cloudgpu.core.launch.plan import Lease
from cloudgpu.core.launch.plan_cost import as_running
from cloudgpu.core.model.facts import HourlyPrice
from cloudgpu.core.model.machine import Machine, billed_text, command_name, not_none, sync_subject_of
from cloudgpu.core.policies.description import schedule_notes
from cloudgpu.core.policies.guards import depends_on_reaper
from cloudgpu.core.values.times import from_iso
from cloudgpu.errors import (
    AuthFailed,
    CloudgpuError,
    InvalidRequest,
    LedgerUnavailable,
    NoCapacity,
    ProviderUnavailable,
    QuotaExceeded,
)
from cloudgpu.ledger.log.base import View
from cloudgpu.providers.abilities import Taggable
from cloudgpu.providers.base import Provider
from cloudgpu.underway import on_abort
from cloudgpu.views.ended import ended_error

UP_STATES = ("running", "pending")  # a machine in one of these needs no start


def new_lease(
    session: Session, machine: Machine, length: timedelta | None, renewable_for: timedelta | None = None
) -> Lease:
    """Return the lease of a start now: `length` long (or as its policy says), renewable for as long as at its launch.

    Not for as long as the policy says now: a start gives a machine no longer life than its launch did, unless `length`
    or `renewable_for` does. Raises InvalidRequest where `length` is None and the machine's policy cannot be read any
    more, for a `renewable_for` shorter than `length`, and for one of them beyond the lab's limits.
    """
    now = session.clock().replace(microsecond=0)
    requested = _requested_lease(session, machine, length, renewable_for, now)
    return lease_within_limits(
        requested, now, limits_of(session), typed=(length is not None, renewable_for is not None)
    )


def _requested_lease(
    session: Session, machine: Machine, length: timedelta | None, renewable_for: timedelta | None, now: datetime
) -> Lease:
    """Return the lease that is asked for, before the lab's limits shorten it."""
    if renewable_for is not None:
        lease_length = length or min(lifetime_of_start(session, machine, None).lease, renewable_for)
        check_renewable(lease_length, renewable_for)
        return Lease(now + lease_length, now + renewable_for)
    renewable_for_at_launch = timedelta(seconds=machine.renew_s) if machine.renew_s else None
    if length is not None and renewable_for_at_launch is not None:
        return Lease(now + length, now + max(length, renewable_for_at_launch))
    policy_lifetime = lifetime_of_start(session, machine, length)
    renewable_length = renewable_for_at_launch or policy_lifetime.renew_until
    return Lease(now + min(policy_lifetime.lease, renewable_length), now + renewable_length)


def start(
    session: Session, machine: Machine, lease: Lease, *, override: str | None = None, no_guard: bool = False
) -> Machine:
    """Start a stopped machine under a new lease and return the machine once the start is accepted.

    Raises InvalidRequest for a machine that cannot be started, InstanceNotFound for one that is gone, BudgetRefused
    where a budget does not admit it; `override` is the reason to pass it. RoleNeeded where the user may not start it.
    InvalidRequest, unless `no_guard`, where only scheduled runs of the reaper can end it and there are none.
    """
    check_start(session, [machine], override)
    with lock_machine(session, machine), on_abort(interrupted_start_text(machine, machine.name)):
        latest = refresh_to_start(session, machine)
        if latest.state in UP_STATES:  # also a parked machine whose restore was interrupted
            session.report(f"{machine.name} is {latest.state} already; extend makes its lease longer")
            return cancel_pending_end(session, latest)
        admit_start(session, [latest], lease, override, no_guard=no_guard)
        return start_locked(session, latest, lease)


def check_start(session: Session, machines: Sequence[Machine], override: str | None) -> None:
    """Raise what `start` raises before it asks a provider, for all machines that are started together."""
    for machine in machines:
        check_right_and_claim_owner(session, machine, "start")
    check_override(session, override)
    session.check_launchable()
    sync_before_admission(session, {}, lambda budget: any(budget.scope.covers(machine) for machine in machines))


def interrupted_start_text(machine: Machine, name: str) -> str:
    """Return the message for an interrupted start of `name`, a machine or cluster; `machine` is one that it starts."""
    billed_clause = billed_text(machine, ", and billed")
    return f"{name} may be starting{billed_clause}. cloudgpu start {name} continues; cloudgpu stop {name} stops it."


def refresh_to_start(session: Session, machine: Machine) -> Machine:
    """Refresh a machine that is to be started and return it; raise InstanceNotFound where it has ended.

    The caller holds the machine's lock, as for all of a start but `check_start`.
    """
    latest = refresh(session, resolve_launch(session, machine))
    if latest.terminated_at:
        raise ended_error(latest, session.clock())
    return latest


def admit_start(
    session: Session,
    machines: Sequence[Machine],
    lease: Lease,
    override: str | None,
    *,
    no_guard: bool = False,
    running_nodes: Sequence[Machine] = (),
) -> None:
    """Record the requested starts of these machines, if the budgets admit all of them at the prices of now.

    `running_nodes` are other nodes of their cluster: the same write withdraws a requested stop or end of them. Nodes
    that an interrupted start has started count to this start, too. Raises InvalidRequest where nothing would end one of
    them, unless `no_guard`, and where the host of one leaves before the lease ends.
    """
    if not no_guard:
        check_start_guarded(session, machines)
    now, interrupted_start = session.clock(), partly_started([*running_nodes, *machines])
    machines_to_start, events = list[Machine](), withdrawal_events(session, running_nodes)
    if interrupted_start is not None:
        events += [_start_event(session, node, now, running=True) for node in interrupted_start.just_started]
    for machine in machines:
        provider = stoppable_provider(session, machine)
        timers.check_host_available_until(session, machine, lease.expires)
        for sentence in schedule_notes(policy_of(session, machine).policy, machine, now):
            session.report(f"{machine.name}: {sentence}")
        price_events, requester = _price_events(session, machine, provider), requester_record(session, machine, "start")
        machines_to_start.append(_with_price(as_running(machine, lease.renew_until), price_events))
        events += [
            lease_event(machine, lease, "start", now, who=requester),
            *price_events,
            # Waived only where it matters: nothing but a scheduled run of the reaper could end this machine.
            _start_event(session, machine, now, waived=no_guard and depends_on_reaper(without_waiver(machine))),
        ]
    provider = session.provider_of(machines[0])
    credit, lease_length, credit_subject = read_credit(provider), lease.expires - now, sync_subject_of(machines[0])

    def build_events(view: View) -> Sequence[Draft]:
        check_credit(session, view, credit, machines_to_start, credit_subject, lease_length)
        return [*events, *admit_all(session, view, machines_to_start, override)]

    shorter_command = shorter_launch(now, lease.expires - now, f"cloudgpu start {command_name(machines[0])}")
    append_if_admitted(session, build_events, Remedy(shorter_command))


def withdrawal_events(session: Session, running_nodes: Sequence[Machine]) -> list[Draft]:
    """Return the events that withdraw a requested stop or end of those of these running machines that have one."""
    return [
        _start_event(
            session,
            machine,
            time_after_events(session, machine, ("stop_requested", "terminate_requested")),
            running=True,
        )
        for machine in running_nodes
        if machine.pending_action == "stop" or machine.discard
    ]


def cancel_pending_end(session: Session, machine: Machine) -> Machine:
    """Withdraw the requested stop or end of a machine, and report that; return the machine.

    That of a cluster's node is not withdrawn alone.
    """
    machine = session.ledger.machine(machine.id) or machine
    if machine.cluster_node is None:
        withdraw_requests(session, [machine])
    return session.ledger.machine(machine.id) or machine


def withdraw_requests(session: Session, running: Sequence[Machine]) -> None:
    """Withdraw the requested stop or end of a running machine, or of all running nodes of a cluster; report that."""
    events = withdrawal_events(session, running)
    if events:
        requested_action = "end" if any(machine.discard for machine in running) else "stop"
        session.report(f"{command_name(running[0])}: its requested {requested_action} is taken back")
        session.ledger.append(events)


def _start_event(
    session: Session, machine: Machine, now: datetime, *, waived: bool = False, running: bool = False
) -> Draft:
    """Return the event of a requested start; `running`: the machine runs, so it withdraws a requested stop or end.

    `waived`: only --no-guard admits it.
    """
    host, requester = platform.node(), requester_record(session, machine, "start")
    return requested("start", machine.id, "asked", now, host=host, who=requester, waived=waived, running=running)


def time_after_events(session: Session, machine: Machine, kinds: Sequence[str]) -> datetime:
    """Return now, or just after the latest event of these kinds where another computer's clock is ahead.

    Events take effect in the order of their times.
    """
    times = (from_iso(event.occurred_at) for event in session.ledger.events(machine.id) if event.kind in kinds)
    now, latest = not_before(machine, session.clock()), max(times, default=None)
    return now if latest is None or now > latest else latest + timedelta(microseconds=1)


def _with_price(machine: Machine, price_events: Sequence[Draft]) -> Machine:
    """Return the machine with the prices of these events, as budgets have to count it."""
    for event in price_events:
        price, on_demand = event.body.get("price"), event.body.get("on_demand")
        machine = machine._replace(
            price=HourlyPrice.of(price) if price else machine.price,
            on_demand=HourlyPrice.of(on_demand) if on_demand else machine.on_demand,
        )
    return machine


def start_locked(session: Session, machine: Machine, lease: Lease) -> Machine:
    """Start a machine whose start was admitted, and return the machine once that is accepted."""
    provider = stoppable_provider(session, machine)
    session.report(f"{machine.name}: starting")
    try:
        if isinstance(provider, Taggable):
            provider.tag(not_none(machine.provider_id), lease.tags())
        timers.move_timer_before_start(session, session.ledger.machine(machine.id) or machine)
    except CloudgpuError:
        session.ledger.append([start_refused_event(session, machine)])
        raise
    try:
        provider.start(machine.provider_id)
    except (NoCapacity, QuotaExceeded, AuthFailed, InvalidRequest) as error:
        session.ledger.append([start_refused_event(session, machine)])
        if isinstance(error, NoCapacity):
            error.next = error.next or "Try again later: its disk remains. Or launch another machine: cloudgpu up --new"
        raise
    except ProviderUnavailable as error:
        machine = _refresh_after_start(session, machine, error)
        if machine.state not in UP_STATES:
            raise
    else:
        machine = _refresh_after_start(session, machine)
    return timers.ensure_timer(session, machine, "start")


def _refresh_after_start(session: Session, machine: Machine, error: ProviderUnavailable | None = None) -> Machine:
    """Refresh the machine after a start; without an answer, raise an error with a remedy.

    `error` is that of a start without an answer, which is raised then; None: the start was accepted.
    """
    remedy = f"It may be running{billed_text(machine, ', and billed')}. Run: cloudgpu show {machine.name} --refresh"
    if error is not None:
        error.next = remedy
    try:
        return refresh(session, machine)
    except ProviderUnavailable as silence:
        if error is not None:
            raise error from None
        if not isinstance(silence, LedgerUnavailable):
            silence.next = remedy
        raise


def _price_events(session: Session, machine: Machine, provider: Provider) -> list[Draft]:
    """Return the event of the current price, where it differs from the price in force."""
    from cloudgpu.providers.attached_costs import discounted_prices

    now = session.clock()
    (price,) = discounted_prices(provider, [configuration_of(machine)], session.settings.discounts, now)
    return [] if price is None else start_price_events(session, machine, price, now)
