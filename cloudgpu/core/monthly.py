"""The report of each month that is over: which month is due, and who has it by the ledger's lines."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta, tzinfo

from cloudgpu.core.events import Draft, Event
from cloudgpu.core.periods import Period, period

SUBJECT, SENT = "reports", "report_sent"
SETTLED = timedelta(hours=6)  # after a month's end: passes and price lists have said by then what its last hours were


def month_before(now: datetime, zone: tzinfo) -> Period:
    """Return the last calendar month of `zone` that is over."""
    this = period("month", now, zone)
    return period("month", this.begin - timedelta(microseconds=1), zone)


def month_due(now: datetime, zone: tzinfo) -> tuple[Period, datetime]:
    """Return the month whose report is to be sent by now, and when the next one's is.

    Never an older one: what nobody was there to send in all of the month after it, nobody waits for.
    """
    settled = now - SETTLED
    return month_before(settled, zone), period("month", settled, zone).end + SETTLED


def month_name(month: Period, zone: tzinfo) -> str:
    """Return what the ledger and people call it: 2026-10."""
    return f"{month.begin.astimezone(zone):%Y-%m}"


def whole_month(since: datetime | None, until: datetime | None, zone: tzinfo) -> Period | None:
    """Return the calendar month of `zone` that [since, until) is, None where it is anything else."""
    if since is None or until is None:
        return None
    found = period("month", since, zone)
    return found if (found.begin, found.end) == (since, until) else None


def have(lines: Iterable[Event], month: str) -> frozenset[str]:
    """Return the receivers that have taken the report of a month."""
    return frozenset(line.body["receiver"] for line in lines if line.kind == SENT and line.body["month"] == month)


def sent_line(month: str, receiver: str, now: datetime) -> Draft:
    """Return the line that says that this receiver has taken it; one for each, however often it was sent."""
    return Draft(SENT, SUBJECT, {"month": month, "receiver": receiver}, now, f"{SENT}:{month}:{receiver}")
