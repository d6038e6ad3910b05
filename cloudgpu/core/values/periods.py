"""Calendar periods in a time zone: days, weeks from Monday, months. Each begins at a midnight of that zone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo

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
