"""Starts stopped machines: their lease of now, what budgets say of it, and the call itself."""

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
    not_started,
    pausable,
    resolve_launch,
)
from cloudgpu.control.policies.resolve import check_renewable, lifetime_of_start, limits_of, policy_of
from cloudgpu.control.pricing.price_history import item_of_machine, start_price_events
from cloudgpu.control.session.guarding import check_start_guarded, without_waiver
from cloudgpu.control.session.session import Session
from cloudgpu.control.team.authorization import by, check_may, check_override
from cloudgpu.core.budgets.refusal import Remedy, shorter_launch
from cloudgpu.core.clusters.completeness import partly_started
from cloudgpu.core.events.log import Draft
from cloudgpu.core.events.machine_lines import requested
from cloudgpu.core.events.observations import not_before
from cloudgpu.core.launch.limit_checks import start_within
from cloudgpu.core.launch.plan import Lease
from cloudgpu.core.launch.plan_cost import row_until
from cloudgpu.core.model.facts import HourlyPrice
from cloudgpu.core.model.machine import Machine, billed_text, command_name, not_none, scope_of_machine
from cloudgpu.core.policies.description import off_now
from cloudgpu.core.policies.guards import needs_runs
from cloudgpu.core.values.times import from_iso
from cloudgpu.errors import AuthFailed, CloudgpuError, InvalidRequest, NoCapacity, ProviderUnavailable, QuotaExceeded
from cloudgpu.ledger.log.base import View
from cloudgpu.providers.abilities import Taggable
from cloudgpu.providers.base import Provider
from cloudgpu.underway import on_abort
from cloudgpu.views.ended import ended_error

UP_STATES = ("running", "pending")


def new_lease(session: Session, machine: Machine, span: timedelta | None, renew: timedelta | None = None) -> Lease:
    """Return the lease of a start now: `span` long (or as its policy says), renewable as long as at its launch.

    Not as long as the policy says now: a start gives a machine no longer life than was agreed to, unless `span` or
    `renew` does. Raises InvalidRequest where `span` is None and the machine's policy cannot be read any more, and for
    a `renew` that is shorter than `span`, or one of them beyond the lab's limits.
    """
    now = session.clock().replace(microsecond=0)
    wanted = _requested_lease(session, machine, span, renew, now)
    return start_within(wanted, now, limits_of(session), typed=(span is not None, renew is not None))


def _requested_lease(
    session: Session, machine: Machine, span: timedelta | None, renew: timedelta | None, now: datetime
) -> Lease:
    agreed_s = machine.renew_s
    if renew is not None:
        lease = span or min(lifetime_of_start(session, machine, None).lease, renew)
        check_renewable(lease, renew)
        return Lease(now + lease, now + renew)
    if span is not None and agreed_s:
        return Lease(now + span, now + max(span, timedelta(seconds=agreed_s)))
    policy_lifetime = lifetime_of_start(session, machine, span)
    renewable = timedelta(seconds=agreed_s) if agreed_s else policy_lifetime.renew_until
    return Lease(now + min(policy_lifetime.lease, renewable), now + renewable)


def start(
    session: Session, machine: Machine, lease: Lease, *, override: str | None = None, no_guard: bool = False
) -> Machine:
    """Start a stopped machine under a new lease and return the machine once the start is accepted.

    Raises InvalidRequest for a machine that cannot be started, InstanceNotFound for one that is gone, BudgetRefused
    where a budget does not allow it; `override` says why to pass it. RoleNeeded where it is not theirs to start. Where
    only scheduled runs of the reaper would end it and none is heard, InvalidRequest, unless `no_guard`.
    """
    check_start(session, [machine], override)
    with lock_machine(session, machine), on_abort(may_start_text(machine, machine.name)):
        latest = refresh_to_start(session, machine)
        if latest.state in UP_STATES:  # one that cannot be stopped, too: its comeback was interrupted
            session.report(f"{machine.name} is {latest.state} already; extend makes its lease longer")
            return withdraw_end(session, latest)
        admit_start(session, [latest], lease, override, no_guard=no_guard)
        return start_locked(session, latest, lease)


def check_start(session: Session, machines: Sequence[Machine], override: str | None) -> None:
    """Raise what `start` raises before anything is asked: one decision may be about several machines."""
    for machine in machines:
        check_may(session, machine, "start")
    check_override(session, override)
    session.check_launchable()
    sync_before_admission(session, {}, lambda budget: any(budget.scope.covers(machine) for machine in machines))


def may_start_text(machine: Machine, name: str) -> str:
    """Return what an interruption of the start of `name` leaves; `machine` is one that it starts."""
    billed = billed_text(machine, ", and billed")
    return f"{name} may be starting{billed}. cloudgpu start {name} continues; cloudgpu stop {name} stops it."


def refresh_to_start(session: Session, machine: Machine) -> Machine:
    """Ask a machine's provider and return the machine of now; raise InstanceNotFound where it has ended.

    As all of a start but `check_start`, it is done under the machine's lock, which the caller holds.
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
    """Write that the starts of these machines are asked, where the budgets carry all of them at the prices of now.

    `running_nodes` are other nodes of their cluster: the same write takes back a stop or an end of them that is not
    done yet. Raises InvalidRequest where nothing would end one of them, unless `no_guard`, and where the host of one
    leaves before the lease ends. Those that an interrupted start has started are of this start, too.
    """
    if not no_guard:
        check_start_guarded(session, machines)
    now, interrupted = session.clock(), partly_started([*running_nodes, *machines])
    to_start, lines = list[Machine](), withdraw_requests_events(session, running_nodes)
    if interrupted is not None:
        lines += [_start_event(session, one, now, running=True) for one in interrupted.started]
    for machine in machines:
        provider = pausable(session, machine)
        timers.check_host_stays(session, machine, lease.expires)
        for sentence in off_now(policy_of(session, machine).policy, machine, now):
            session.report(f"{machine.name}: {sentence}")
        prices, who = _new_price(session, machine, provider), by(session, machine, "start")
        to_start.append(_with_price(row_until(machine, lease.renew_until), prices))
        lines += [
            lease_event(machine, lease, "start", now, who=who),
            *prices,
            _start_event(session, machine, now, waived=no_guard and needs_runs(without_waiver(machine))),
        ]
    provider = session.provider_of(machines[0])
    credit, lease_length, scope = read_credit(provider), lease.expires - now, scope_of_machine(machines[0])

    def build_events(view: View) -> Sequence[Draft]:
        check_credit(session, view, credit, to_start, scope, lease_length)
        return [*lines, *admit_all(session, view, to_start, override)]

    until = shorter_launch(now, lease.expires - now, f"cloudgpu start {command_name(machines[0])}")
    append_if_admitted(session, build_events, Remedy(until))


def withdraw_requests_events(session: Session, running_nodes: Sequence[Machine]) -> list[Draft]:
    """Return the lines of a start for those of these machines, which run, whose stop or end is requested, not done."""
    return [
        _start_event(session, one, _after_its_request(session, one), running=True)
        for one in running_nodes
        if one.pending_action == "stop" or one.discard
    ]


def withdraw_end(session: Session, machine: Machine) -> Machine:
    """Take back an end of a machine that was requested and is not done; return it. A cluster's is taken back whole."""
    machine = session.ledger.machine(machine.id) or machine
    if machine.gang is not None or not machine.discard:
        return machine
    return session.ledger.append_to(machine, withdraw_requests_events(session, [machine]))


def _start_event(
    session: Session, machine: Machine, now: datetime, *, waived: bool = False, running: bool = False
) -> Draft:
    host, who = platform.node(), by(session, machine, "start")
    return requested("start", machine.id, "asked", now, host=host, who=who, waived=waived, running=running)


def _after_its_request(session: Session, machine: Machine) -> datetime:
    """Return the time of now, or that of the stop or end requested, where another computer's clock is ahead."""
    kinds = ("stop_requested", "terminate_requested")
    times = [line.occurred_at for line in session.ledger.events(machine.id) if line.kind in kinds]
    return max([not_before(machine, session.clock()), *map(from_iso, times)])


def _with_price(machine: Machine, prices: Sequence[Draft]) -> Machine:
    for line in prices:
        price, on_demand = line.body.get("price"), line.body.get("on_demand")
        machine = machine._replace(
            price=HourlyPrice.of(price) if price else machine.price,
            on_demand=HourlyPrice.of(on_demand) if on_demand else machine.on_demand,
        )
    return machine


def start_locked(session: Session, machine: Machine, lease: Lease) -> Machine:
    """Start a machine whose start was admitted, and return the machine once that is accepted."""
    provider = pausable(session, machine)
    session.report(f"{machine.name}: starting")
    try:
        _tag(provider, machine, lease)
        timers.move_timer_before_start(session, session.ledger.machine(machine.id) or machine)
    except CloudgpuError:
        session.ledger.append([not_started(session, machine)])
        raise
    try:
        provider.start(machine.provider_id)
    except (NoCapacity, QuotaExceeded, AuthFailed, InvalidRequest) as error:
        session.ledger.append([not_started(session, machine)])
        if isinstance(error, NoCapacity):
            error.next = error.next or "Try again later: its disk remains. Or launch another machine: cloudgpu up --new"
        raise
    except ProviderUnavailable as error:
        machine = _refresh_after_silence(session, machine, error)
        if machine.state not in UP_STATES:
            raise
    return timers.ensure_timer(session, refresh(session, machine), "start")


def _refresh_after_silence(session: Session, machine: Machine, error: ProviderUnavailable) -> Machine:
    """Look whether a request arrived that was not answered; raise `error`, with the way out, where nothing is known."""
    billed = billed_text(machine, ", and billed")
    error.next = f"It may be running{billed}. Run: cloudgpu show {machine.name} --refresh"
    try:
        return refresh(session, machine)
    except ProviderUnavailable:
        raise error from None


def _tag(provider: Provider, machine: Machine, lease: Lease) -> None:
    if isinstance(provider, Taggable):
        provider.tag(not_none(machine.provider_id), lease.tags())


def _new_price(session: Session, machine: Machine, provider: Provider) -> list[Draft]:
    """Return the line of a price that is not the one of the launch any more; prices of the past stay as they were."""
    from cloudgpu.providers.attached_costs import discounted_prices

    now = session.clock()
    (price,) = discounted_prices(provider, [item_of_machine(machine)], session.settings.discounts, now)
    return [] if price is None else start_price_events(session, machine, price, now)
