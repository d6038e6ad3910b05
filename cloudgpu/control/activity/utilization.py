"""Reads how long machines were in use in each billed hour, and the energy that the user's own machines used.

It reads the samples in this home: in a team, those of the machines that the reaper's runs of this home have asked. Time
without samples counts as unknown, not as idle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache, partial

from cloudgpu.control.session.session import Session
from cloudgpu.core.activity.utilization import HOUR, OWN_PROVIDER, ActivityReport, Hour, hours
from cloudgpu.core.events.observations import ACTIVITY_INTERVAL
from cloudgpu.core.model.machine import Machine, not_none
from cloudgpu.core.model.usage import Resource, Usage
from cloudgpu.core.values.times import from_iso
from cloudgpu.errors import CloudgpuError
from cloudgpu.ledger.last_seen import last_seen_at
from cloudgpu.ledger.samples.store import SampleStore
from cloudgpu.providers.abilities import ReportsActivity

Interval = tuple[float, float]  # begin and end in epoch seconds
JOULES_PER_KWH = 3_600_000


@dataclass(frozen=True, slots=True)
class OwnMachine:
    """The use of one of the user's own machines in a period.

    It was in use for `hours`; in `gpu_busy_hours` of them any of its GPUs worked. `gpu_hours` are the hours of each GPU
    that worked, added up; they were counted in `hours_with_gpu_count`. `kwh` is the energy that its GPUs used, without
    the rest of the computer; `watts` is their mean power in the `measured_hours`. Both are None if nobody measured.
    """

    id: str
    name: str | None
    hours: float
    gpu_busy_hours: float
    unknown_hours: float
    kwh: float | None
    watts: float | None
    measured_hours: float
    gpu_hours: float = 0.0
    hours_with_gpu_count: float = 0.0


def utilization_of(
    session: Session,
    machines: Iterable[Machine],
    ended_usages: Iterable[tuple[str, Usage]],
    since: datetime | None = None,
    until: datetime | None = None,
) -> dict[str, tuple[Hour, ...]]:
    """Return the billed hours of each machine that ran in [since, until), by machine id, oldest first.

    `ended_usages` are those of the ledger, each after its machine's id; open usage is in the machines, and lasts until
    now. The default thresholds of idleness apply, whatever a machine's policy says. Asks no machine and no provider.
    """
    now, machines = session.clock(), list(machines)
    begin, end = 0.0 if since is None else since.timestamp(), min(now, until or now).timestamp()
    billed = _billed_intervals(machines, ended_usages, now.timestamp())
    has_reports = cache(partial(_listings_have_reports, session))
    hours_by_id: dict[str, tuple[Hour, ...]] = {}
    for machine in machines:
        in_period = [
            (max(interval_begin, begin), min(interval_end, end))
            for interval_begin, interval_end in billed[machine.id]
            if interval_begin < end and interval_end > begin
        ]
        if in_period:
            utilization = SampleStore(session.home.samples, machine.id).utilization(min(in_period)[0], end)
            latest_interval = max(billed[machine.id])
            report = (
                _report_of_latest_run(session, machine, latest_interval, has_reports)
                if latest_interval[0] < end and machine.last_active
                else None
            )
            hours_by_id[machine.id] = hours(utilization, in_period, report)
    return hours_by_id


def own_machines(machines: Iterable[Machine], hours_by_id: Mapping[str, Sequence[Hour]]) -> tuple[OwnMachine, ...]:
    """Return the use of the user's own machines (provider `ssh`) that have hours, in the order of `machines`.

    Machines of `local` are left out: they run on this computer, and nobody bought them.
    """
    owned = (machine for machine in machines if machine.provider == OWN_PROVIDER and machine.id in hours_by_id)
    return tuple(_own_machine(machine, hours_by_id[machine.id]) for machine in owned)


def _own_machine(machine: Machine, billed_hours: Sequence[Hour]) -> OwnMachine:
    # `drawing`: the seconds with measured power. `cards`: GPU-seconds of work, counted in `counted` of the `gpu_s`.
    measured = [hour.joules for hour in billed_hours if hour.joules is not None]
    joules, measured_s = sum(measured), sum(hour.drawing_s for hour in billed_hours)
    return OwnMachine(
        id=machine.id,
        name=machine.name,
        hours=sum(hour.gpu_s + hour.used_s for hour in billed_hours) / HOUR,
        gpu_busy_hours=sum(hour.gpu_s for hour in billed_hours) / HOUR,
        unknown_hours=sum(hour.unknown_s for hour in billed_hours) / HOUR,
        kwh=joules / JOULES_PER_KWH if measured else None,
        watts=joules / measured_s if measured_s else None,
        measured_hours=measured_s / HOUR,
        gpu_hours=sum(hour.gpu_seconds for hour in billed_hours) / HOUR,
        hours_with_gpu_count=sum(hour.counted_s for hour in billed_hours) / HOUR,
    )


def _billed_intervals(
    machines: Iterable[Machine], ended_usages: Iterable[tuple[str, Usage]], now: float
) -> dict[str, list[Interval]]:
    """Return the intervals in which each machine was billed, by machine id; open usage lasts until now."""
    intervals: dict[str, list[Interval]] = {machine.id: [] for machine in machines}
    open_usage = ((machine.id, usage) for machine in machines for usage in machine.open_usage)
    for machine_id, usage in (*ended_usages, *open_usage):
        if machine_id in intervals and usage.resource == Resource.INSTANCE:
            end = now if usage.end is None else from_iso(usage.end).timestamp()
            intervals[machine_id].append((from_iso(usage.begin).timestamp(), end))
    return intervals


def _report_of_latest_run(
    session: Session, machine: Machine, billed_interval: Interval, has_reports: Callable[[str], bool]
) -> ActivityReport | None:
    """Return the machine's own report of its use in its latest billed interval, from a start to a stop.

    None if its provider's listings have no such reports, or it is of an earlier interval. The ledger has the
    time of last use up to a quarter of an hour late (`ACTIVITY_INTERVAL`). While a machine runs, each sync that
    lists it reads its report. This assumes that the agent was alive: if it had died, later use counts as idle.
    `has_reports` says of an account whether its listings have such reports.
    """
    last_active_at = from_iso(not_none(machine.last_active))
    if last_active_at.timestamp() < billed_interval[0] or not has_reports(machine.account):
        return None
    seen_at = last_seen_at(session.ledger, machine) if machine.billed else None
    known_until = billed_interval[1] if seen_at is None else from_iso(seen_at).timestamp()
    return ActivityReport((last_active_at + ACTIVITY_INTERVAL).timestamp(), min(known_until, billed_interval[1]))


def _listings_have_reports(session: Session, account: str) -> bool:
    """Say whether the account's listings have machines' own reports, so that the ledger has them, too."""
    try:
        return not isinstance(session.provider(account), ReportsActivity)
    except CloudgpuError:  # it is not configured any more
        return False
