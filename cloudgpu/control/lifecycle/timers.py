"""Sets timers in the cloud: after the launch, with each new lease; and deletes them once the machine is gone.

A timer that could not be set does not fail a launch, a start or an end: that is reported, and the next run of the
reaper sets it. The exception is a start while an old timer might still fire: that would stop the started machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from cloudgpu.control.session.identity import by_account
from cloudgpu.control.session.session import Session
from cloudgpu.core.events.machine_events import timer_set
from cloudgpu.core.launch.plan import Lease
from cloudgpu.core.model.machine import Machine, command_name, not_none
from cloudgpu.core.policies.guards import needs_timer
from cloudgpu.core.values.times import from_iso, iso, minute_text
from cloudgpu.errors import AnswerTimeout, CloudgpuError, InstanceNotFound, InvalidRequest, NotReachableHere
from cloudgpu.parallel import Pool
from cloudgpu.providers.abilities import HostLeaves, SetsTimer, TimerAction, timer_action

_TimerChange = tuple[datetime | None, bool]  # when a timer fires now, None for none; whether it was changed
MAX_PARALLEL = 8  # timers set in parallel
TOLERANCE = timedelta(minutes=3)  # clouds fire to the minute, and need some lead


@dataclass
class RepairResult:
    """What a repair did: the names of machines whose timer was set, moved or dropped, and the errors of the others.

    Machines in `set` had no timer before, those in `moved` one that fired at another time. A timer that was right is in
    neither.
    """

    set: list[str] = field(default_factory=list)
    moved: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    errors: list[CloudgpuError] = field(default_factory=list)


def ensure_timer(session: Session, machine: Machine, why: str) -> Machine:
    """Let the machine's timer fire at its renew-until; return the machine. No call where it does so already.

    Raises nothing: a failure is reported, and the next run of the reaper tries again.
    """
    provider = _timer_provider(session, machine)
    if provider is None or not needs_timer(machine, session.clock()):
        return machine
    try:
        return _set_and_record(session, provider, machine, why)
    except CloudgpuError as error:
        ends_early = may_fire(machine, session.clock()) and not_none(machine.timer) < not_none(machine.renew_until)
        until_text = f" Until then it ends the machine at {minute_text(not_none(machine.timer))}." if ends_early else ""
        session.report(
            f"{machine.name}: its timer in the cloud is not set ({error.message.rstrip('.')}). cloudgpu reap sets "
            f"it.{until_text}"
        )
        return machine


def move_timer_before_start(session: Session, machine: Machine) -> None:
    """Move the timer of an earlier start to the end of the new lease. A timer that counts from each start stays.

    Raises what the provider raised where an old timer might still fire on the machine that is about to start, and
    InvalidRequest as `check_timer_reaches` where it cannot be moved from here.
    """
    provider = _timer_provider(session, machine)
    if provider is None:
        _check_unmovable_timer(session, machine, from_iso(not_none(machine.renew_until)))
        _forget_fired_timer(session, machine)
        return
    try:
        if provider.timer_limit(not_none(machine.provider_id)) is None:
            _set_and_record(session, provider, machine, "start")
    except CloudgpuError as error:
        if not may_fire(machine, session.clock()):
            session.report(
                f"{machine.name}: its timer in the cloud is not set ({error.message.rstrip('.')}). "
                "cloudgpu reap sets it."
            )
            return
        error.message += (
            f" It was not started: its timer of before would stop it at {minute_text(not_none(machine.timer))}."
        )
        raise


def check_timer_reaches(session: Session, machine: Machine, until: datetime) -> None:
    """Raise InvalidRequest where the machine's timer fires before `until` and cannot be moved.

    It was fixed at launch, or this account's settings may not move it.
    """
    provider = _timer_provider(session, machine)
    if provider is None and iso(until) != machine.renew_until:
        _check_unmovable_timer(session, machine, until)
    fixed_end = None if provider is None else provider.timer_limit(not_none(machine.provider_id))
    if fixed_end is not None and until > fixed_end + TOLERANCE:
        raise InvalidRequest(
            f"{machine.name} ends at {fixed_end:%Y-%m-%d %H:%M} UTC: {machine.provider} fixed that at its launch, and "
            "cannot move it.",
            field="renew_until",
            value=iso(until),
            next=f"Extend it to that time at most, or keep what is on it: cloudgpu stop {command_name(machine)}",
        )


def check_host_available_until(session: Session, machine: Machine, until: datetime) -> None:
    """Raise InvalidRequest where the machine's computer is taken away by its owner before `until`."""
    provider = session.provider_of(machine)
    gone_at = provider.leaves_at(not_none(machine.provider_id)) if isinstance(provider, HostLeaves) else None
    if gone_at is not None and until > gone_at:
        raise InvalidRequest(
            f"The host of {machine.name} leaves {machine.provider} at {gone_at:%Y-%m-%d %H:%M} UTC, before that lease "
            f"ends ({until:%Y-%m-%d %H:%M} UTC).",
            field="lease",
            value=iso(until),
            next="Ask for less, and copy what is on it before the host leaves: its disk may be deleted after that.",
        )


def limit_lease_to_timer(session: Session, machine: Machine, lease: Lease) -> Lease:
    """Return a lease that ends with the machine's timer, where that was fixed at its launch; else as it is.

    Reports what it has shortened.
    """
    provider = _timer_provider(session, machine)
    fixed_end = None if provider is None else provider.timer_limit(not_none(machine.provider_id))
    if fixed_end is None or machine.renew_until is None or lease.renew_until <= fixed_end + TOLERANCE:
        return lease
    latest_end = min(fixed_end.replace(microsecond=0), from_iso(machine.renew_until))
    session.report(
        f"{machine.name}: its timer was fixed at its launch: it ends at {minute_text(iso(latest_end))} at the latest"
    )
    return Lease(min(lease.expires, latest_end), latest_end)


def _check_unmovable_timer(session: Session, machine: Machine, until: datetime) -> None:
    """Raise InvalidRequest for a timer that was set with a colleague's settings, and fires before `until`.

    It would end the machine at its old time, whatever the lease says.
    """
    provider, now = session.provider_of(machine), session.clock()
    if (
        not isinstance(provider, SetsTimer)
        or not may_fire(machine, now)
        or until <= from_iso(not_none(machine.timer)) + TOLERANCE
    ):
        return
    raise InvalidRequest(
        f"{machine.name} has a timer in the cloud that ends it at {minute_text(not_none(machine.timer))}, and from "
        f"here it cannot be moved: {provider.why_no_timer()}.",
        field="renew_until",
        value=iso(until),
        next="Run this where the account's settings name the timer's role, or stay within that time.",
    )


def _forget_fired_timer(session: Session, machine: Machine) -> None:
    """Record that a timer which fired before this start is gone, and report that these settings set no other one."""
    provider = session.provider_of(machine)
    if isinstance(provider, SetsTimer) and machine.timer is not None and not may_fire(machine, session.clock()):
        _record_timer(session, machine, None, "it fired before this start, and from here none can be set")
        session.report(f"{machine.name}: {provider.why_no_timer()}")


def delete_timer(session: Session, machine: Machine) -> Machine:
    """Delete the timer of a machine that is gone; return the machine. A failure is reported, not raised."""
    provider = _timer_provider(session, machine)
    if provider is None:
        return machine
    try:
        _drop_timer(provider, machine)
        return _record_timer(session, machine, None, "the machine has ended") if machine.timer else machine
    except CloudgpuError as error:
        session.report(f"{machine.name}: its timer in the cloud stays until the next cloudgpu reap ({error.message})")
        return machine


def repair_timers(session: Session, machines: Iterable[Machine], *, sweep: bool = False) -> RepairResult:
    """Set missing timers and delete those of ended machines; calls a provider only if the ledger has such a case.

    `machines` may include ended ones. A `sweep` also lists the timers at the providers, and compares.
    """
    result, machines, now = RepairResult(), list(machines), session.clock()
    due_machines = [machine for machine in machines if needs_timer(machine, now)]
    ended_machines = [machine for machine in machines if machine.terminated_at is not None and may_fire(machine, now)]
    _set_due_timers(session, due_machines, result)
    _for_each_machine(session, ended_machines, _drop_timer, result)
    if sweep:
        latest = {machine.id: machine for machine in session.ledger.machines()}
        _repair_by_listing(session, [latest.get(machine.id, machine) for machine in machines], result)
    return result


def _set_due_timers(session: Session, due_machines: list[Machine], result: RepairResult) -> None:
    """Set the timers that the ledger does not have, unless the provider lists one: an adopted machine may have one.

    They are listed once for all machines of an account. Where that fails, each is set.
    """
    for provider, machines in _machines_by_provider(session, due_machines, result):
        timers: Mapping[str, datetime] | None = None
        with suppress(CloudgpuError):
            timers = provider.timers(ids=[machine.provider_id for machine in machines if machine.provider_id])
        correct = [
            machine
            for machine in machines
            if _is_timer_right(machine, (timers or {}).get(machine.provider_id or ""), session.clock())
        ]
        for machine in correct:
            _record_timer(session, machine, from_iso(not_none(machine.renew_until)), "it is there already")
        _for_each_machine(
            session, [machine for machine in machines if machine not in correct], _set_timer, result, timers
        )


def _is_timer_right(machine: Machine, fires_at: datetime | None, now: datetime) -> bool:
    """Say whether a timer that fires at `fires_at` is right for the machine."""
    return fires_at is not None and abs(fires_at - max(from_iso(not_none(machine.renew_until)), now)) <= TOLERANCE


def _for_each_machine(
    session: Session,
    machines: list[Machine],
    change: Callable[[SetsTimer, Machine], _TimerChange],
    result: RepairResult,
    timers: Mapping[str, datetime] | None = None,
) -> None:
    """Change the timers of these machines in parallel, and record that; one error is enough for each silent region.

    `timers` are those that were listed before; None where they were not.
    """
    targets = [
        (provider, machine) for provider, group in _machines_by_provider(session, machines, result) for machine in group
    ]
    silent_regions: dict[tuple[str, str], AnswerTimeout] = {}
    with Pool(MAX_PARALLEL) as pool:
        outcomes = list(pool.map(lambda target: _try_change(change, *target, silent_regions), targets))
    reported: set[tuple[str, str, str]] = set()
    for (_, machine), outcome in zip(targets, outcomes, strict=True):
        if isinstance(outcome, InstanceNotFound):
            continue  # the next sync records that it is gone
        if isinstance(outcome, CloudgpuError):
            silent_region = (machine.account, machine.region, outcome.kind)
            result.errors += [outcome] * (silent_region not in reported)
            reported.add(silent_region)
            continue
        fires_at, was_changed = outcome
        _record_timer(session, machine, fires_at, "repaired" if fires_at else "the machine has ended")
        was_missing = timers is not None and machine.provider_id not in timers
        names = result.dropped if fires_at is None else result.set if was_missing else result.moved
        names += [machine.name] * was_changed


def _try_change(
    change: Callable[[SetsTimer, Machine], _TimerChange],
    provider: SetsTimer,
    machine: Machine,
    silent_regions: dict[tuple[str, str], AnswerTimeout],
) -> Any:
    """Change one machine's timer; return the change, or the error of the call.

    A region that did not answer an earlier call is not called again: `silent_regions` has its error.
    """
    region = (machine.account, machine.region)
    try:
        return silent_regions.get(region) or change(provider, machine)
    except CloudgpuError as error:
        if isinstance(error, AnswerTimeout):
            silent_regions[region] = error
        return error


def _set_timer(provider: SetsTimer, machine: Machine) -> _TimerChange:
    fires_at = from_iso(not_none(machine.renew_until))
    return fires_at, provider.set_timer(not_none(machine.provider_id), fires_at, action=timer_action(machine))


def _drop_timer(provider: SetsTimer, machine: Machine) -> _TimerChange:
    provider.drop_timer(not_none(machine.provider_id))
    return None, True


def _repair_by_listing(session: Session, machines: list[Machine], result: RepairResult) -> None:
    """List the timers of each region at the providers, and correct those that differ from the ledger."""
    for provider, group in _machines_by_provider(session, [machine for machine in machines if machine.region], result):
        for region in sorted({machine.region for machine in group}):
            try:
                timers = provider.timers(region)
            except CloudgpuError as error:
                result.errors.append(error)
                continue
            _repair_all(session, [machine for machine in group if machine.region == region], timers, result)


def _repair_all(
    session: Session, machines: list[Machine], timers: Mapping[str, datetime], result: RepairResult
) -> None:
    """Correct each timer that does not fire when the ledger says."""
    now, to_set, to_drop = session.clock(), list[Machine](), list[Machine]()
    for machine in machines:
        is_due, fires_at = needs_timer(machine._replace(timer=None), now), timers.get(machine.provider_id or "")
        if is_due and not _is_timer_right(machine, fires_at, now):
            to_set.append(machine)
        elif not is_due and fires_at is not None and machine.terminated_at is not None:
            to_drop.append(machine)
    _for_each_machine(session, to_set, _set_timer, result, timers)
    _for_each_machine(session, to_drop, _drop_timer, result)


def may_fire(machine: Machine, now: datetime) -> bool:
    """Say whether the last timer that was set might still fire."""
    timer_text = machine.timer
    return timer_text is not None and (
        from_iso(timer_text) + TOLERANCE > now or timer_action(machine) is TimerAction.STOP_AGAIN
    )


def _set_and_record(session: Session, provider: SetsTimer, machine: Machine, why: str) -> Machine:
    return _record_timer(session, machine, _set_timer(provider, machine)[0], why)


def _record_timer(session: Session, machine: Machine, fires_at: datetime | None, why: str) -> Machine:
    return session.ledger.append_to(machine, [timer_set(machine.id, fires_at, why, session.clock())])


def _timer_provider(session: Session, machine: Machine) -> SetsTimer | None:
    """Return the machine's provider where it has timers that can be set in this account."""
    if machine.provider_id is None:
        return None
    provider = session.provider_of(machine)
    return provider if isinstance(provider, SetsTimer) and not provider.why_no_timer() else None


def _machines_by_provider(
    session: Session, machines: Sequence[Machine], result: RepairResult
) -> list[tuple[SetsTimer, list[Machine]]]:
    """Return these machines by the provider of their account here, where timers can be set there.

    Without machines of accounts elsewhere: the sync has reported them.
    """
    provider_kinds = {kind for kind in {machine.provider for machine in machines} if _has_timers(session, kind)}
    machines_by_account, errors = by_account(
        session, [machine for machine in machines if machine.provider_id and machine.provider in provider_kinds]
    )
    living_ids = {machine.id for machine in machines if machine.terminated_at is None}
    error_by_message = {
        error.message: error
        for id_, error in errors.items()
        if id_ in living_ids and not isinstance(error, NotReachableHere)
    }
    result.errors += error_by_message.values()
    providers = ((account, session.provider(account)) for account in sorted(machines_by_account))
    return [
        (provider, machines_by_account[account])
        for account, provider in providers
        if isinstance(provider, SetsTimer) and not provider.why_no_timer()
    ]


def _has_timers(session: Session, kind: str) -> bool:
    """Say whether an account here of this kind of provider has timers that can be set."""
    session.account(kind)  # a cloud's name may mean an account that is not in config.toml
    accounts = session.settings.accounts.items()
    for name in [name for name, account in accounts if account.provider == kind]:
        with suppress(CloudgpuError):  # raised again when it is used
            provider = session.provider(name)
            if isinstance(provider, SetsTimer) and not provider.why_no_timer():
                return True
    return False
