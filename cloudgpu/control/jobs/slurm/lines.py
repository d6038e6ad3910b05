"""Writes down what Slurm says: of our jobs, where they are; of those that people gave to a cluster's Slurm, all."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from io import BytesIO
from typing import TYPE_CHECKING

from cloudgpu.core.clusters.layout import cluster_id, engine_files
from cloudgpu.core.clusters.queue import read_records
from cloudgpu.core.events import job_lines as lines
from cloudgpu.core.values.times import iso

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from cloudgpu.access.ssh.connection import Connection
    from cloudgpu.control.session.session import Session
    from cloudgpu.core.events.job_lines import SlurmTask
    from cloudgpu.core.events.log import Draft
    from cloudgpu.core.jobs.job import Job
    from cloudgpu.core.jobs.remote_state import EngineState
    from cloudgpu.core.model.machine import Machine

CONNECT_WITHIN_S = 3.0  # before an end
REASON_EVERY = timedelta(minutes=10)  # at most, a line that says nothing new but why a job waits
_ON_THE_WAY = ("CONFIGURING", "COMPLETING", "STAGE_OUT", "SIGNALING")
MAX_BYTES = 4_000_000  # of Slurm's record: the newest jobs


def in_slurm(job: Job, state: EngineState, names: Mapping[str, str], now: datetime) -> Draft | None:
    """Return the line of where a job is in Slurm; None where the ledger knows that.

    `names` has the ids of the cluster's machines by name.
    """
    known = {(one.id, _stage(one.state), one.begin, one.end) for one in job.runs}
    reasons = {(one.id, one.reason) for one in job.runs}
    tasks = [_task(one.id, one.state, one.nodes, (one.begin, one.end), names, one.reason) for one in state.tasks]
    new = {(one.id, _stage(one.state), _from_epoch(one.begin), _from_epoch(one.end)) for one in state.tasks}
    is_due = job.slurm_at is None or now - job.slurm_at >= REASON_EVERY
    moved = is_due and any((one["id"], one.get("reason", "")) not in reasons for one in tasks)
    if job.slurm_id == state.id and new <= known and not moved:
        return None
    return lines.job_in_slurm(job.id, job.attempts[-1].number, state.id, tasks, now)


def _stage(state: str) -> str:
    """Return a state of Slurm's without the steps on its way, which need no line of their own."""
    return "RUNNING" if state in _ON_THE_WAY else state


def _task(
    id_: str,
    state: str,
    nodes: Iterable[str],
    span: tuple[float | None, float | None],
    names: Mapping[str, str],
    reason: str = "",
) -> SlurmTask:
    begin, end = (_from_epoch(one) for one in span)
    task: SlurmTask = {
        "id": id_,
        "state": state,
        "machines": [names[one] for one in nodes if one in names],
        "begin": None if begin is None else iso(begin),
        "end": None if end is None else iso(end),
    }
    if reason not in ("", "None"):
        task["reason"] = reason
    return task


def _from_epoch(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def read_record(connection: Connection, machine: Machine) -> tuple[str, timedelta]:
    """Return the lines of Slurm's record on node 0 of a cluster, and what its clock is ahead of UTC.

    Raises Unreachable. Empty where there is no record.
    """
    from cloudgpu.access.ssh.execute import run

    path, out = engine_files(cluster_id(machine)).records, BytesIO()
    script = f'date +%z; tail -c {MAX_BYTES} "$HOME/{path}" 2>/dev/null || true'
    run(connection, ("sh", "-c", script), stdin=None, stdout=out, stderr=BytesIO())
    zone, _, text = out.getvalue().decode("utf-8", "replace").partition("\n")
    hours, minutes = int(zone[:3] or 0), int(zone[0:1] + zone[3:5] if zone[3:5] else 0)
    return text, timedelta(hours=hours, minutes=minutes)


def recorded(text: str, utc_offset: timedelta, nodes: Sequence[Machine], jobs: Iterable[Job]) -> Iterator[Draft]:
    """Yield a line for each job of Slurm's record that people gave it themselves; ours are known.

    `nodes` are those of the cluster, node 0 first; `jobs` are all of the ledger.
    """
    cluster = cluster_id(nodes[0])
    known = {(one.id, one.begin) for job in jobs if job.in_slurm for one in job.runs if _cluster_of(job) == cluster}
    ids = {one.id for job in jobs if job.in_slurm and _cluster_of(job) == cluster for one in job.runs}
    names = {one.name: one.id for one in nodes}
    for one in read_records(text, utc_offset):
        if one.begin is None or (one.id, one.begin) in known or one.id in ids:
            continue
        task = _task(one.id, one.state, one.nodes, (one.begin.timestamp(), one.end.timestamp()), names)
        record: lines.SlurmJobRecorded = {
            "cluster": cluster,
            "members": [node.id for node in nodes],
            "user": one.user,
            "name": one.name,
            "status": one.status,
            "task": task,
        }
        yield lines.slurm_job_recorded(record, one.end)


def keep_record(session: Session, nodes: Sequence[Machine]) -> None:
    """Write down what Slurm's record on node 0 says of people's own jobs: a cluster that ends takes the record along.

    `nodes` are those of the cluster, node 0 first. No end waits for a node that does not answer: raises nothing.
    """
    from cloudgpu.access.ssh.connection import connect
    from cloudgpu.control.session.session import all_jobs
    from cloudgpu.errors import CloudgpuError

    if nodes[0].state != "running" or not nodes[0].address:
        return
    with suppress(CloudgpuError, OSError, ValueError):
        with connect(session.target(nodes[0]), timeout=CONNECT_WITHIN_S) as connection:
            text, utc_offset = read_record(connection, nodes[0])
        drafts = list(recorded(text, utc_offset, nodes, all_jobs(session).values()))
        if drafts:
            session.ledger.append(drafts)


def _cluster_of(job: Job) -> str | None:
    return None if job.in_slurm is None else job.in_slurm["cluster"]
