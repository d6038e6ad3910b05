"""Schedules: the moments (each an "off") at which machines are ended, in local time. Level-triggered and pure.

Whoever asks compares the last off with the machine's latest start, instead of asking whether it is seven o'clock now:
a run that was missed catches up, and a machine that was started after an off stays until the next one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from cloudgpu.core.values.times import DAY

EVERY_DAY = frozenset(range(7))
_SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Schedule:
    """When machines are off: at `off`, by the clock of `tz` (an IANA name), on these days of its week.

    `days` are weekdays (0 is Monday) of the local date, `excepted_dates` local dates on which nothing is ended. `until`
    is the weekday and time at which it ends to be off, None where an off is a moment alone.
    """

    tz: str
    off: time
    days: frozenset[int] = EVERY_DAY
    excepted_dates: frozenset[date] = frozenset()
    until: tuple[int, time] | None = None


def last_off(schedules: Iterable[Schedule], now: datetime) -> datetime | None:
    """Return the latest off at or before `now`, in UTC; None where there is none. Both times are aware."""
    return max(filter(None, (_last_off(schedule, now) for schedule in schedules)), default=None)


def next_scheduled_end(schedules: Iterable[Schedule], now: datetime) -> datetime | None:
    """Return the first off after `now`, in UTC; None where there is none. Both times are aware."""
    return min(filter(None, (_next_off(schedule, now) for schedule in schedules)), default=None)


def missed_off(schedules: Iterable[Schedule], started: datetime, now: datetime) -> datetime | None:
    """Return the off at which a machine that runs since `started` should have been ended; None: it may run on."""
    off = last_off(schedules, now)
    return off if off is not None and off > started else None


def off_until(schedules: Iterable[Schedule], now: datetime) -> datetime | None:
    """Return until when machines are to stay off, in UTC; None where they may run now. `now` is aware."""
    return max(filter(None, (_off_period_end(schedule, now) for schedule in schedules)), default=None)


def offs_between(schedules: Iterable[Schedule], begin: datetime, end: datetime) -> Iterator[datetime]:
    """Yield every off after `begin` and at or before `end`, in their order."""
    all_schedules = tuple(schedules)
    off = next_scheduled_end(all_schedules, begin)
    while off is not None and off <= end:
        yield off
        off = next_scheduled_end(all_schedules, off)


@lru_cache(maxsize=256)  # a run asks the same for every machine of a policy
def _last_off(schedule: Schedule, now: datetime) -> datetime | None:
    offs = (_off_on(schedule, day) for day in _days(schedule, now, -1))
    return next((off for off in offs if off <= now), None)


@lru_cache(maxsize=256)
def _off_period_end(schedule: Schedule, now: datetime) -> datetime | None:
    off = _last_off(schedule, now)
    if schedule.until is None or off is None or now.astimezone(ZoneInfo(schedule.tz)).date() in schedule.excepted_dates:
        return None
    weekday, end_time = schedule.until
    end_schedule, off_date = replace(schedule, off=end_time), off.astimezone(ZoneInfo(schedule.tz)).date()
    days = (off_date + count * DAY for count in range(8))
    end = next(end for day in days if day.weekday() == weekday and (end := _off_on(end_schedule, day)) > off)
    return end if now < end else None


@lru_cache(maxsize=256)
def _next_off(schedule: Schedule, now: datetime) -> datetime | None:
    offs = (_off_on(schedule, day) for day in _days(schedule, now, 1))
    return next((off for off in offs if off > now), None)


def _days(schedule: Schedule, now: datetime, step: int) -> Iterator[date]:
    """Yield the dates that have an off, from `now` into the future (`step` 1) or the past (-1).

    It yields enough of them that one off is surely on the side of `now` that is asked for. It begins a day on the other
    side: where a clock is set back over midnight, tomorrow's first minutes come before today's last.
    """
    local = now.astimezone(ZoneInfo(schedule.tz)).date()
    for count in range(-1, 7 * (len(schedule.excepted_dates) + 2)):
        try:
            day = local + step * count * DAY
        except OverflowError:  # the years 1 and 9999
            return
        if day.weekday() in schedule.days and day not in schedule.excepted_dates:
            yield day


def _off_on(schedule: Schedule, day: date) -> datetime:
    """Return when the off of a local date is: the first of a time that comes twice.

    Of one that does not exist, the first moment after the gap.
    """
    zone = ZoneInfo(schedule.tz)
    local = datetime.combine(day, schedule.off, zone)
    moment = local.astimezone(UTC)
    if moment.astimezone(zone).replace(tzinfo=None) == local.replace(tzinfo=None):
        return moment
    return _end_of_gap(local.replace(fold=1).astimezone(UTC), moment, zone)


def _end_of_gap(earlier: datetime, later: datetime, zone: ZoneInfo) -> datetime:
    """Return the first second of (`earlier`, `later`] with the offset that holds at `later`: the clocks' change."""
    offset = later.astimezone(zone).utcoffset()
    return earlier + _SECOND * bisect_left(
        range((later - earlier) // _SECOND),
        x=True,
        key=lambda second: (earlier + second * _SECOND).astimezone(zone).utcoffset() == offset,
    )
