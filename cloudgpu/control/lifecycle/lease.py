"""Moves a lease's end, sets or releases a hold, and says what ends a held machine all the same.

Budgets admit a later renew-until before it is set. What ends a held machine is said when the hold is set: its
renew-until, a schedule, a budget.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from cloudgpu.control.budgets.admission import (
    append_if_admitted,
    check_credit_of_hold,
    check_credit_until,
    credit_of_machine,
    sync_before_admission,
)
from cloudgpu.control.budgets.store import budgets
from cloudgpu.control.inventory.sync import refresh
from cloudgpu.control.inventory.sync_some import explain_terminated, refresh_or_raise
from cloudgpu.control.lifecycle import timers
from cloudgpu.control.lifecycle.lifecycle import admit_all, lease_event, lock_machine
from cloudgpu.control.lifecycle.start import withdraw_end
from cloudgpu.control.policies.resolve import limits_of, policy_of
from cloudgpu.control.session.session import Session
from cloudgpu.control.team.authorization import by, check_may, check_override
from cloudgpu.core.budgets.budget import Action
from cloudgpu.core.budgets.enforcement import WARNINGS
from cloudgpu.core.budgets.refusal import Remedy, span_text
from cloudgpu.core.events.log import Draft
from cloudgpu.core.events.machine_lines import hold_set, lease_put_back
from cloudgpu.core.events.observations import not_before
from cloudgpu.core.launch.limit_checks import check_extended, check_hold_length
from cloudgpu.core.launch.plan import Lease, extend_lease, hold_tags, run_cost
from cloudgpu.core.launch.plan_cost import row_until
from cloudgpu.core.model.account import PrepaidCredit
from cloudgpu.core.model.instances import State
from cloudgpu.core.model.machine import Machine, command_name, not_none
from cloudgpu.core.policies.guards import agreed_ending, at_last, gentlest_ending, guards_of, only_warned
from cloudgpu.core.policies.policy import Act, Do, Policy
from cloudgpu.core.policies.schedule import next_off
from cloudgpu.core.values.money import ZERO, Money
from cloudgpu.core.values.times import from_iso
from cloudgpu.errors import CloudgpuError, InvalidRequest, ProviderUnavailable
from cloudgpu.ledger.log.base import View
from cloudgpu.providers.abilities import SetsTimer, Taggable
from cloudgpu.underway import on_abort


def hold_caveat(session: Session, machine: Machine, until: datetime) -> str | None:
    """Return the sentence that says where a hold until then does not help, or None. It refuses no hold."""
    try:
        policy = policy_of(session, machine).policy
        caveats = [*_time_caveats(session, machine, policy, until), *_agent_caveats(session, machine, policy)]
        caveats += _budget_caveats(session, machine, policy)
    except InvalidRequest as error:  # a hold keeps a machine from being ended: no broken file is to be in its way
        return f"whether something ends it all the same is not known: {error.message}"
    return "; ".join(caveats) or None


def _time_caveats(session: Session, machine: Machine, policy: Policy | None, until: datetime) -> Iterator[str]:
    end = from_iso(machine.renew_until) if machine.renew_until else None
    next_off_at = None
    if policy is not None and not only_warned(machine, policy):
        next_off_at = next_off(policy.schedules, session.clock())
    if next_off_at is not None and next_off_at < until and (end is None or next_off_at < end):
        erased = agreed_ending(machine, policy) is Do.TERMINATE
        consequence = "its disk is deleted" if erased else "start brings it back until the next off"
        yield f"its schedule ends it at {next_off_at:%Y-%m-%d %H:%M} UTC all the same; {consequence}"
    if end is not None and end < until:
        lost = " and deletes its disk" if at_last(machine, policy) is Do.TERMINATE else ""
        yield f"renew-until ends it at {end:%Y-%m-%d %H:%M} UTC all the same{lost}{_move_clause(session, machine)}"


def _agent_caveats(session: Session, machine: Machine, policy: Policy | None) -> Iterator[str]:
    """Yield that an agent which goes by its first lease ends a held machine; nothing where it follows a hold."""
    try:
        if machine.state == State.STOPPED or learns_lease(session, machine):
            return
    except CloudgpuError:
        return  # the hold says it
    result = "its disk is deleted then" if agreed_ending(machine, policy) is Do.TERMINATE else "start brings it back"
    yield (
        "its agent cannot learn of a hold, and ends it all the same at the end of its lease, or when it is idle; "
        f"{result}"
    )


def _move_clause(session: Session, machine: Machine) -> str:
    """Return what moves a machine's renew-until, as the end of a sentence."""
    try:
        provider = session.provider_of(machine)
        fixed = isinstance(provider, SetsTimer) and provider.timer_limit(not_none(machine.provider_id)) is not None
    except CloudgpuError:
        return ""  # extend says it
    return f": {machine.provider} has fixed that until it is stopped" if fixed else "; extend moves that"


def _budget_caveats(session: Session, machine: Machine, policy: Policy | None) -> Iterator[str]:
    stops = [one.name for one in budgets(session) if Action.STOP in one.actions and one.scope.covers(machine)]
    if stops:
        names = f"the budget{'s' * (len(stops) > 1)} {', '.join(stops)}"
        yield f"{names} may end it once it is spent, after {WARNINGS} warnings{_lost_clause(machine)}"
    if policy is not None and policy.budget is not None and policy.budget.do is Act.STOP:
        limit = policy.budget.limit.text()
        yield f"its policy ends it once it has cost {limit}, after {WARNINGS} warnings{_lost_clause(machine)}"


def _lost_clause(machine: Machine) -> str:
    return "; its disk is deleted then" if gentlest_ending(machine) is Do.TERMINATE else ""


@dataclass(frozen=True, slots=True)
class Extension:
    """What a longer lease means: both its ends, whether `renew-until` moves, and what the added time costs."""

    machine: Machine
    lease: Lease
    moves_renew_until: bool
    added_cost: Money


def plan_extension(session: Session, machine: Machine, by: timedelta) -> Extension:
    """Ask the machine's provider, and return what extending would do to the lease that it has now.

    Raises InstanceNotFound for a machine that has ended, InvalidRequest for one whose launch is not settled and for an
    end beyond the lab's limits, beyond the day on which its host leaves, or for one that runs and cannot be told of it,
    ProviderUnavailable where its provider does not answer, RoleNeeded where it is not theirs to extend.
    """
    check_may(session, machine, "extend")
    machine = refresh_lease(session, machine)
    check_learns_lease(session, machine)
    now = session.clock().replace(microsecond=0)
    if machine.expires is None or machine.renew_until is None:
        lease = Lease(now + by, now + by)
    else:
        lease = extend_lease(from_iso(machine.expires), from_iso(machine.renew_until), by, now)
    moves = _moves_renew_until(machine, lease)
    timers.check_host_stays(session, machine, lease.expires)
    check_extended(machine.name, lease, now, limits_of(session))
    return Extension(machine, lease, moves, _added_cost(machine, by))


def extend(session: Session, extension: Extension, *, override: str | None = None) -> Machine:
    """Carry out an extension and return the updated machine.

    Raises BudgetRefused where renew-until moves and a budget does not carry that; `override` says why to pass it.
    Also where the account's credit does not carry it to the new lease's end: no override passes that.
    LedgerUnavailable where renew-until moves and the ledger is in doubt.
    """
    machine = extension.machine
    check_may(session, machine, "extend")
    check_override(session, override)
    if extension.moves_renew_until:
        session.check_launchable()  # a ledger that lacks a part of its past knows neither what was spent nor budgets
        sync_before_admission(session, {}, lambda budget: budget.scope.covers(machine))
    with lock_machine(session, machine):
        latest = refresh_lease(session, session.ledger.machine(machine.id) or machine)
        check_learns_lease(session, latest)
        lease, credit = keep_later_end(extension.lease, latest), credit_of_machine(session, latest)
        return withdraw_end(session, set_lease(session, latest, lease, "extend", override, credit))


def keep_later_end(lease: Lease, machine: Machine) -> Lease:
    """Return the lease with no end before the one that somebody else has set since it was planned."""
    ends = [from_iso(text) if text else lease.expires for text in (machine.expires, machine.renew_until)]
    return Lease(max(lease.expires, ends[0]), max(lease.renew_until, ends[1]))


def set_lease(
    session: Session,
    machine: Machine,
    lease: Lease,
    why: str,
    override: str | None = None,
    credit: PrepaidCredit | None = None,
) -> Machine:
    """Give a machine another lease and return the updated machine: recorded if the budgets admit it, then set on it.

    The caller holds the machine's lock, so that the tags and the last line say the same, and `machine` is what
    `refresh_lease` returned under it: one that has ended gets no lease. In this order, since budgets count only what
    the ledger knows. A machine that surely did not take it keeps the lease that it had, and the ledger says so; where
    nobody knows, the next sync does.
    """
    with on_abort(partial_lease_text(machine.name)):
        admit_lease(session, [machine], lease, why, override, credit)
        return apply_lease(session, machine, lease, why)


def partial_lease_text(name: str) -> str:
    """Return what an interruption leaves while a lease is set."""
    return f"The new lease of {name} may not be set everywhere. Run the same command again."


def admit_lease(
    session: Session,
    machines: Sequence[Machine],
    lease: Lease,
    why: str,
    override: str | None = None,
    credit: PrepaidCredit | None = None,
) -> None:
    """Write that these machines have another lease, in one line each, where the budgets carry it for all of them.

    `credit` is what is left in their account, where that is to carry it, too. Nothing is set on them yet: `apply_lease`
    does that. The caller holds their locks, as for `set_lease`.
    """
    drafts = list[Draft]()
    for machine in machines:
        who, at = by(session, machine, "extend"), _time_after_last_lease(session, machine)
        timers.check_timer_reaches(session, machine, lease.renew_until)
        drafts.append(lease_event(machine, lease, why, at, who=who))

    def build_events(view: View) -> Sequence[Draft]:
        latest = [view.machine(machine.id) or machine for machine in machines]
        check_credit_until(session, view, credit, latest, lease.expires, "new lease", "extend it by less")
        with_later_end = [row_until(row, lease.renew_until) for row in latest if _moves_renew_until(row, lease)]
        return [*drafts, *(admit_all(session, view, with_later_end, override) if with_later_end else [])]

    append_if_admitted(session, build_events, _shorter_extension(machines[0], session.clock()))


def _moves_renew_until(machine: Machine, lease: Lease) -> bool:
    return machine.renew_until is None or lease.renew_until > from_iso(machine.renew_until)


def apply_lease(session: Session, machine: Machine, lease: Lease, why: str) -> Machine:
    """Set on the machine the lease that was admitted, and return the updated machine."""
    try:
        _set_tags(session, machine, lease.tags())
    except ProviderUnavailable:
        _sync_lease(session, machine)
        raise
    except CloudgpuError:
        _record_old_lease(session, machine)
        raise
    return timers.ensure_timer(session, session.ledger.machine(machine.id) or machine, why)


def _sync_lease(session: Session, machine: Machine) -> None:
    """Ask the machine which lease it has; where it does not say, the longer one counts until a sync tells."""
    with suppress(CloudgpuError):
        refresh(session, session.ledger.machine(machine.id) or machine)


def _record_old_lease(session: Session, machine: Machine) -> None:
    """Write that the machine has the lease that it had, or none: then it is not believed to end by itself."""
    session.ledger.append([lease_put_back(machine, _time_after_last_lease(session, machine), host=platform.node())])


def _shorter_extension(machine: Machine, now: datetime) -> Remedy:
    """Return how less can be asked for: by how much the lease's end may move."""
    start = now if machine.expires is None else max(now, from_iso(machine.expires))

    def shorter(until: datetime) -> str:
        return f"cloudgpu extend {command_name(machine)} {span_text(until - start)}"

    return Remedy(shorter, None if machine.renew_until is None else max(start, from_iso(machine.renew_until)))


def set_hold(session: Session, machine: Machine, until: datetime | None, *, paid: bool = True) -> Machine:
    """Set a hold that ends at `until`, or release it (None); return the updated machine.

    Under the machine's lock: a run that is about to end it either sees the hold, or has ended it before. Raises
    InstanceNotFound for a machine that has ended, InvalidRequest for an end beyond the lab's limits, RoleNeeded where
    it is not theirs to hold. `paid`: BudgetRefused where the account's credit does not carry it; what a job holds takes
    no requested end back.
    """
    check_may(session, machine, "hold")
    check_hold_end(session, machine.name, until)
    if paid:
        check_credit_of_hold(session, [machine], until)
    with lock_machine(session, machine):
        if paid and until is not None:
            withdraw_end(session, machine)
        return set_hold_locked(session, machine, until)


def check_hold_end(session: Session, name: str, until: datetime | None) -> None:
    """Raise InvalidRequest for the end of a hold beyond the lab's limits.

    A release needs no limits, and a broken file of them does not hinder it.
    """
    if until is not None:
        check_hold_length(name, until, session.clock(), limits_of(session))


def set_hold_locked(session: Session, machine: Machine, until: datetime | None) -> Machine:
    """Set or release a hold as `set_hold` does, under a lock that the caller holds; return the updated machine."""
    until = until and until.replace(microsecond=0)  # as a tag can carry it
    machine = refresh_lease(session, session.ledger.machine(machine.id) or machine)
    with on_abort(f"The hold of {machine.name} may be set or not. Run the same command again."):
        _set_tags(session, machine, hold_tags(until))
        now, who = _time_after_last_lease(session, machine), by(session, machine, "hold")
        line = hold_set(machine.id, until, "asked", now, host=platform.node(), who=who)
        return session.ledger.append_to(machine, [line])


def _time_after_last_lease(session: Session, machine: Machine) -> datetime:
    """Return now, or a moment after the latest line of a machine's holds and leases where this clock is behind it.

    Lines are folded by their time, and a tag that says that nothing holds it is no news: a release with an earlier time
    than the hold itself, or than a sync that saw it, would keep the machine, and its bill, until that hold ends. A
    lease with an earlier time than the one before it would not count, and the machine would be ended by that; two with
    the same time and the same renew-until are one line.
    """
    lines = session.ledger.events(machine.id)
    times = (from_iso(line.occurred_at) for line in lines if line.kind in ("hold_set", "lease_set"))
    now, latest = not_before(machine, session.clock()), max(times, default=None)
    return now if latest is None or now > latest else latest + timedelta(microseconds=1)


def check_hold(name: str, until: object, *, release: bool) -> None:
    """Raise InvalidRequest unless exactly one is meant: an end, or the release."""
    if release == (until is not None):
        raise InvalidRequest(
            "UNTIL is missing: a hold always has an end.",
            field="UNTIL",
            value=None if until is None else str(until),
            next=f"For example: cloudgpu hold {name} 2h, or: cloudgpu hold {name} --release",
        )


def _set_tags(session: Session, machine: Machine, tags: Mapping[str, str]) -> None:
    """Set what the machine's agent and timer go by; nothing where it has no tags: then it is in the ledger alone."""
    provider = session.provider_of(machine)
    if isinstance(provider, Taggable):
        with explain_terminated(session, machine):
            provider.tag(not_none(machine.provider_id), tags)


def learns_lease(session: Session, machine: Machine) -> bool:
    """Say whether a machine follows another lease or a hold: by its tags, or because runs from outside alone end it.

    Else its agent goes by the lease of its launch or start, and renews that itself while somebody works.
    """
    guards = guards_of(machine)
    return isinstance(session.provider_of(machine), Taggable) or (guards is not None and guards.only_reaper)


def check_learns_lease(session: Session, machine: Machine) -> None:
    """Raise InvalidRequest for a machine that runs and whose agent cannot be told of another lease."""
    if machine.state == State.STOPPED or learns_lease(session, machine):
        return
    name = command_name(machine)
    raise InvalidRequest(
        f"The agent on {machine.name} cannot learn of another lease while it runs: it ends {machine.name} at the end "
        "of the lease that it has, unless somebody works there.",
        field="name",
        value=machine.name,
        next=f"Work there, and its agent renews its lease. Once it is stopped, cloudgpu start {name} gives it a new "
        f"one, and cloudgpu hold {name} 7d keeps its disk.",
    )


def refresh_lease(session: Session, machine: Machine) -> Machine:
    """Ask the provider of a machine whose lease is to be changed and return it as it is now.

    Raises InstanceNotFound where it has ended, InvalidRequest where its launch is not settled, ProviderUnavailable
    where nothing could be learned.
    """
    if machine.terminated_at is None and machine.provider_id is None:
        raise InvalidRequest(
            f"{machine.name} has no lease to change: the outcome of its launch is not known yet.",
            field="name",
            value=machine.name,
            next="Run: cloudgpu ls --refresh",
        )
    return refresh_or_raise(session, machine)


def _added_cost(machine: Machine, by: timedelta) -> Money:
    return run_cost(Money(machine.price.nanos_per_hour), by) if machine.price else ZERO
