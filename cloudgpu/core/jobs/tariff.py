"""What a job in Slurm costs by the hour: its time limit from --max-cost, and what somebody else's Slurm asks for it.

What somebody else's Slurm asks is on no machine's bill. `tariff_rows` makes a row of its own for each such job, which
is billed for GPU hours by Slurm's own record of when it ran.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import datetime

from cloudgpu.core.billing.charges import charge, money
from cloudgpu.core.jobs.job import Job
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.model.usage import Per, PriceInterval, Resource, Usage
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.times import iso

BASIS = "setting"
_RANGE = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?")


def row_id(job: Job) -> str:
    """Return the id of the row that has a job's tariff."""
    return f"{job.id}-slurm"


def has_tariff(job: Job) -> bool:
    """Say whether somebody else's Slurm asks something for a job."""
    asked = job.in_slurm
    return asked is not None and asked["cluster"] is None and asked.get("usd_per_gpu_hour") is not None


def tariff_cost(job: Job, now: datetime) -> Money | None:
    """Return what somebody else's Slurm asks for a job up to `now`: GPUs x hours x tariff; None where it asks nothing.

    Rounded half-even once to a nano-dollar.
    """
    if not has_tariff(job):
        return None
    return money(sum(charge(one, now).amount for one in tariff_uses(job, "ssh", "")))


def tariff_uses(job: Job, provider: str, market: str) -> tuple[Usage, ...]:
    """Return what is billed for a job: its GPUs, each time that Slurm had it run, by Slurm's own times."""
    asked = job.in_slurm
    price = None if asked is None else asked.get("usd_per_gpu_hour")
    gpus = 0 if asked is None else asked["nodes"] * (asked["gpus_per_node"] or 0)
    found = []
    for run in job.runs if price is not None and gpus else ():
        end = run.end or job.ended_at  # whose end nobody saw
        if run.begin is None or (end is not None and end <= run.begin):
            continue
        begin = iso(run.begin)
        prices = (PriceInterval(begin, price or 0, "usd_per_gpu_hour", None, BASIS),)
        what, until = f"GPUs of Slurm job {run.id}", None if end is None else iso(end)
        found.append(Usage(Resource.SLURM, run.id, what, provider, market, "gpu", gpus, Per.HOUR, begin, until, prices))
    return tuple(found)


def tariff_rows(jobs: Iterable[Job], machines: Iterable[Machine]) -> list[Machine]:
    """Return a row for each job that somebody else's Slurm asks something for, beside `machines` (`View.bills`).

    It is where the job was submitted, belongs to the job's owner, and has nothing but what is asked for the job.
    """
    asking = [job for job in jobs if has_tariff(job) and job.machines]
    known = {one.id: one for one in machines} if asking else {}
    rows = ((job, known.get(job.spec["machine"] or job.machines[-1])) for job in asking)
    return [_row(job, machine) for job, machine in rows if machine is not None]


def _row(job: Job, machine: Machine) -> Machine:
    return machine._replace(
        id=row_id(job),
        name=f"{job.name} in Slurm of {machine.name}",
        owner=job.spec["owner"],
        project=job.spec["project"],
        template=machine.template or "bare",  # its owner is as it was said, and no tag
        accelerators=None,
        attached_costs=(),
        retained=(),
        renew_until=None,
        open_usage=tariff_uses(job, machine.provider, machine.market),
        usage_totals={},
        charge_notes={},
        traffic=None,
    )


def elements_of(array: str | None) -> int:
    """Return how many elements an array of Slurm's has, as `--array` says them (0-9%4: ten); 1 for none."""
    return 1 if array is None else max(1, len(set(_indexes(array.partition("%")[0]))))


def _indexes(text: str) -> Iterator[int]:
    for first, last, step in _RANGE.findall(text):
        yield from range(int(first), int(last or first) + 1, int(step or 1) or 1)


def minutes_within(limit: Money, per_hour: Money, elements: int = 1) -> int:
    """Return for how many whole minutes each element of a job may run for this much in all, at so much an hour.

    Rounded down; 0 where it does not pay a minute of each. Raises ZeroDivisionError for what costs nothing.
    """
    return limit.nanos * 60 // (per_hour.nanos * elements)
