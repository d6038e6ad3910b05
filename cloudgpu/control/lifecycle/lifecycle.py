"""Stops, starts and ends machines: asked in the ledger first, then carried out, then proved."""

from __future__ import annotations

import contextlib
import platform
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from cloudgpu.control.budgets.admission import carried, decided, look_first
from cloudgpu.control.inventory.local_files import clean_up_local_files
from cloudgpu.control.inventory.protection import note, stopped_instead
from cloudgpu.control.inventory.settle import settle, settle_to_end
from cloudgpu.control.inventory.stop_proof import PROVED_WITHIN, is_stopped, prove
from cloudgpu.control.inventory.sync import refresh
from cloudgpu.control.inventory.unrecorded_termination import Unrecorded, ended_unrecorded
from cloudgpu.control.lifecycle import timers
from cloudgpu.control.lifecycle.parking import park, put_back
from cloudgpu.control.lifecycle.shared import without_shared
from cloudgpu.control.outage.outage import without_ledger
from cloudgpu.control.policies.resolve import check_renewable, lifetime_of_start, limits_of, policy_of
from cloudgpu.control.pricing.price_history import available, pin_to_the_end, price_again
from cloudgpu.control.pricing.traffic import count_before_end
from cloudgpu.control.records import retention as kept
from cloudgpu.control.records.named_resources import write
from cloudgpu.control.session.session import Session
from cloudgpu.control.team.law import by, check_may, check_override
from cloudgpu.core.budgets.refusal import Way, shorter_launch
from cloudgpu.core.events.bodies import RequestedBy
from cloudgpu.core.events.log import Draft
from cloudgpu.core.events.machine_lines import lease_set, requested, start_refused
from cloudgpu.core.events.observations import not_before
from cloudgpu.core.launch.limit_checks import start_within
from cloudgpu.core.launch.plan import Lease
from cloudgpu.core.launch.plan_cost import row_until
from cloudgpu.core.model.facts import HourlyPrice
from cloudgpu.core.model.instances import State
from cloudgpu.core.model.machine import Machine, and_billed, fact, stays, unproved
from cloudgpu.core.policies.description import off_now
from cloudgpu.core.policies.endings import check_stop
from cloudgpu.core.values.naming import lock_name
from cloudgpu.errors import (
    AuthFailed,
    CloudgpuError,
    EndRefused,
    InvalidRequest,
    LedgerUnavailable,
    NoCapacity,
    ProviderUnavailable,
    QuotaExceeded,
)
from cloudgpu.ledger import saved_calls as saved
from cloudgpu.ledger.log.storage_errors import LedgerAway
from cloudgpu.providers.abilities import Pausable, Remains, Taggable, WritesAtHome
from cloudgpu.providers.base import Provider
from cloudgpu.underway import changing
from cloudgpu.views.ended import gone

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from cloudgpu.core.model.resources import ProviderResource


@dataclass(frozen=True, slots=True)
class Ended:
    """How an end went: the machine's row, what the user keeps by name and it had to do with, files that stay."""

    machine: Machine
    on_purpose: tuple[ProviderResource, ...] = ()
    remains: Remains | None = None


def stop(session: Session, machine: Machine, *, why: str, check: Callable[[Machine], None] | None = None) -> Machine:
    """Stop the machine, or park it where it cannot be stopped; return its row once it is proved not to be billed.

    `check` is as of `end_all_of`. Raises InvalidRequest for a machine that can be neither, or whose policy keeps
    nothing of it; StopUnproved when the proof did not come in time; RoleNeeded where it is not theirs to stop;
    Unrecorded when it is stopped and the ledger, which is away, does not know it yet.
    """
    return without_ledger(session, machine, partial(_stop_alone, session, why=why, check=check), _stopped_words)


def _stopped_words(machine: Machine) -> str:
    return f"{machine.name} is {'parked' if stays(machine) else machine.state} and not billed"


def _stop_alone(session: Session, machine: Machine, *, why: str, check: Callable[[Machine], None] | None) -> Machine:
    check_may(session, machine, "stop")
    with alone(session, machine), changing(unproved("stop", machine.name)):
        machine = session.ledger.machine(machine.id) or machine
        if check is not None:
            check(machine)
        check_stop(machine)
        if stays(machine) or _is_parked_by_stop(session, machine):
            machine = park(session, machine if stays(machine) else _settled(session, machine), why=why)
        else:
            machine = _stopped_or_parked(session, _settled(session, machine), why)
    clean_up_local_files(session)
    return machine


def _is_parked_by_stop(session: Session, machine: Machine) -> bool:
    return machine.stoppable is False and kept.keeps(session, machine)


def _stopped_or_parked(session: Session, machine: Machine, why: str) -> Machine:
    """Stop it; a spot machine found without its launch record is parked where its provider says that it cannot be."""
    try:
        return _stop(session, machine, why)
    except InvalidRequest:
        if machine.stoppable is not None or machine.market != "spot" or not kept.keeps(session, machine):
            raise
        return park(session, session.ledger.machine(machine.id) or machine, why=why)


def _stop(session: Session, machine: Machine, why: str) -> Machine:
    latest = refresh(session, machine)
    if latest.terminated_at:
        raise gone(latest, session.clock())
    provider = _pausable(session, latest)
    if latest.state in ("stopped", "deallocated") and not latest.billed:
        if latest.pending_action == "start":  # that was never answered, and holds money back in budgets
            return session.ledger.append_to(latest, [_not_started(session, latest)])
        return latest
    session.tell(f"{machine.name}: stopping")
    count_before_end(session, latest)
    who, now = by(session, machine, "stop"), not_before(machine, session.clock())
    session.ledger.append([requested("stop", machine.id, why, now, host=platform.node(), who=who)])
    try:
        latest = prove(session, latest, is_stopped, lambda: provider.stop(machine.provider_id), watched=True)
    except EndRefused as refusal:
        note(session, machine, "stop", refusal)
        refusal.message = f"{machine.name} was not stopped: {refusal.message} It runs on and is billed."
        raise
    pin_to_the_end(session, latest)
    if latest.terminated_at:
        raise gone(latest, session.clock())
    return latest


def new_lease(session: Session, machine: Machine, span: timedelta | None, renew: timedelta | None = None) -> Lease:
    """Return the lease of a start now: `span` long (or as its policy says), renewable as long as at its launch.

    Not as long as the policy says now: a start gives a machine no longer life than was agreed to, unless `span` or
    `renew` does. Raises InvalidRequest where `span` is None and the machine's policy cannot be read any more, and for
    a `renew` that is shorter than `span`, or one of them beyond the lab's limits.
    """
    now = session.clock().replace(microsecond=0)
    wished = _wished_lease(session, machine, span, renew, now)
    return start_within(wished, now, limits_of(session), typed=(span is not None, renew is not None))


def _wished_lease(
    session: Session, machine: Machine, span: timedelta | None, renew: timedelta | None, now: datetime
) -> Lease:
    agreed = machine.renew_s
    if renew is not None:
        lease = span or min(lifetime_of_start(session, machine, None).lease, renew)
        check_renewable(lease, renew)
        return Lease(now + lease, now + renew)
    if span is not None and agreed:
        return Lease(now + span, now + max(span, timedelta(seconds=agreed)))
    usual = lifetime_of_start(session, machine, span)
    renewable = timedelta(seconds=agreed) if agreed else usual.renew_until
    return Lease(now + min(usual.lease, renewable), now + renewable)


def start(session: Session, machine: Machine, lease: Lease, *, override: str | None = None) -> Machine:
    """Start a stopped machine under a new lease and return its row once the start is accepted.

    Raises InvalidRequest for a machine that cannot be started, InstanceNotFound for one that is gone, BudgetRefused
    where a budget does not allow it; `override` says why to pass it. RoleNeeded where it is not theirs to start.
    """
    check_may(session, machine, "start")
    check_override(session, override)
    session.check_launchable()
    look_first(session, {}, lambda budget: budget.scope.covers(machine))
    name = machine.name
    billed = and_billed(machine, ", and billed")
    left = f"{name} may be starting{billed}. cloudgpu start {name} continues; cloudgpu stop {name} stops it."
    with alone(session, machine), changing(left):
        latest = refresh(session, _settled(session, machine))
        if latest.terminated_at:
            raise gone(latest, session.clock())
        if latest.state in ("running", "pending"):  # one that cannot be stopped, too: its comeback was interrupted
            session.tell(f"{machine.name} is {latest.state} already; extend makes its lease longer")
            return latest
        provider = _pausable(session, latest)
        for sentence in off_now(policy_of(session, latest).policy, latest, session.clock()):
            session.tell(f"{name}: {sentence}")
        _admit_start(session, latest, lease, _new_price(session, latest, provider), override)
        session.tell(f"{machine.name}: starting")
        try:
            _tag(provider, machine, lease)
            timers.before_start(session, session.ledger.machine(machine.id) or machine)
        except CloudgpuError:
            session.ledger.append([_not_started(session, machine)])
            raise
        try:
            provider.start(machine.provider_id)
        except (NoCapacity, QuotaExceeded, AuthFailed, InvalidRequest) as error:
            session.ledger.append([_not_started(session, machine)])
            if isinstance(error, NoCapacity):
                error.next = (
                    error.next or "Try again later: its disk remains. Or launch another machine: cloudgpu up --new"
                )
            raise
        except ProviderUnavailable as error:
            latest = _look_after(session, latest, error)
            if latest.state not in ("running", "pending"):
                raise
        return timers.guard(session, refresh(session, latest), "start")


def _admit_start(session: Session, machine: Machine, lease: Lease, prices: list[Draft], override: str | None) -> None:
    """Write that the start is asked, where the budgets carry it, at the price that it has now."""
    wanted = row_until(machine, lease.renew_until)
    for line in prices:
        price, on_demand = line.body.get("price"), line.body.get("on_demand")
        wanted = wanted._replace(
            price=HourlyPrice.of(price) if price else wanted.price,
            on_demand=HourlyPrice.of(on_demand) if on_demand else wanted.on_demand,
        )
    now = session.clock()
    who = by(session, machine, "start")
    lines = [
        lease_line(machine, lease, "start", now, who=who),
        *prices,
        requested("start", machine.id, "asked", now, host=platform.node(), who=who),
    ]
    until = shorter_launch(now, lease.expires - now, f"cloudgpu start {machine.name}")
    decided(session, lambda view: [*lines, *carried(session, view, wanted, override)], Way(until))


def _not_started(session: Session, machine: Machine) -> Draft:
    """Return the line that the start that was asked has surely not begun, so that no budget counts it."""
    return start_refused(machine.id, "the provider did not take it", session.clock())


def _look_after(session: Session, machine: Machine, error: ProviderUnavailable) -> Machine:
    """Look whether a request arrived that was not answered; raise `fault`, with the way out, where nothing is known."""
    billed = and_billed(machine, ", and billed")
    error.next = f"It may be running{billed}. Run: cloudgpu show {machine.name} --refresh"
    try:
        return refresh(session, machine)
    except ProviderUnavailable:
        raise error from None


def end(session: Session, machine: Machine, *, why: str) -> Machine:
    """End a machine as `end_all_of` does; return its row."""
    return end_all_of(session, machine, why=why).machine


def end_all_of(
    session: Session,
    machine: Machine,
    *,
    why: str,
    failed: bool = False,
    check: Callable[[Machine], None] | None = None,
    held: bool = False,
) -> Ended:
    """End the machine and all that was made with it, images of it included; return once all is proved gone.

    `failed`: because it never came up. `held`: the caller holds the lock of its launch. `check` is given its row once
    nobody else is at the machine, and raises where it is not to be ended any more. Works on every machine of this
    ledger, also one whose launch was interrupted or whose end was, and on one that is parked. Raises StopUnproved when
    the proof did not come in time, EndRefused where something protects it (it is stopped then, where it can be),
    Unrecorded when the machine is gone and the ledger does not know it yet, RoleNeeded where it is not theirs to end.
    """
    act = partial(_end_alone, session, why=why, failed=failed, check=check, held=held)
    return without_ledger(session, machine, act, lambda one: f"{one.machine.name} was ended and nothing of it is left")


def _end_alone(
    session: Session,
    machine: Machine,
    *,
    why: str,
    failed: bool,
    check: Callable[[Machine], None] | None,
    held: bool,
) -> Ended:
    check_may(session, machine, "end")
    with contextlib.nullcontext() if held else alone(session, machine), changing(unproved("end", machine.name)):
        if check is not None:
            check(session.ledger.machine(machine.id) or machine)
        try:
            machine = session.ledger.machine(machine.id) or machine
            machine = _settled_and_ended(session, machine, why, failed=failed)
            machine, on_purpose = kept.cleared(session, session.ledger.machine(machine.id) or machine)
        except (LedgerAway, Unrecorded):
            raise
        except (LedgerUnavailable, InvalidRequest) as error:  # no reason to leave it on
            raise ended_unrecorded(session, machine, error, whole=True) from error
        if not session.apart:  # the saved call tells what the machine was, until the ledger knows of its end
            saved.forget(session.home.attempts, machine.token or "none")
    clean_up_local_files(session)  # not under the lock: what is locked may still be made
    with contextlib.suppress(LedgerUnavailable):  # the next look writes it
        write(session, on_purpose)
    return Ended(machine, tuple(on_purpose), _remains(session, machine))


def _remains(session: Session, machine: Machine) -> Remains | None:
    """Return which files of its owner's were left where the machine was."""
    if not machine.provider_id:
        return None
    with contextlib.suppress(CloudgpuError):
        provider = session.provider_of(machine)
        return provider.remains(machine.provider_id) if isinstance(provider, WritesAtHome) else None
    return None


def _settled_and_ended(session: Session, machine: Machine, why: str, *, failed: bool) -> Machine:
    if machine.launch_status == "open":
        machine = settle_to_end(session, machine, deadline=session.clock() + PROVED_WITHIN)
    if machine.terminated_at is None:
        return without_shared(session, _end(session, machine, why, failed=failed))
    kept.discard_line(session, machine, why)
    if machine.provider_id:
        session.provider_of(machine).terminate(machine.provider_id)  # what a killed `down` may have left
    return without_shared(session, timers.drop(session, machine) if machine.timer else machine)


def remove_unfit(session: Session, machine: Machine, error: CloudgpuError) -> None:
    """End a machine that did not come up. The caller raises `fault`, which is made to say how this went.

    One that was started from an image keeps that: nothing of what it held is lost.
    """
    machine, why = session.ledger.machine(machine.id) or machine, f"it did not come up: {error.message}"
    try:
        if machine.retained:
            with alone(session, machine):
                put_back(session, machine, why=why)
            error.message += " It was ended again; its image is kept."
            error.next = f"Run: cloudgpu start {machine.name}"
        else:
            end_all_of(session, machine, why=why, failed=True)
            error.message += " It was removed; nothing is left running."
    except Unrecorded as second:
        error.message += f" {second.message}"
    except CloudgpuError as second:
        error.message += f" It could not be removed ({second.message})."
        error.next = (isinstance(second, EndRefused) and second.next) or f"Run: cloudgpu down {machine.name}"


def remove_with(session: Session, machine: Machine, error: CloudgpuError) -> None:
    """End a node of a cluster of which another one did not come up. The caller raises `error`, which says how it went.

    One that has ended already is left as it is.
    """
    machine = session.ledger.machine(machine.id) or machine
    if machine.terminated_at is not None:
        return
    try:
        end_all_of(session, machine, why=f"not all of its cluster came up: {error.message}", failed=True)
        error.message += f" {machine.name} was ended with it."
    except CloudgpuError as second:
        error.message += f" {machine.name} could not be ended ({second.message})."
        error.next = f"Run: cloudgpu down {machine.cluster.name if machine.cluster else machine.name}"


def _end(session: Session, machine: Machine, why: str, *, failed: bool) -> Machine:
    provider = session.provider_of(machine)
    session.tell(f"{machine.name}: ending")
    count_before_end(session, machine)
    there = _is_there(provider, machine)  # some are unknown at once when they are ended: that it lived is known by then
    who, now = by(session, machine, "end"), not_before(machine, session.clock())
    session.ledger.append([requested("terminate", machine.id, why, now, host=platform.node(), who=who, failed=failed)])
    ask = partial(provider.terminate, fact(machine.provider_id))
    try:
        machine = prove(session, machine, lambda seen: bool(seen.terminated_at), ask, watched=there)
    except EndRefused as refusal:
        raise stopped_instead(session, machine, refusal) from refusal.__cause__
    pin_to_the_end(session, machine)
    return timers.drop(session, machine)


def _is_there(provider: Provider, machine: Machine) -> bool:
    """Say whether the provider has this machine now, billed if it was; what it does not say keeps nothing from its end.

    One that others are ending already is not there in this sense: its end is no end of ours.
    """
    try:
        found = provider.get(fact(machine.provider_id))
    except CloudgpuError:
        return False
    return found.state is not State.TERMINATED and (found.billed or not machine.billed)


def _tag(provider: Provider, machine: Machine, lease: Lease) -> None:
    if isinstance(provider, Taggable):
        provider.tag(fact(machine.provider_id), lease.tags())


def lease_line(machine: Machine, lease: Lease, why: str, now: datetime, *, who: RequestedBy) -> Draft:
    """Return the line that records a lease that was set; `who` is `law.by`."""
    return lease_set(machine.id, lease.expires, lease.renew_until, why, now, host=platform.node(), who=who)


def _new_price(session: Session, machine: Machine, provider: Provider) -> list[Draft]:
    """Return the line of a price that is not the one of the launch any more; prices of the past stay as they were."""
    from cloudgpu.control.pricing.attached_costs import paid_prices

    (price,) = paid_prices(session, provider, [available(machine)])
    return [] if price is None else price_again(session, machine, price, session.clock())


def _pausable(session: Session, machine: Machine) -> Any:
    provider = session.provider_of(machine)
    if machine.stoppable is False or not isinstance(provider, Pausable):
        raise InvalidRequest(
            f"{machine.name} cannot be stopped and started ({machine.market} on {machine.provider}).",
            field="name",
            value=machine.name,
            next=f"Run: cloudgpu down {machine.name} (it ends the machine and deletes its disk)",
        )
    return provider


def _settled(session: Session, machine: Machine) -> Machine:
    machine = session.ledger.machine(machine.id) or machine
    if machine.launch_status == "open":
        machine = settle(session, machine, deadline=session.clock() + PROVED_WITHIN)
    if machine.terminated_at:
        raise gone(machine, session.clock())
    return machine


def alone(session: Session, machine: Machine) -> contextlib.AbstractContextManager[None]:
    """Return what keeps every other process from this machine, and from launches of the same request."""
    name = lock_name(machine.key or machine.id)
    if session.held(name):
        session.waits(f"{machine.name}: another cloudgpu is at work on it; waiting for it")
    return session.hold(name, wait=900)
