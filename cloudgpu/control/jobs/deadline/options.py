"""The options by which the machines of a job with a deadline are launched: the market, and how long they may live."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from cloudgpu.core.jobs.deadline import RENEWS_FOR
from cloudgpu.core.values.times import from_iso

if TYPE_CHECKING:
    from cloudgpu.core.jobs.job import Attempt, Job

LEASE = timedelta(hours=2)


def launch_options_of(job: Job, attempt: Attempt, now: datetime) -> dict[str, str | bool]:
    """Return the options of the launch of an attempt: for a job with a deadline, those of its market and time left."""
    terms = job.deadline
    if terms is None or attempt.market is None:
        return job.spec["launch"]
    left = max(timedelta(0), from_iso(terms["at"]) - now)
    spot = attempt.market == "spot"
    words = {**lives(left, timedelta(seconds=job.spec["results_wait_s"])), **job.spec["launch"], "spot": spot}
    if spot:
        words.setdefault("max_price", _dollars(terms["on_demand"] / job.gang))  # of each machine
    else:
        words.pop("max_price", None)
    return words


def lives(left: timedelta, results_wait: timedelta) -> dict[str, str | bool]:
    """Return the options by which a machine may live: as long as is left to the deadline, and until results are here.

    A job that runs renews its lease.
    """
    longest = left + RENEWS_FOR + results_wait
    return {"lease": _typed(min(longest, LEASE)), "renew_until": _typed(longest)}


def _typed(span: timedelta) -> str:
    return f"{span // timedelta(seconds=1)}s"


def _dollars(nanos: float) -> str:
    return f"{nanos / 1e9:.6f}"
