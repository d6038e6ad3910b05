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

NIGHT_START = time(3)  # when the nightly sweep is due, in the user's time zone
SHORTEST_INTERVAL = timedelta(minutes=1)  # between two runs, however many machines end one after the other


def run_due_at(last_run: LastRun, machines: Iterable[Machine], every: timedelta, now: datetime) -> datetime:
    """Return when the next run is due: `every` after the last, or when a decision or a warning falls due.

    That is when a machine would be ended, or when the grace period of a warning is over. A last run in the future (the
    clock was set back) is ignored.
    """
    if last_run.at is None or last_run.at > now:
        return now
    due_times = [at for machine in machines for at in _due_times(machine) if at > last_run.at]
    return max(last_run.at + min(every, SHORTEST_INTERVAL), min([last_run.at + every, *due_times]))


def own_run_due_at(last_run: LastRun, due_at: datetime, home: str, every: timedelta, now: datetime) -> datetime:
    """Return when `home` makes its next run, where one is due at `due_at` by the runs of all homes.

    A run of another home counts as its own if that computer does not run on a battery and checked all accounts that
    this one checks. Else this home would never guard the accounts that it alone checks.
    """
    if last_run.at is None or last_run.latest is None or last_run.latest.body.get("home") == home:
        return due_at
    runs_by_home = {run.home: run for run in last_run.scheduled}
    own_run, latest_run = runs_by_home.get(home), runs_by_home.get(str(last_run.latest.body.get("home")))
    is_covered = (
        own_run is not None
        and latest_run is not None
        and latest_run.at > own_run.at
        and bool(own_run.accounts)  # else it checks computers alone, which no other home may reach
        and latest_run.accounts >= own_run.accounts
    )
    if is_covered and latest_run is not None and latest_run.battery is False:
        return due_at
    return min(due_at, max(now if own_run is None else own_run.at + every, last_run.at + min(every, SHORTEST_INTERVAL)))


def _due_times(machine: Machine) -> Iterable[datetime]:
    """Yield when warnings and the last decision about a machine fall due."""
    if machine.terminated_at is None:
        times = [*(warning.due for warning in machine.warnings.values()), machine.decision and machine.decision.at]
        yield from map(from_iso, filter(None, times))


def is_sweep_due(last_run: LastRun, home: str, zone: tzinfo, now: datetime, *, nightly: bool = False) -> bool:
    """Say whether `home` has made no sweep (a run that also checks disks and images) since the last night began.

    A sweep of another home does not count: it may not reach the accounts of this one. Only for a home without a
    scheduled run so far it does, unless it makes nothing else (`nightly`): a container may be a new home each time.
    """
    own_run = next((run for run in last_run.scheduled if run.home == home), None)
    swept_at = own_run.swept_at if own_run is not None else None if nightly else last_run.sweep_at
    return swept_at is None or not last_night_start(zone, now) <= swept_at <= now


def last_night_start(zone: tzinfo, now: datetime) -> datetime:
    """Return the latest three o'clock in `zone` that is not after `now`."""
    local = now.astimezone(zone)
    night_start = datetime.combine(local.date(), NIGHT_START, zone)
    if night_start > now:
        night_start = datetime.combine(local.date() - timedelta(days=1), NIGHT_START, zone)
    return night_start


def prices_due_at(queried_at: Iterable[datetime], every: timedelta, now: datetime) -> datetime:
    """Return when price lists are to be refreshed: `every` after the oldest of these queries; now without any."""
    oldest = min(queried_at, default=None)
    return now if oldest is None or oldest > now else oldest + every


def clocks_diverged(
    wall_times: tuple[datetime, datetime], monotonic_times: tuple[float, float], *, tolerance_s: float = 5.0
) -> bool:
    """Say whether wall and monotonic clock have diverged by more than `tolerance_s` seconds between two readings.

    Then the computer slept (Linux's monotonic clock stops meanwhile), or the clock was set.
    """
    return (
        abs((wall_times[1] - wall_times[0]).total_seconds() - (monotonic_times[1] - monotonic_times[0])) > tolerance_s
    )
