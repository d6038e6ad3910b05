"""When a run last succeeded, and the one line that every verb says where none has for too long."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from cloudgpu.core.model.machine import Machine, scope_of_row
from cloudgpu.core.policies.guards import ScheduledRun, guarding_run, missing_for_guard, needs_runs, with_run
from cloudgpu.core.values.naming import first_few
from cloudgpu.core.values.times import duration_text, from_iso, iso

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cloudgpu.control.session.base import SessionBase
    from cloudgpu.core.budgets.credit import CreditReading
    from cloudgpu.core.events.log import Event
    from cloudgpu.core.model.records import CreditRecord, ScheduledRunRecord
    from cloudgpu.ledger.log.base import Ledger

SUBJECT, KIND = "reaper", "reap_finished"
OVERDUE_AFTER = timedelta(hours=26)  # a nightly pass that is two hours late is not yet news
NAMED = 3  # machines in a sentence
_ASLEEP = frozenset({"stopped", "deallocated", "terminated"})


@dataclass(frozen=True, slots=True)
class LastRun:
    """What the ledger says of passes: the latest, when one last succeeded, when one last swept. None: never."""

    latest: Event | None = None
    ok_at: datetime | None = None
    sweep_at: datetime | None = None

    @property
    def scheduled(self) -> tuple[ScheduledRun, ...]:
        """The latest scheduled run of each home, with how often it makes one and what it runs on."""
        runs = () if self.latest is None else self.latest.body.get("scheduled", ())
        if not runs:
            return ()
        return tuple(map(ScheduledRun.of, runs))

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
        """When the latest ended, well or not."""
        return None if self.latest is None else from_iso(self.latest.occurred_at)

    @property
    def ok(self) -> bool | None:
        """Say whether the latest went well; None for none."""
        return None if self.latest is None else bool(self.latest.body.get("ok"))


def read_last_run(ledger: Ledger) -> LastRun:
    """Return what the ledger says of passes: one line is read, for each carries what those before it have said."""
    line = ledger.last(SUBJECT)
    if line is None:
        return LastRun()
    if line.kind == KIND and {"ok_at", "sweep_at"} <= line.body.keys():
        return LastRun(line, _time(line.body["ok_at"]), _time(line.body["sweep_at"]))
    return _told(ledger.events(SUBJECT))


def are_made(ledger: Ledger, now: datetime) -> bool:
    """Say whether runs are being made: one has succeeded lately."""
    ok_at = read_last_run(ledger).ok_at
    return ok_at is not None and now - ok_at < OVERDUE_AFTER


def _time(text: str | None) -> datetime | None:
    return None if text is None else from_iso(text)


def _told(lines: Iterable[Event]) -> LastRun:
    found = LastRun()
    for line in lines:
        if line.kind == KIND:
            at, ok = from_iso(line.occurred_at), bool(line.body.get("ok"))
            swept = ok and bool(line.body.get("sweep"))
            found = LastRun(line, at if ok else found.ok_at, at if swept else found.sweep_at)
    return found


class EarlierRuns(NamedTuple):
    """What the line of a run carries of those before it."""

    ok_at: str | None
    sweep_at: str | None
    runs: list[ScheduledRunRecord]  # the latest scheduled run of each home
    left: list[CreditRecord]  # the credit of each account as it was last read


def earlier(
    session: SessionBase, *, ok: bool, sweep: bool, now: datetime, read: Iterable[CreditReading] = ()
) -> EarlierRuns:
    """Return what the line of a run that ends `now` carries of those before it; `read` are credits as it found them."""
    from cloudgpu.core.budgets.credit import latest_credits

    before = read_last_run(session.ledger)
    runs, known = before.scheduled, (*before.credits, *read)
    ok_at = now if ok else before.ok_at
    sweep_at = now if ok and sweep else before.sweep_at
    return EarlierRuns(
        None if ok_at is None else iso(ok_at),
        None if sweep_at is None else iso(sweep_at),
        [one.record() for one in with_run(runs, session.own_run, now)],
        [one.record() for one in latest_credits(known)],
    )


def overdue(session: SessionBase, machines: list[Machine] | None = None, last: LastRun | None = None) -> str | None:
    """Return the sentence that no run has succeeded for 26 hours while machines run; None where all is well.

    `machines` are those of the ledger, `last` the last run, where the caller has them. Within 26 hours of the first
    launch nothing is said. Raises LedgerUnavailable.
    """
    now, last = session.clock(), last or read_last_run(session.ledger)
    if last.ok_at is not None and abs(now - last.ok_at) < OVERDUE_AFTER:  # one far ahead was made by a wrong clock
        return None
    machines = session.ledger.machines() if machines is None else machines
    awake = sum(map(runs, machines))
    if not awake or now - from_iso(min(machine.intended_at for machine in machines)) < OVERDUE_AFTER:
        return None
    return _sentence(last, now, awake)


def runs(machine: Machine) -> bool:
    """Say whether a machine may be billed by the hour: it is not known to be stopped, or is billed all the same."""
    return machine.terminated_at is None and (bool(machine.billed) or machine.state not in _ASLEEP)


def unguarded_machines(
    session: SessionBase, machines: Iterable[Machine], last: LastRun | None = None
) -> list[tuple[Machine, str]]:
    """Return those of these machines that only scheduled runs end and that none guards now, each with why.

    `last` is the last run, where the caller has it. Nothing is read where no machine needs such a run.
    """
    alone = [machine for machine in machines if runs(machine) and needs_runs(machine)]
    if not alone:
        return []
    now = session.clock()
    known = with_run((last or read_last_run(session.ledger)).scheduled, session.own_run, now)
    scopes = ((machine, scope_of_row(machine)) for machine in alone)
    return [
        (one, missing_for_guard(known, scope, now)) for one, scope in scopes if guarding_run(known, scope, now) is None
    ]


def unguarded(session: SessionBase, machines: list[Machine] | None = None, last: LastRun | None = None) -> str | None:
    """Return the sentence that a machine which only scheduled runs end is guarded by none; None where all is well.

    `machines` are those that are there, where the caller has them. Raises LedgerUnavailable.
    """
    left = unguarded_machines(session, session.ledger.present_machines() if machines is None else machines, last)
    if not left:
        return None
    names = first_few([machine.name for machine, _ in left], NAMED)
    way = f"To check now: cloudgpu reap. To end it: cloudgpu down {left[0][0].name}"
    return f"Only scheduled runs of the reaper can end {names}, and {left[0][1]}. {way}"


def _sentence(last: LastRun, now: datetime, awake: int) -> str:
    machines = "a machine runs" if awake == 1 else f"{awake} machines run"
    if last.ok_at is None:
        since = "No run of the reaper has succeeded yet"
    elif last.ok_at > now:
        since = "No run of the reaper has succeeded since the clock was set back"
    else:
        since = f"No run of the reaper has succeeded for {duration_text(_hours(now - last.ok_at))}"
    if last.at is not None and now - last.at < OVERDUE_AFTER:
        ago = duration_text(max(now - last.at, timedelta()))
        return f"{since}, and {machines}; the last one failed {ago} ago. To see why: cloudgpu reap --dry-run"
    return f"{since}, and {machines}: nothing here looks for idle ones. Run: cloudgpu cron install"


def _hours(span: timedelta) -> timedelta:
    return timedelta(hours=span // timedelta(hours=1))
