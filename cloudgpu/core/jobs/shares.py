"""Allocates the cost of machines to jobs: which job a machine's cost belongs to over time, and what a job has cost.

A machine that was launched for a job is that job's from its launch to its end, also while it is kept or stopped. An
existing machine costs a job only while the job is on it; time of several jobs at once is `shared`, time of none is
`idle`. A job in a cluster's Slurm is on the machines that Slurm gave it, for as long as Slurm says; the other machines
of that cluster are `idle`. All nodes of a gang that was launched for a job are that job's. Another Slurm, which is no
cluster of cloudgpu, may charge a tariff: `tariff_records` makes a machine record for each such job, billed for GPU
hours by Slurm's own record of when it ran.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import groupby
from operator import itemgetter

from cloudgpu.core.billing.assignments import UNASSIGNED, Assignment, AssignmentsByMachine, charges_by_key
from cloudgpu.core.billing.charges import charge, money
from cloudgpu.core.jobs.job import Job
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.model.usage import EndedUsage, Per, PriceInterval, Resource, Usage
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.times import iso

BASIS = "setting"  # of the price of a tariff
_RANGE = re.compile(r"([0-9]+)(?:-([0-9]+)(?::([0-9]+))?)?")
MAX_ARRAY_INDEX = 4_000_000  # slurm.conf(5), MaxArraySize: at most 4000001
SHARED, IDLE = "shared", "idle"  # keys besides job ids, which begin with `job-`
Visit = tuple[datetime, datetime | None, str]  # (begin, end or None, job id): a job was on a machine


def machine_assignments(jobs: Iterable[Job]) -> dict[str, tuple[Assignment, ...]]:
    """Return to what each machine's costs belong over time, by its id: the id of a job, `SHARED` or `IDLE`.

    Machines without jobs are not in it. A machine that was launched for one job stays that job's, even if another one
    ran on it with `--on`.
    """
    known = list(jobs)
    launched = launched_for(known)
    assignments = {machine: (Assignment(None, None, job),) for machine, job in launched.items()}
    visits: dict[str, list[Visit]] = {}
    for machine, visit in _visits(known):
        if machine not in launched:
            visits.setdefault(machine, []).append(visit)
    for machine in (member for job in known if job.slurm_record and job.runs for member in job.slurm_record["members"]):
        if machine not in launched:
            visits.setdefault(machine, [])
    assignments |= {tariff_record_id(job): (Assignment(None, None, job.id),) for job in known if has_tariff(job)}
    return assignments | {machine: tuple(_assignments_of_visits(own_visits)) for machine, own_visits in visits.items()}


def launched_for(jobs: Iterable[Job]) -> dict[str, str]:
    """Return which job a machine was launched for, by the machine's id."""
    job_by_machine: dict[str, str] = {}
    for job in jobs:
        for attempt in job.attempts:
            if attempt.key is not None and attempt.machine is not None:
                for machine in attempt.members or (attempt.machine,):
                    job_by_machine.setdefault(machine, job.id)
            for machine in attempt.refused:
                job_by_machine.setdefault(machine, job.id)
    return job_by_machine


def on_existing_machines_since(job: Job) -> datetime | None:
    """Return since when a job is, or was, on machines that existed before it; None if it never was."""
    placed = (attempt.placed_at for attempt in job.attempts if attempt.key is None and attempt.machine is not None)
    return min((*placed, *(run.begin for run in job.runs if run.begin is not None)), default=None)


def job_cost(
    job: str, assigned: AssignmentsByMachine, machines: Iterable[Machine], ended: Iterable[EndedUsage], now: datetime
) -> Money:
    """Return what a job has cost as of `now`: its row of `cost --by job`, rounded by itself.

    `assigned` is for all jobs (`machine_assignments`). `machines` are `View.billable_machines`, whose totals suffice
    for machines that are the job's alone, so that `ended` (`View.ended_usages`) only needs the usages since
    `on_existing_machines_since`.
    """
    exact, assignments_by_machine = 0, dict[str, Sequence[Assignment]]()
    for machine in machines:
        assignments = assigned.get(machine.id, UNASSIGNED)
        if len(assignments) == 1 and assignments[0].key == job:
            exact += sum(sums[1] for sums in machine.usage_totals.values())  # [low, amount, high, ...]
            exact += sum(charge(use, now).amount for use in machine.open_usage)
        elif any(assignment.key == job for assignment in assignments):
            assignments_by_machine[machine.id] = assignments
            exact += sum(_cost_of_job_within(job, use, assignments, now) for use in machine.open_usage)
    return money(
        exact
        + sum(
            _cost_of_job_within(job, use, assignments_by_machine[machine_id], now)
            for machine_id, use in ended
            if machine_id in assignments_by_machine
        )
    )


def _cost_of_job_within(job: str, usage: Usage, assignments: Sequence[Assignment], now: datetime) -> int:
    of_job = [assignment for assignment in assignments if assignment.key == job]
    return sum(one.amount for one in charges_by_key(usage, now, of_job).values())


def _visits(jobs: Iterable[Job]) -> Iterator[tuple[str, Visit]]:
    for job in jobs:
        if (
            job.slurm_record and job.slurm_record["cluster"] is not None
        ):  # a run without a recorded end ended with its job
            yield from (
                (machine, (run.begin, run.end or job.ended_at, job.id))
                for run in job.runs
                if run.begin is not None
                for machine in run.machines
            )
        for number, one in enumerate(() if job.slurm_record else job.attempts):
            if one.machine is not None:
                following = job.attempts[number + 1].placed_at if number + 1 < len(job.attempts) else None
                left_at = one.ended_at or following or job.ended_at or job.closed_at
                yield one.machine, (one.placed_at, left_at, job.id)


def _assignments_of_visits(visits: Iterable[Visit]) -> Iterator[Assignment]:
    """Yield the assignments of one machine, which cover all of time."""
    running: dict[str, int] = {}
    since, key = None, IDLE
    for moment, changes in groupby(_changes(visits), key=itemgetter(0)):
        for _, change, job in changes:
            running[job] = running.get(job, 0) + change
            if not running[job]:
                del running[job]
        next_key = IDLE if not running else SHARED if len(running) > 1 else next(iter(running))
        if next_key != key:
            yield Assignment(since, moment, key)
            since, key = moment, next_key
    yield Assignment(since, None, key)


def _changes(visits: Iterable[Visit]) -> list[tuple[datetime, int, str]]:
    """Return (time, 1 or -1, job) per begin and end of a visit, in order; visits of no length are left out."""
    changes: list[tuple[datetime, int, str]] = []
    for begin, end, job in visits:
        if end is None or begin < end:
            changes.append((begin, 1, job))
            changes += [] if end is None else [(end, -1, job)]
    return sorted(changes)


def tariff_record_id(job: Job) -> str:
    """Return the id of the machine record that has a job's tariff (`tariff_records`)."""
    return f"{job.id}-slurm"


def has_tariff(job: Job) -> bool:
    """Return whether another Slurm charges a tariff for a job."""
    slurm_record = job.slurm_record
    return (
        slurm_record is not None
        and slurm_record["cluster"] is None
        and slurm_record.get("usd_per_gpu_hour") is not None
    )


def tariff_cost(job: Job, now: datetime) -> Money | None:
    """Return what another Slurm charges for a job up to `now`: GPUs x hours x tariff; None without a tariff.

    Rounded half-even once to a nano-dollar.
    """
    if not has_tariff(job):
        return None
    return money(sum(charge(usage, now).amount for usage in tariff_uses(job, "ssh", "")))


def tariff_uses(job: Job, provider: str, market: str) -> tuple[Usage, ...]:
    """Return the usages of a job with a tariff: its GPUs, for each run, by Slurm's times."""
    slurm_record = job.slurm_record
    price = None if slurm_record is None else slurm_record.get("usd_per_gpu_hour")
    gpus = 0 if slurm_record is None else slurm_record["nodes"] * (slurm_record["gpus_per_node"] or 0)
    usages = []
    for run in job.runs if price is not None and gpus else ():
        end = run.end or job.ended_at  # a run without a recorded end
        if run.begin is None or (end is not None and end <= run.begin):
            continue
        begin = iso(run.begin)
        prices = (PriceInterval(begin, price or 0, "usd_per_gpu_hour", None, BASIS, list_nanos=price),)
        what, until = f"GPUs of Slurm job {run.id}", None if end is None else iso(end)
        usages.append(
            Usage(Resource.SLURM, run.id, what, provider, market, "gpu", gpus, Per.HOUR, begin, until, prices)
        )
    return tuple(usages)


def tariff_records(jobs: Iterable[Job], machines: Iterable[Machine]) -> list[Machine]:
    """Return a machine record for each job with a tariff, to group its cost with `machines` (`View.billable_machines`).

    It is at the place of the machine where the job was submitted, belongs to the job's owner, and has only the tariff.
    """
    charged_jobs = [job for job in jobs if has_tariff(job) and job.machines]
    known = {one.id: one for one in machines} if charged_jobs else {}
    pairs = ((job, known.get(job.spec["machine"] or job.machines[-1])) for job in charged_jobs)
    return [_tariff_record(job, machine) for job, machine in pairs if machine is not None]


def _tariff_record(job: Job, machine: Machine) -> Machine:
    return machine._replace(
        id=tariff_record_id(job),
        name=f"{job.name} in Slurm of {machine.name}",
        owner=job.spec["owner"],
        project=job.spec["project"],
        template=machine.template or "bare",  # so that its owner is not read as a tag, which may be shortened
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
    """Return how many elements an array of Slurm's has, as `--array` says them (0-9%4: ten); 1 for none.

    Indexes beyond MAX_ARRAY_INDEX do not count: Slurm refuses them.
    """
    chosen = bytearray(MAX_ARRAY_INDEX + 1)  # a set of so many numbers would take a hundred times as much memory
    for first, last, step in _RANGE.findall((array or "").partition("%")[0]):
        indexes = range(_index(first), min(_index(last or first), MAX_ARRAY_INDEX) + 1, _index(step or "1") or 1)
        chosen[indexes.start : indexes.stop : indexes.step] = b"\1" * len(indexes)
    return max(1, chosen.count(1))


def _index(digits: str) -> int:
    """Return a number that was typed; MAX_ARRAY_INDEX + 1 for any with so many digits that `int` may refuse it."""
    digits = digits.lstrip("0")
    return int(digits or "0") if len(digits) <= len(str(MAX_ARRAY_INDEX)) else MAX_ARRAY_INDEX + 1


def minutes_within(limit: Money, per_hour: Money, elements: int = 1) -> int:
    """Return for how many whole minutes each element of a job may run if all cost `limit` at `per_hour` each.

    Rounded down; 0 if not even a minute of each fits. Raises ZeroDivisionError for a price of zero.
    """
    return limit.nanos * 60 // (per_hour.nanos * elements)
