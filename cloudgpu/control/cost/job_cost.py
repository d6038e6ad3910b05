"""Says what jobs have cost so far: the sums of `cost --by job`, for `jobs`, `show` and the limit of `--max-cost`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudgpu.core.events.job_lines import SUBJECT
from cloudgpu.core.jobs.job import Job, jobs_of
from cloudgpu.core.jobs.shares import guest_since, job_cost, machine_assignments, tariff_cost, tariff_rows
from cloudgpu.core.values.times import iso

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cloudgpu.control.session.session import Session
    from cloudgpu.core.billing.cost_groups import Ended
    from cloudgpu.core.model.machine import Machine
    from cloudgpu.core.values.money import Money
    from cloudgpu.ledger.log.base import View


def all_jobs(session: Session) -> dict[str, Job]:
    """Return every job of the ledger by its id, oldest first.

    Read apart from the rows: a job line more or less moves costs between rows, and changes no sum.
    """
    return jobs_of(session.ledger.events(SUBJECT))


def job_spent(session: Session, job: Job, *, jobs: Mapping[str, Job] | None = None) -> Money:
    """Return what a job has cost up to now: its row of `cost --by job`, to the nano-dollar. Asks no cloud.

    `jobs` are all of them by id, where the caller has folded them; they say with whom the job shared a machine.
    """
    return jobs_spent(session, [job], jobs=jobs)[job.id]


def jobs_spent(session: Session, wanted: Iterable[Job], *, jobs: Mapping[str, Job] | None = None) -> dict[str, Money]:
    """Return what each of these jobs has cost up to now, by id; reads the rows and what ended once."""
    wanted_jobs, now = list(wanted), session.clock()
    guests = [since for one in wanted_jobs if (since := guest_since(one)) is not None]

    def read(view: View) -> tuple[list[Machine], Sequence[Ended]]:
        return view.billable_machines(), list(view.ended_usages(iso(min(guests)))) if guests else ()

    machines, ended = session.ledger.read(read)
    known = all_jobs(session) if jobs is None else jobs
    shares = machine_assignments({**known, **{one.id: one for one in wanted_jobs}}.values())
    mine = [machine for machine in machines if machine.id in shares]
    gone = [one for one in ended if one[0] in shares]
    costs = {one.id: job_cost(one.id, shares, mine, gone, now) for one in wanted_jobs}
    return costs | {one.id: asks for one in wanted_jobs if (asks := tariff_cost(one, now)) is not None}


def with_tariffs(session: Session, machines: Sequence[Machine]) -> list[Machine]:
    """Return `View.billable_machines` with a row for each job that somebody else's Slurm charges for.

    Reads the jobs only where a machine of one's own may have submitted any.
    """
    if not any(machine.provider == "ssh" for machine in machines):
        return list(machines)
    return [*machines, *tariff_rows(all_jobs(session).values(), machines)]
