"""Times and durations as text, always aware UTC; calendar periods, which begin at midnight in a time zone."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import cache

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAY, HOUR, MICRO = timedelta(days=1), timedelta(hours=1), timedelta(microseconds=1)
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}  # seconds
_DURATION = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?[smhdw])+")
_DATE = re.compile(r"(20\d\d)(?:-(\d\d))?(?:-(\d\d))?")
_NUMBER_AND_UNIT = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhdw])")


def iso(moment: datetime) -> str:
    """Return an aware time as fixed-width UTC text that sorts by time: `2026-11-20T11:07:45.123456Z`."""
    if moment.tzinfo is None:
        raise ValueError(f"{moment!r} has no time zone")
    # not strftime: on Linux it writes the year 999 with three digits
    return moment.astimezone(UTC).isoformat(timespec="microseconds")[:-6] + "Z"


def from_iso(text: str) -> datetime:
    """Return the aware UTC time that `text` names; raise ValueError when it has no zone or is no time."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone")
    if moment.tzinfo is UTC:  # the fast way for our own times: a run over 10,000 machines reads 140,000 of them
        return moment
    try:
        return moment.astimezone(UTC)
    except OverflowError as error:
        raise ValueError(f"{text!r} is outside the years 1 to 9999") from error


@cache
def earliest_moment(text: str) -> datetime | None:
    """Return the earliest time that a date in a text can mean: `2026-11`, `~2024 (undated)`; None without a date."""
    match = _DATE.search(text)
    try:
        return match and datetime(int(match[1]), int(match[2] or 1), int(match[3] or 1), tzinfo=UTC)
    except ValueError:  # a month 13
        return None


def minute_text(text: str) -> str:
    """Return a ledger time for people, cut to the minute: `2026-11-20 11:07 UTC`."""
    return f"{from_iso(text):%Y-%m-%d %H:%M} UTC"


def epoch_text(moment: datetime) -> str:
    """Return a time as tags hold it: whole seconds since 1970, as text."""
    return str((moment - EPOCH) // timedelta(seconds=1))  # a float would round the last microseconds up


def from_epoch(text: str) -> datetime:
    """Return the aware UTC time of whole epoch seconds; raise ValueError for anything else."""
    if not re.fullmatch(r"[0-9]{1,11}", text):
        raise ValueError(f"{text!r} is not a time in epoch seconds")
    return datetime.fromtimestamp(int(text), UTC)


def parse_duration(text: str) -> timedelta:
    """Return `90m`, `1h30m`, `8h`, `3d`, `45s` as a duration; raise ValueError for anything else or for zero."""
    text = text.strip().lower()
    if not _DURATION.fullmatch(text):
        raise ValueError(f"{text!r} is not a duration")
    seconds = sum(float(number) * _UNITS[unit] for number, unit in _NUMBER_AND_UNIT.findall(text))
    if seconds > 10 * 366 * 86400 or not timedelta(seconds=seconds):
        raise ValueError(f"{text!r} is not a duration above zero and up to ten years")
    return timedelta(seconds=seconds)


def seconds_text(duration: timedelta) -> str:
    """Return a duration in whole seconds, as `parse_duration` reads it: `5400s`."""
    return f"{duration // timedelta(seconds=1)}s"


def duration_text(duration: timedelta | float) -> str:
    """Return a duration for people, two units at most: `3d 4h`, `8h`, `12m 5s`, `0s`."""
    seconds = int(duration.total_seconds() if isinstance(duration, timedelta) else duration)
    sign = "-" if seconds < 0 else ""
    seconds = abs(seconds)
    parts = []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(f"{count}{unit}")
    return sign + (" ".join(parts[:2]) or "0s")


PERIOD_KINDS = ("day", "week", "month")


@dataclass(frozen=True, slots=True)
class Period:
    """The time from `begin` until just before `end`, both aware UTC."""

    begin: datetime
    end: datetime


def period(kind: str, now: datetime, zone: tzinfo) -> Period:
    """Return the `day`, `week` or `month` of this zone that contains `now`; raise KeyError for another kind.

    Every time is in exactly one, even where clocks go back over midnight or a zone skips a date.
    """
    first_day = _FIRST_DAY_OF[kind](now.astimezone(zone).date())
    while now < midnight(first_day, zone):
        first_day = _FIRST_DAY_OF[kind](first_day - DAY)
    while now >= (end := midnight(_next_first_day(kind, first_day), zone)):
        first_day = _next_first_day(kind, first_day)
    return Period(midnight(first_day, zone), end)


def periods(kind: str, since: datetime, until: datetime, zone: tzinfo) -> Iterator[Period]:
    """Yield the whole periods that [`since`, `until`) touches, in order; at least the one that contains `since`."""
    current = period(kind, since, zone)
    yield current
    while current.end < until:
        current = period(kind, current.end, zone)
        yield current


def midnight(day: date, zone: tzinfo) -> datetime:
    """Return when this date begins in a zone, as aware UTC, even where the zone skips that midnight.

    Where a midnight comes twice, it is the first.
    """
    return datetime.combine(day, time(), zone).astimezone(UTC)


def _next_first_day(kind: str, first_day: date) -> date:
    return _FIRST_DAY_OF[kind](first_day + {"day": 1, "week": 7, "month": 31}[kind] * DAY)


_FIRST_DAY_OF: dict[str, Callable[[date], date]] = {
    "day": lambda day: day,
    "week": lambda day: day - day.weekday() * DAY,
    "month": lambda day: day.replace(day=1),
}
