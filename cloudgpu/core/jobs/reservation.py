"""What budgets keep for a job with a deadline while no machine of its own carries it. Pure.

A machine that runs is counted to its renew-until, at the on-demand price. Between two machines that money would be free
for other launches, and the deadline relies on it. The reservation is in the lines of the job itself: it begins with its
request and is over with its end, or with the request to cancel it, whoever has died meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from cloudgpu.core.billing.charges import to_us
from cloudgpu.core.budgets.commitments import runs_on
from cloudgpu.core.budgets.exposure import Exposure
from cloudgpu.core.budgets.flows import HOURLY
from cloudgpu.core.jobs.deadline import RENEWS_FOR
from cloudgpu.core.jobs.job import Job
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.values.times import from_iso

_NOTHING_MADE = ("refused", "void")


def may_reserve(job: Job) -> bool:
    """Say whether a job may need another machine for its deadline."""
    return job.deadline is not None and job.outcome is None and job.cancel is None


def is_carried(machines: Iterable[Machine]) -> bool:
    """Say whether one of these machines runs, or may, and is counted itself."""
    return any(
        one.terminated_at is None and one.launch_status not in _NOTHING_MADE and runs_on(one) for one in machines
    )


def reservation_of(job: Job, now: datetime) -> Exposure | None:
    """Return what is kept for a job that has no machine: on demand from now on, as long as a machine of it would live.

    None for a job without a deadline, and for one that is over.
    """
    terms = job.deadline
    if terms is None or not may_reserve(job):
        return None
    at, after = from_iso(terms["at"]), RENEWS_FOR + timedelta(seconds=job.spec["results_wait_s"])
    hourly = terms.get("counted", terms["on_demand"])
    return Exposure(
        id=job.id,
        name=job.name,
        provider=terms.get("provider", ""),
        account=terms.get("account", ""),
        project=job.spec["project"],
        owner=job.spec["owner"],
        is_named_resource=False,
        settled=0,
        renew_until=to_us(max(at, now) + after),
        late=False,
        only_passes=False,
        sent=None,
        items=[(hourly, HOURLY, 0, False)],
        today=[],
        uses=[],
        others=[],
    )
