"""When a run of the reaper last succeeded, and the warning of every verb where none has for too long."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from cloudgpu.core.model.machine import Machine, command_name, sync_subject_of
from cloudgpu.core.policies.guards import ScheduledRun, depends_on_reaper, guarding_run, missing_for_guard, with_run
from cloudgpu.core.values.naming import first_few
from cloudgpu.core.values.times import duration_text, from_iso, iso

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cloudgpu.control.session.base import SessionBase
    from cloudgpu.core.budgets.credit import CreditReading
    from cloudgpu.core.events.log import Event
    from cloudgpu.core.model.records import CreditRecord, ScheduledRunRecord
    from cloudgpu.ledger.log.base import Ledger

SUBJECT = "reaper"  # of the ledger's events about runs
OVERDUE_AFTER = timedelta(hours=26)  # a nightly run may be two hours late
MAX_NAMED = 3  # machines in a sentence
_HOUR = timedelta(hours=1)
_STOPPED_STATES = frozenset({"stopped", "deallocated", "terminated"})


@dataclass(frozen=True, slots=True)
class LastRun:
    """The latest run of the reaper; when one last succeeded (`ok_at`), and a nightly one (`sweep_at`). None: never."""

    latest: Event | None = None
    ok_at: datetime | None = None
    sweep_at: datetime | None = None

    @property
    def scheduled(self) -> tuple[ScheduledRun, ...]:
        """The latest scheduled run of each home, with how often it makes one and what it runs on."""
        return () if self.latest is None else tuple(map(ScheduledRun.of, self.latest.body.get("scheduled", ())))

    @property
    def credits(self) -> tuple[CreditReading, ...]:
        """What was left in prepaid accounts, as a run last read it."""
        stored = () if self.latest is None else self.latest.body.get("credits", ())
        if not stored:
            return ()
        from cloudgpu.core.budgets.credit import credit_from_record

        return tuple(map(credit_from_record, stored))

    @property
    def at(self) -> datetime | None:
        """When the latest run ended, whether it succeeded or not."""
        return None if self.latest is None else from_iso(self.latest.occurred_at)

    @property
    def ok(self) -> bool | None:
        """Whether the latest run succeeded; None where there is none."""
        return None if self.latest is None else bool(self.latest.body.get("ok"))


def read_last_run(ledger: Ledger) -> LastRun:
    """Return the last run of the reaper by the ledger. One event is read: it repeats when a run last succeeded."""
    event = ledger.last(SUBJECT)
    return LastRun() if event is None else LastRun(event, _time(event.body["ok_at"]), _time(event.body["sweep_at"]))


def are_runs_current(ledger: Ledger, now: datetime) -> bool:
    """Say whether a run of the reaper has succeeded within 26 hours; a time far ahead is from a wrong clock."""
    ok_at = read_last_run(ledger).ok_at
    return ok_at is not None and abs(now - ok_at) < OVERDUE_AFTER


def _time(text: str | None) -> datetime | None:
    return None if text is None else from_iso(text)


class RunTotals(NamedTuple):
    """What the event of a run repeats of the runs before it."""

    ok_at: str | None  # when a run last succeeded
    sweep_at: str | None  # when a nightly run, a sweep, last succeeded
    runs: list[ScheduledRunRecord]  # the latest scheduled run of each home
    credits: list[CreditRecord]  # the remaining credit of each account as it was last read


def totals_after_run(
    session: SessionBase, *, ok: bool, sweep: bool, now: datetime, new_credits: Iterable[CreditReading] = ()
) -> RunTotals:
    """Return what the event of a run that ends `now` repeats of earlier runs.

    `ok`: it succeeded. `new_credits` are those that it read.
    """
    from cloudgpu.core.budgets.credit import latest_credits

    previous = read_last_run(session.ledger)
    scheduled, readings = previous.scheduled, (*previous.credits, *new_credits)
    own_run = session.current_run
    if own_run is not None:
        swept_before = next((run.swept_at for run in scheduled if run.home == own_run.home), None)
        own_run = own_run._replace(swept_at=now if ok and sweep else swept_before)
    ok_at = now if ok else previous.ok_at
    sweep_at = now if ok and sweep else previous.sweep_at
    return RunTotals(
        None if ok_at is None else iso(ok_at),
        None if sweep_at is None else iso(sweep_at),
        [item.record() for item in with_run(scheduled, own_run, now)],
        [item.record() for item in latest_credits(readings)],
    )


def overdue_sentence(
    session: SessionBase, machines: list[Machine] | None = None, last_run: LastRun | None = None
) -> str | None:
    """Return the warning that no run has succeeded for 26 hours while machines run; None where all is well.

    Also where runs succeed, and the computer whose runs alone check the account of a machine has made none for so long.
    `machines` are those of the ledger, `last_run` the last run, where the caller has them. None also within 26 hours of
    the first launch. Raises LedgerUnavailable.
    """
    now, last_run = session.clock(), last_run or read_last_run(session.ledger)
    if last_run.ok_at is not None and abs(now - last_run.ok_at) < OVERDUE_AFTER:  # as in are_runs_current
        return _silent_computer_text(session, machines, last_run.scheduled, now)
    machines = session.ledger.machines() if machines is None else machines
    billable_count = sum(map(may_be_billed, machines))
    if not billable_count or now - from_iso(min(machine.intended_at for machine in machines)) < OVERDUE_AFTER:
        return None
    return _overdue_text(last_run, now, billable_count)


def _silent_computer_text(
    session: SessionBase, machines: list[Machine] | None, runs: Sequence[ScheduledRun], now: datetime
) -> str | None:
    """Return the warning that scheduled runs of a computer have ended, and no others check its accounts' machines.

    A machine that only such runs can end is named by `unguarded_sentence`.
    """
    checked = {account for run in runs if abs(now - run.at) < OVERDUE_AFTER for account in run.accounts}
    if all(run.accounts <= checked for run in runs):
        return None
    machines = session.ledger.present_machines() if machines is None else machines
    machines = [machine for machine in machines if may_be_billed(machine) and not depends_on_reaper(machine)]
    silent = [(run, machine.name) for machine in machines if (run := silent_run_of(machine, runs, now)) is not None]
    if not silent:
        return None
    latest = max((run for run, _ in silent), key=lambda run: run.at)
    names = first_few([name for run, name in silent if run is latest], MAX_NAMED)
    return (
        f"{silence_text(latest, now)}, and no other computer checks {names}: nothing looks there for idle ones. "
        f"Run on {latest.host}: cloudgpu cron install"
    )


def silent_run_of(machine: Machine, runs: Iterable[ScheduledRun], now: datetime) -> ScheduledRun | None:
    """Return the last of the scheduled runs that check a machine's account, if none of them is of the last 26 hours."""
    subject = sync_subject_of(machine)
    checking = [run for run in runs if subject in run.accounts]
    if any(abs(now - run.at) < OVERDUE_AFTER for run in checking):
        return None
    return max(checking, key=lambda run: run.at, default=None)


def silence_text(run: ScheduledRun, now: datetime) -> str:
    """Return, as a clause, since when the computer of this run, its last one, has made none."""
    ago_text = (
        f"for {duration_text((now - run.at) // _HOUR * _HOUR)}" if run.at < now else "since its clock was set back"
    )
    return f"{run.host} has made no run of the reaper {ago_text}"


def may_be_billed(machine: Machine) -> bool:
    """Say whether a machine may be billed by the hour: it is not known to be stopped, or is billed all the same."""
    return machine.terminated_at is None and (bool(machine.billed) or machine.state not in _STOPPED_STATES)


def unguarded_machines(
    session: SessionBase, machines: Iterable[Machine], last_run: LastRun | None = None
) -> list[tuple[Machine, str]]:
    """Return those of these machines that only scheduled runs can end and that none guards now, each with why.

    `last_run` is the last run, where the caller has it. Nothing is read where no machine needs such a run.
    """
    dependent = [machine for machine in machines if may_be_billed(machine) and depends_on_reaper(machine)]
    if not dependent:
        return []
    now = session.clock()
    scheduled = with_run((last_run or read_last_run(session.ledger)).scheduled, session.current_run, now)
    scopes = ((machine, sync_subject_of(machine)) for machine in dependent)
    return [
        (one, missing_for_guard(scheduled, scope, now))
        for one, scope in scopes
        if guarding_run(scheduled, scope, now) is None
    ]


def unguarded_sentence(
    session: SessionBase, machines: list[Machine] | None = None, last_run: LastRun | None = None
) -> str | None:
    """Return the warning that no scheduled run guards a machine which only they can end; None where all is well.

    `machines` are those that are there, where the caller has them. Raises LedgerUnavailable.
    """
    unguarded = unguarded_machines(
        session, session.ledger.present_machines() if machines is None else machines, last_run
    )
    if not unguarded:
        return None
    names = first_few([machine.name for machine, _ in unguarded], MAX_NAMED)
    remedy = f"To check now: cloudgpu reap. To end it: cloudgpu down {command_name(unguarded[0][0])}"
    return f"Only scheduled runs of the reaper can end {names}, and {unguarded[0][1]}. {remedy}"


def _overdue_text(last_run: LastRun, now: datetime, billable_count: int) -> str:
    machines = "a machine runs" if billable_count == 1 else f"{billable_count} machines run"
    if last_run.ok_at is None:
        since_text = "No run of the reaper has succeeded yet"
    elif last_run.ok_at > now:
        since_text = "No run of the reaper has succeeded since the clock was set back"
    else:
        hours = (now - last_run.ok_at) // timedelta(hours=1)
        since_text = f"No run of the reaper has succeeded for {duration_text(timedelta(hours=hours))}"
    if last_run.at is not None and abs(now - last_run.at) < OVERDUE_AFTER:
        ago_text = duration_text(max(now - last_run.at, timedelta()))
        return f"{since_text}, and {machines}; the last one failed {ago_text} ago. To see why: cloudgpu reap --dry-run"
    return f"{since_text}, and {machines}: nothing here looks for idle ones. Run: cloudgpu cron install"
