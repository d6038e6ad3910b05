"""When each job of `watch` is due, by the ledger: after a crash or a night of sleep, that is now.

The only state is the ledger and the dates of the price lists. So two processes that watch one ledger agree, and one
does what the other, killed, has not done.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, time, timedelta, tzinfo

from cloudgpu.control.session.last_run import LastRun
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.values.times import from_iso

NIGHT = time(3)  # of the nightly sweep, in the user's time zone
SHORTEST = timedelta(minutes=1)  # between two runs, however many machines end one after the other


def run_due(last: LastRun, machines: Iterable[Machine], every: timedelta, now: datetime) -> datetime:
    """Return when the next run is due: `every` after the last, or when a decision or a warning falls due.

    That is when a machine would be ended, or when the grace period of a warning is over. A last run in the future (the
    clock was set back) is ignored.
    """
    if last.at is None or last.at > now:
        return now
    due_times = [at for machine in machines for at in _due_times(machine) if at > last.at]
    return max(last.at + min(every, SHORTEST), min([last.at + every, *due_times]))


def own_run_due(last: LastRun, due: datetime, home: str, every: timedelta, now: datetime) -> datetime:
    """Return when `home` makes its next run, where one is `due` by the runs of all homes.

    A run of another home counts as its own if that computer does not run on a battery and checked all accounts that
    this one checks. Else this home would never guard the accounts that it alone checks.
    """
    if last.at is None or last.latest is None or last.latest.body.get("home") == home:
        return due
    known = {run.home: run for run in last.scheduled}
    own, theirs = known.get(home), known.get(str(last.latest.body.get("home")))
    good = own is not None and theirs is not None and theirs.at > own.at and theirs.accounts >= own.accounts
    if good and theirs is not None and theirs.battery is False:
        return due
    return min(due, max(now if own is None else own.at + every, last.at + min(every, SHORTEST)))


def _due_times(machine: Machine) -> Iterable[datetime]:
    if machine.terminated_at is not None:
        return
    texts = [warning.due for warning in machine.warnings.values()]
    texts.append(machine.decision.at if machine.decision else None)
    for text in texts:
        if text is not None:
            yield from_iso(text)


def sweep_due(last: LastRun, zone: tzinfo, now: datetime) -> bool:
    """Say whether no full sweep was made since the last night began, three o'clock in `zone`."""
    return last.sweep_at is None or last.sweep_at < last_night(zone, now) or last.sweep_at > now


def last_night(zone: tzinfo, now: datetime) -> datetime:
    """Return the latest three o'clock in `zone` that is not after `now`."""
    local = now.astimezone(zone)
    night = datetime.combine(local.date(), NIGHT, zone)
    if night > now:
        night = datetime.combine(local.date() - timedelta(days=1), NIGHT, zone)
    return night


def prices_due(queried_at: Iterable[datetime], every: timedelta, now: datetime) -> datetime:
    """Return when price lists are to be refreshed: `every` after the oldest part's date; now for one never asked."""
    oldest = min(queried_at, default=None)
    return now if oldest is None or oldest > now else oldest + every


def slept(walls: tuple[datetime, datetime], ticks: tuple[float, float], *, most: float = 5.0) -> bool:
    """Say whether wall and monotonic clock have diverged by more than `most` seconds between two readings.

    Then the computer slept (Linux's monotonic clock stops meanwhile), or the clock was set.
    """
    return abs((walls[1] - walls[0]).total_seconds() - (ticks[1] - ticks[0])) > most
