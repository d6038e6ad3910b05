"""Reads which calendar month is meant: 2026-10, or the last one that is over."""

from __future__ import annotations

import re
from datetime import datetime

from cloudgpu.config.files.zones import zone_of
from cloudgpu.core.alerts.findings import month_before
from cloudgpu.core.values.periods import Period, period
from cloudgpu.errors import InvalidRequest

LAST = "last"
_CALENDAR_MONTH = re.compile(r"[0-9]{4}-[0-9]{2}")


def month_asked(text: str, now: datetime, tz: str) -> Period:
    """Return the calendar month that `--month` means: 2026-10, or `last` for the last one that is over.

    Raises InvalidRequest for what is no month, and for one that is still to come.
    """
    zone, word = zone_of(tz), text.strip()
    if word == LAST:
        return month_before(now, zone)
    try:
        day = datetime.fromisoformat(f"{word}-15" if _CALENDAR_MONTH.fullmatch(word) else "no month")
        found = period("month", day.replace(tzinfo=zone), zone)
    except (ValueError, OverflowError):
        raise _no_month(f"{text!r} is no month.", text) from None
    if found.begin > now:
        raise _no_month(f"{text} is still to come.", text)
    return found


def _no_month(message: str, text: str) -> InvalidRequest:
    way = f"Write it like 2026-10, or {LAST} for the last month that is over."
    return InvalidRequest(message, field="--month", value=text, next=way)
