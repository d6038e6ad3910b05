"""Dates a line also by the seconds since the computer was started: with them, a wrong clock can be corrected later."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from cloudgpu.core.events.log import OWN_CLOCK, Draft

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")  # another one after each start
MIN_CLOCK_ERROR = timedelta(minutes=5)  # a clock that is wrong by less counts as right
MAX_CLOCK_ERROR = timedelta(days=1)  # if two clocks differ by more, it is not known which is right


class ClockStamp(NamedTuple):
    """When something was written: the computer's boot id, the seconds since its boot, its clock's epoch seconds."""

    boot_id: str
    uptime_s: float
    clock: float


def clock_stamp() -> ClockStamp | None:
    """Return the stamp of now; None on a computer that does not tell its starts apart (macOS)."""
    try:
        return ClockStamp(BOOT_ID.read_text().strip(), time.clock_gettime(time.CLOCK_BOOTTIME), time.time())
    except (OSError, AttributeError):
        return None


def stamp_of(value: Any) -> ClockStamp | None:
    """Return the stamp that was stored; None for none."""
    return None if value is None else ClockStamp(str(value[0]), float(value[1]), float(value[2]))


def corrected(draft: Draft, stamp: ClockStamp | None, now: datetime) -> Draft:
    """Return a line with its time put right where it was dated by this computer's clock, and that was wrong.

    `now` is what time it is. Nothing is changed where the computer was started again since: nobody knows how wrong its
    clock was before. The times in a line's body stay as they are.
    """
    stamp_now = clock_stamp()
    if stamp is None or stamp_now is None or stamp_now.boot_id != stamp.boot_id or draft.clock != OWN_CLOCK:
        return draft
    true_time = now - timedelta(seconds=stamp_now.uptime_s - stamp.uptime_s)
    clock_time = datetime.fromtimestamp(stamp.clock, UTC)
    clock_error = clock_time - true_time
    if not MIN_CLOCK_ERROR < abs(clock_error) <= MAX_CLOCK_ERROR:
        return draft
    if abs(draft.occurred_at - clock_time) <= MIN_CLOCK_ERROR:
        return replace(draft, occurred_at=draft.occurred_at - clock_error)
    if clock_time < draft.occurred_at < true_time:  # the clock was behind a line that the ledger has
        return replace(draft, occurred_at=true_time)
    return draft
