"""Extends leases, sets and releases holds, and warns of what ends a held machine all the same.

Budgets have to admit a later renew-until before it is set. The warning names what ends a held machine: its renew-until,
a schedule, a budget.
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
from cloudgpu.control.lifecycle.start import cancel_pending_end, time_after_events
from cloudgpu.control.policies.resolve import limits_of, policy_of
from cloudgpu.control.session.session import Session
from cloudgpu.control.team.authorization import (
    check_override,
    check_right,
    check_right_and_claim_owner,
    requester_record,
)
from cloudgpu.core.budgets.budget import Action
from cloudgpu.core.budgets.enforcement import MAX_WARNINGS
from cloudgpu.core.budgets.refusal import Remedy, span_text
from cloudgpu.core.events.log import Draft
from cloudgpu.core.events.machine_events import hold_set, lease_put_back
from cloudgpu.core.launch.limit_checks import check_extended, check_hold_length
from cloudgpu.core.launch.plan import Lease, duration_cost, extend_lease, hold_tags
from cloudgpu.core.launch.plan_cost import as_running
from cloudgpu.core.model.account import PrepaidCredit
from cloudgpu.core.model.instances import State
from cloudgpu.core.model.machine import Machine, command_name, not_none
from cloudgpu.core.policies.guards import (
    automatic_ending,
    ending_at_renew_until,
    gentlest_ending,
    only_warned,
    safeguards_of,
)
from cloudgpu.core.policies.policy import Policy, ReaperAction, RuleAction
from cloudgpu.core.policies.schedule import next_scheduled_end
from cloudgpu.core.values.money import ZERO, Money
from cloudgpu.core.values.times import from_iso
from cloudgpu.errors import CloudgpuError, InvalidRequest, ProviderUnavailable
from cloudgpu.ledger.log.base import View
from cloudgpu.providers.abilities import SetsTimer, Taggable
from cloudgpu.underway import on_abort


def hold_caveat(session: Session, machine: Machine, until: datetime) -> str | None:
    """Return the warning that something ends the machine before the hold does; None where nothing will."""
    try:
        policy = policy_of(session, machine).policy
        caveats = [*_time_caveats(session, machine, policy, until), *_agent_caveats(session, machine, policy)]
        caveats += _budget_caveats(session, machine, policy)
    except InvalidRequest as error:  # a broken policy file must not prevent a hold
        return f"whether something ends it all the same is not known: {error.message}"
    return "; ".join(caveats) or None


def _time_caveats(session: Session, machine: Machine, policy: Policy | None, until: datetime) -> Iterator[str]:
    """Yield the warnings that the machine's schedule, or its renew-until, ends it before the hold does."""
    ends_at = from_iso(machine.renew_until) if machine.renew_until else None
    next_off_at = None
    if policy is not None and not only_warned(machine, policy):
        next_off_at = next_scheduled_end(policy.schedules, session.clock())
    if next_off_at is not None and next_off_at < until and (ends_at is None or next_off_at < ends_at):
        is_erased = automatic_ending(machine, policy) is ReaperAction.TERMINATE
        consequence = "its disk is deleted" if is_erased else "start brings it back until the next off"
        yield f"its schedule ends it at {next_off_at:%Y-%m-%d %H:%M} UTC all the same; {consequence}"
    if ends_at is not None and ends_at < until:
        loss_clause = (
            " and deletes its disk" if ending_at_renew_until(machine, policy) is ReaperAction.TERMINATE else ""
        )
        extension_clause = _renew_until_clause(session, machine)
        yield f"renew-until ends it at {ends_at:%Y-%m-%d %H:%M} UTC all the same{loss_clause}{extension_clause}"


def _agent_caveats(session: Session, machine: Machine, policy: Policy | None) -> Iterator[str]:
    """Yield the warning that the agent ends a held machine, where the agent cannot learn of the hold."""
    try:
        if machine.state == State.STOPPED or follows_lease(session, machine):
            return
    except CloudgpuError:
        return  # setting the hold raises it
    consequence = (
        "its disk is deleted then"
        if automatic_ending(machine, policy) is ReaperAction.TERMINATE
        else "start brings it back"
    )
    yield (
        "its agent cannot learn of a hold, and ends it all the same at the end of its lease, or when it is idle; "
        f"{consequence}"
    )


def _renew_until_clause(session: Session, machine: Machine) -> str:
    """Return whether a machine's renew-until can be moved, as the end of a sentence."""
    try:
        provider = session.provider_of(machine)
        is_fixed = isinstance(provider, SetsTimer) and provider.timer_limit(not_none(machine.provider_id)) is not None
    except CloudgpuError:
        return ""  # extend raises it
    return f": {machine.provider} has fixed that until it is stopped" if is_fixed else "; extend moves that"


def _budget_caveats(session: Session, machine: Machine, policy: Policy | None) -> Iterator[str]:
    """Yield the warnings that a budget, or the budget of the machine's policy, may end it while it is held."""
    names = [
        budget.name for budget in budgets(session) if Action.STOP in budget.actions and budget.scope.covers(machine)
    ]
    if names:
        yield (
            f"the budget{'s' * (len(names) > 1)} {', '.join(names)} may end it once it is spent, after {MAX_WARNINGS} "
            f"warnings{_lost_clause(machine)}"
        )
    if policy is not None and policy.budget is not None and policy.budget.do is RuleAction.STOP:
        yield (
            f"its policy ends it once it has cost {policy.budget.limit.text()}, after {MAX_WARNINGS} "
            f"warnings{_lost_clause(machine)}"
        )


def _lost_clause(machine: Machine) -> str:
    return "; its disk is deleted then" if gentlest_ending(machine) is ReaperAction.TERMINATE else ""


@dataclass(frozen=True, slots=True)
class Extension:
    """A planned extension: the new lease, whether it moves renew-until, and what the added time costs."""

    machine: Machine
    lease: Lease
    moves_renew_until: bool
    added_cost: Money


def plan_extension(session: Session, machine: Machine, added_time: timedelta) -> Extension:
    """Return what extending the machine's lease by `added_time` would do, after asking its provider for the lease.

    Raises InstanceNotFound for a machine that has ended, InvalidRequest for one of whose launch it is not known whether
    it made the machine, for an end beyond the lab's limits or beyond the day on which its host leaves, or for a running
    machine that cannot learn of it, ProviderUnavailable where its provider does not answer, RoleNeeded where the user
    may not extend it.
    """
    check_right(session, machine, "extend")
    machine = refresh_lease(session, machine)
    check_follows_lease(session, machine)
    now = session.clock().replace(microsecond=0)
    if machine.expires is None or machine.renew_until is None:
        lease = Lease(now + added_time, now + added_time)
    else:
        lease = extend_lease(from_iso(machine.expires), from_iso(machine.renew_until), added_time, now)
    timers.check_host_available_until(session, machine, lease.expires)
    check_extended(machine.name, lease, now, limits_of(session))
    added_cost = duration_cost(Money(machine.price.nanos_per_hour), added_time) if machine.price else ZERO
    return Extension(machine, lease, _moves_renew_until(machine, lease), added_cost)


def extend(session: Session, extension: Extension, *, override: str | None = None) -> Machine:
    """Carry out an extension and return the updated machine.

    Raises BudgetRefused where renew-until moves and a budget does not cover that; `override` is the reason to pass it.
    Also where the account's credit does not last to the new lease's end: no override passes that. LedgerUnavailable
    where renew-until moves and the ledger may be incomplete.
    """
    machine = extension.machine
    check_right_and_claim_owner(session, machine, "extend")
    check_override(session, override)
    if extension.moves_renew_until:
        session.check_launchable()  # an incomplete ledger has neither all costs nor all budgets
        sync_before_admission(session, {}, lambda budget: budget.scope.covers(machine))
    with lock_machine(session, machine):
        latest = refresh_lease(session, session.ledger.machine(machine.id) or machine)
        check_follows_lease(session, latest)
        lease, credit = keep_later_end(extension.lease, latest), credit_of_machine(session, latest)
        return cancel_pending_end(session, set_lease(session, latest, lease, "extend", override, credit))


def keep_later_end(lease: Lease, machine: Machine) -> Lease:
    """Return the lease, with ends no earlier than those that somebody else has set since it was planned."""
    expires = from_iso(machine.expires) if machine.expires else lease.expires
    renew_until = from_iso(machine.renew_until) if machine.renew_until else lease.renew_until
    return Lease(max(lease.expires, expires), max(lease.renew_until, renew_until))


def set_lease(
    session: Session,
    machine: Machine,
    lease: Lease,
    why: str,
    override: str | None = None,
    credit: PrepaidCredit | None = None,
) -> Machine:
    """Give a machine another lease and return the updated machine: recorded if the budgets admit it, then set on it.

    The caller holds the machine's lock, so that tags and the last event agree, and `machine` is what `refresh_lease`
    returned under it: one that has ended gets no lease. It is recorded first, since budgets count only what the ledger
    has. Where the machine refused it, the ledger records the old lease again; where that is not known, the next sync
    records what the machine has.
    """
    with on_abort(partial_lease_text(machine.name)):
        admit_lease(session, [machine], lease, why, override, credit)
        return apply_lease(session, machine, lease, why)


def partial_lease_text(name: str) -> str:
    """Return the message for a command that is interrupted while it sets a lease."""
    return f"The new lease of {name} may not be set everywhere. Run the same command again."


def admit_lease(
    session: Session,
    machines: Sequence[Machine],
    lease: Lease,
    why: str,
    override: str | None = None,
    credit: PrepaidCredit | None = None,
) -> None:
    """Record a new lease of these machines, one event each, if the budgets admit it for all of them.

    `credit` is what is left in their prepaid account, where it has to last as well. Nothing is set on the machines yet:
    `apply_lease` does that. The caller holds their locks, as for `set_lease`.
    """
    drafts = list[Draft]()
    for machine in machines:
        requester, set_at = requester_record(session, machine, "extend"), _time_after_last_lease(session, machine)
        timers.check_timer_reaches(session, machine, lease.renew_until)
        drafts.append(lease_event(machine, lease, why, set_at, who=requester))

    def build_events(view: View) -> Sequence[Draft]:
        current = [view.machine(machine.id) or machine for machine in machines]
        check_credit_until(session, view, credit, current, lease.expires, "new lease", "extend it by less")
        with_later_renew_until = [
            as_running(machine, lease.renew_until) for machine in current if _moves_renew_until(machine, lease)
        ]
        return [
            *drafts,
            *(admit_all(session, view, with_later_renew_until, override) if with_later_renew_until else []),
        ]

    append_if_admitted(session, build_events, _shorter_extension(machines[0], session.clock()))


def _moves_renew_until(machine: Machine, lease: Lease) -> bool:
    return machine.renew_until is None or lease.renew_until > from_iso(machine.renew_until)


def apply_lease(session: Session, machine: Machine, lease: Lease, why: str) -> Machine:
    """Set the admitted lease on the machine, and return the updated machine."""
    try:
        _set_tags(session, machine, lease.tags())
    except ProviderUnavailable:
        with suppress(CloudgpuError):  # where it does not answer, the longer lease counts until the next sync
            refresh(session, session.ledger.machine(machine.id) or machine)
        raise
    except CloudgpuError:  # the earlier lease counts again; where there was none, nothing ends the machine by itself
        now = _time_after_last_lease(session, machine)
        session.ledger.append([lease_put_back(machine, now, host=platform.node())])
        raise
    return timers.ensure_timer(session, session.ledger.machine(machine.id) or machine, why)


def _shorter_extension(machine: Machine, now: datetime) -> Remedy:
    """Return the remedy of a refusal: the command with the longest extension that would be admitted."""
    start = now if machine.expires is None else max(now, from_iso(machine.expires))

    def shorter_command(until: datetime) -> str:
        return f"cloudgpu extend {command_name(machine)} {span_text(until - start)}"

    return Remedy(shorter_command, None if machine.renew_until is None else max(start, from_iso(machine.renew_until)))


def set_hold(session: Session, machine: Machine, until: datetime | None, *, is_by_user: bool = True) -> Machine:
    """Set a hold that ends at `until`, or release it (None); return the updated machine.

    Under the machine's lock: a run of the reaper that is about to end it either sees the hold, or has ended it before.
    A hold by the user (`is_by_user`) also withdraws a requested stop or end, and is checked against the account's
    credit; one by a job does neither. Raises InstanceNotFound for a machine that has ended, InvalidRequest for an end
    beyond the lab's limits, RoleNeeded where the user may not hold it, BudgetRefused where the credit does not last.
    """
    check_right_and_claim_owner(session, machine, "hold")
    check_hold_end(session, machine.name, until)
    if is_by_user:
        check_credit_of_hold(session, [machine], until)
    with lock_machine(session, machine):
        if is_by_user and until is not None:
            cancel_pending_end(session, machine)
        return set_hold_locked(session, machine, until)


def check_hold_end(session: Session, name: str, until: datetime | None) -> None:
    """Raise InvalidRequest for the end of a hold beyond the lab's limits.

    A release needs no limits, so a broken limits file does not prevent it.
    """
    if until is not None:
        check_hold_length(name, until, session.clock(), limits_of(session))


def set_hold_locked(session: Session, machine: Machine, until: datetime | None) -> Machine:
    """Set or release a hold as `set_hold` does, under a lock that the caller holds; return the updated machine."""
    until = until and until.replace(microsecond=0)  # as a tag can carry it
    machine = refresh_lease(session, session.ledger.machine(machine.id) or machine)
    with on_abort(f"The hold of {machine.name} may be set or not. Run the same command again."):
        _set_tags(session, machine, hold_tags(until))
        now, requester = _time_after_last_lease(session, machine), requester_record(session, machine, "hold")
        event = hold_set(machine.id, until, "asked", now, host=platform.node(), who=requester)
        return session.ledger.append_to(machine, [event])


def _time_after_last_lease(session: Session, machine: Machine) -> datetime:
    """Return now, or just after the latest hold or lease of a machine where this clock is behind that.

    A release with an earlier time than its hold would keep the machine, and its bill, until that hold ends. A lease
    with an earlier time than the previous one would not count, and the previous one would end the machine; two with the
    same time and the same renew-until are one event.
    """
    return time_after_events(session, machine, ("hold_set", "lease_set"))


def check_hold_options(name: str, until: object, *, release: bool) -> None:
    """Raise InvalidRequest unless there is exactly one of UNTIL and --release."""
    if release == (until is not None):
        raise InvalidRequest(
            "UNTIL and --release exclude each other." if release else "UNTIL is missing: a hold always has an end.",
            field="UNTIL",
            value=None if until is None else str(until),
            next=f"For example: cloudgpu hold {name} 2h, or: cloudgpu hold {name} --release",
        )


def _set_tags(session: Session, machine: Machine, tags: Mapping[str, str]) -> None:
    """Set the tags that the machine's agent reads; nothing where its provider has no tags."""
    provider = session.provider_of(machine)
    if isinstance(provider, Taggable):
        with explain_terminated(session, machine):
            provider.tag(not_none(machine.provider_id), tags)


def follows_lease(session: Session, machine: Machine) -> bool:
    """Say whether a machine follows a new lease or a hold: by its tags, or because only runs of the reaper end it.

    Else its agent keeps to the lease of its launch or start, and renews that itself while somebody works there.
    """
    guards = safeguards_of(machine)
    return isinstance(session.provider_of(machine), Taggable) or (guards is not None and guards.only_reaper)


def check_follows_lease(session: Session, machine: Machine) -> None:
    """Raise InvalidRequest for a running machine whose agent cannot learn of a new lease."""
    if machine.state == State.STOPPED or follows_lease(session, machine):
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
    """Refresh a machine whose lease is to be changed, and return it.

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
