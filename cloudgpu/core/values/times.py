"""Times and durations as text, aware UTC in and out; calendar periods, each from a midnight of its time zone on."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import cache

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_DURATION = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?[smhdw])+")
_DATE = re.compile(r"(20\d\d)(?:-(\d\d))?(?:-(\d\d))?")
_PIECE = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhdw])")


def iso(moment: datetime) -> str:
    """Return an aware time as fixed-width UTC text that sorts by time: `2026-11-20T11:07:45.123456Z`."""
    if moment.tzinfo is None:
        message = f"{moment!r} has no time zone"
        raise ValueError(message)
    # not strftime: on Linux it writes the year 999 with three digits
    return moment.astimezone(UTC).isoformat(timespec="microseconds")[:-6] + "Z"


def from_iso(text: str) -> datetime:
    """Return the aware UTC time that `text` names; raise ValueError when it has no zone or is no time."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        message = f"{text!r} has no time zone"
        raise ValueError(message)
    if moment.tzinfo is UTC:  # as all of ours: a run over 10,000 machines reads 140,000 of them
        return moment
    try:
        return moment.astimezone(UTC)
    except OverflowError as error:
        message = f"{text!r} is outside the years 1 to 9999"
        raise ValueError(message) from error


@cache
def first_moment(text: str) -> datetime | None:
    """Return the first moment that a written date can mean: `2026-11`, `~2024 (undated)`; None for no date."""
    match = _DATE.search(text)
    try:
        return match and datetime(int(match[1]), int(match[2] or 1), int(match[3] or 1), tzinfo=UTC)
    except ValueError:  # a month 13
        return None


def minute(text: str) -> str:
    """Return a ledger time for people, to the minute: `2026-11-20 11:07 UTC`."""
    return f"{from_iso(text):%Y-%m-%d %H:%M} UTC"


def epoch(moment: datetime) -> str:
    """Return whole seconds since 1970 as text, as tags carry a time."""
    return str((moment - _EPOCH) // timedelta(seconds=1))  # a float would round the last microseconds up


def from_epoch(text: str) -> datetime:
    """Return the aware UTC time of whole epoch seconds; raise ValueError for anything else."""
    if not re.fullmatch(r"[0-9]{1,11}", text):
        message = f"{text!r} is not a time in epoch seconds"
        raise ValueError(message)
    return datetime.fromtimestamp(int(text), UTC)


def parse_duration(text: str) -> timedelta:
    """Return `90m`, `1h30m`, `8h`, `3d`, `45s` as a duration; raise ValueError for anything else or for zero."""
    text = text.strip().lower()
    if not _DURATION.fullmatch(text):
        message = f"{text!r} is not a duration"
        raise ValueError(message)
    seconds = sum(float(number) * _UNITS[unit] for number, unit in _PIECE.findall(text))
    if seconds > 10 * 366 * 86400 or not timedelta(seconds=seconds):
        message = f"{text!r} is not a duration above zero and up to ten years"
        raise ValueError(message)
    return timedelta(seconds=seconds)


def duration_text(span: timedelta | float) -> str:
    """Return a duration for people, two units at most: `3d 4h`, `8h`, `12m 5s`, `0s`."""
    seconds = int(span.total_seconds() if isinstance(span, timedelta) else span)
    sign = "-" if seconds < 0 else ""
    seconds = abs(seconds)
    pieces = []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, seconds = divmod(seconds, size)
        if count:
            pieces.append(f"{count}{unit}")
    return sign + (" ".join(pieces[:2]) or "0s")


DAY = timedelta(days=1)
KINDS = ("day", "week", "month")


@dataclass(frozen=True, slots=True)
class Period:
    """From `begin` up to and without `end`, both aware UTC."""

    begin: datetime
    end: datetime

    def holds(self, moment: datetime) -> bool:
        """Say whether a time lies in it."""
        return self.begin <= moment < self.end


def period(kind: str, now: datetime, zone: tzinfo) -> Period:
    """Return the `day`, `week` or `month` of this zone in which `now` lies; raise KeyError for another kind.

    Every moment lies in exactly one, also where a clock is put back over midnight or a date is left out.
    """
    first = _FIRST[kind](now.astimezone(zone).date())
    while now < midnight(first, zone):
        first = _FIRST[kind](first - DAY)
    while now >= (end := midnight(_next(kind, first), zone)):
        first = _next(kind, first)
    return Period(midnight(first, zone), end)


def periods(kind: str, since: datetime, until: datetime, zone: tzinfo) -> Iterator[Period]:
    """Yield the periods that [`since`, `until`) touches, whole, in order; that of `since` where both are one time."""
    found = period(kind, since, zone)
    yield found
    while found.end < until:
        found = period(kind, found.end, zone)
        yield found


def midnight(day: date, zone: tzinfo) -> datetime:
    """Return when this date begins in a zone, as aware UTC; where its first minutes are left out, when they would be.

    Of a midnight that comes twice it is the first.
    """
    return datetime.combine(day, time(), zone).astimezone(UTC)


def _next(kind: str, first: date) -> date:
    return _FIRST[kind](first + {"day": 1, "week": 7, "month": 31}[kind] * DAY)


_FIRST: dict[str, Callable[[date], date]] = {
    "day": lambda day: day,
    "week": lambda day: day - day.weekday() * DAY,
    "month": lambda day: day.replace(day=1),
}
