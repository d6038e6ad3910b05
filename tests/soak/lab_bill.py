"""What the lab's machines cost by AWS's rules, from the models' own books: nothing of cloudgpu's billing is in it.

Compute by the second with a minute at least for each start, the public address while it runs, the disk from the launch
to the end, a minute at least, by the hours of each month.
"""

from __future__ import annotations

import calendar
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

USD_PER_HOUR = {"p3.2xlarge": Fraction("3.06"), "g4dn.xlarge": Fraction("0.526")}
ADDRESS, DISK_MONTH, DISK_GB = Fraction("0.005"), Fraction("0.08"), 93
HOUR, MINUTE = 3600, 60


def cost(machine: Mapping[str, Any], until: float) -> Fraction:
    """Return what this machine of the book has cost up to a time, in nano-dollars, exact.

    `unaddressed`: without its public address.
    """
    rate = USD_PER_HOUR[machine["type"]]
    address = 0 if machine.get("unaddressed") else ADDRESS
    total = Fraction(0)
    for begin, end in runs(machine, until):
        total += max(Fraction(end - begin), MINUTE) * rate / HOUR + Fraction(end - begin) * address / HOUR
    begin, end = machine["log"][0][0], min(ended_at(machine) or until, until)
    total += _disk(begin, max(end, begin + MINUTE))
    return total * 10**9


def ahead(machine: Mapping[str, Any], now: float, until: float) -> Fraction:
    """Return what it still costs if it runs on up to a time, in nano-dollars."""
    if machine["state"] not in {"pending", "running"} or until <= now:
        return Fraction(0)
    rate = USD_PER_HOUR[machine["type"]] + ADDRESS
    return (Fraction(until - now) * rate / HOUR + _disk(now, until)) * 10**9


def runs(machine: Mapping[str, Any], until: float) -> Iterator[tuple[float, float]]:
    """Yield from when to when it ran."""
    begin = None
    for at, state in machine["log"]:
        if state == "running" and begin is None:
            begin = at
        elif state in {"stopping", "shutting-down", "stopped", "terminated"} and begin is not None:
            yield begin, max(begin, min(at, until))
            begin = None
    if begin is not None:
        yield begin, max(begin, until)


def ended_at(machine: Mapping[str, Any]) -> float | None:
    return next((at for at, state in machine["log"] if state in {"shutting-down", "terminated"}), None)


def _disk(begin: float, end: float) -> Fraction:
    total, at, last = Fraction(0), _aware(begin), _aware(end)
    while at < last:
        days = calendar.monthrange(at.year, at.month)[1]
        first = at.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        following = min(last, first + timedelta(days=days))
        total += Fraction(int((following - at).total_seconds())) * DISK_MONTH * DISK_GB / (days * 24 * HOUR)
        at = following
    return total


def _aware(epoch: float) -> datetime:
    return datetime.fromtimestamp(epoch, UTC)
