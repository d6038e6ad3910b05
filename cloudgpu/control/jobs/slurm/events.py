"""Writes Slurm's records into the ledger: the state of our jobs, and external jobs.

An external job is one that somebody submitted to a cluster's Slurm directly, without cloudgpu.
"""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from io import BytesIO
from typing import TYPE_CHECKING

from cloudgpu.core.clusters.layout import cluster_id, engine_paths
from cloudgpu.core.clusters.queue import read_records
from cloudgpu.core.events import job_events
from cloudgpu.core.values.times import iso

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from cloudgpu.access.ssh.connection import Connection
    from cloudgpu.control.session.session import Session
    from cloudgpu.core.events.job_events import SlurmTask
    from cloudgpu.core.events.log import Draft
    from cloudgpu.core.jobs.job import Job
    from cloudgpu.core.jobs.remote_state import SlurmJobState
    from cloudgpu.core.model.machine import Machine

CONNECT_TIMEOUT_S = 3.0  # to read the completion log before a cluster is terminated
REASON_INTERVAL = timedelta(minutes=10)  # between events that differ only in why a job waits
_TRANSITION_STATES = ("CONFIGURING", "COMPLETING", "STAGE_OUT", "SIGNALING")
MAX_BYTES = 4_000_000  # of Slurm's completion log, from its end: the newest jobs
# What `date +%z` prints; a greeting of the machine's shell may stand before it.
_ZONE_LINE = re.compile(r"^(?P<sign>[+-])(?P<hours>\d\d)(?P<minutes>\d\d)\n", re.MULTILINE)


def slurm_state_event(job: Job, state: SlurmJobState, ids_by_name: Mapping[str, str], now: datetime) -> Draft | None:
    """Return the event with the state of a job in Slurm; None where the ledger has that state.

    `ids_by_name` has the ids of the cluster's machines by name.
    """
    known_states = {(task.id, _settled_state(task.state), task.begin, task.end) for task in job.runs}
    known_reasons = {(task.id, task.reason) for task in job.runs}
    tasks = [
        _task(
            task.id,
            task.state,
            task.nodes,
            (_from_epoch(task.begin), _from_epoch(task.end)),
            ids_by_name,
            task.reason,
        )
        for task in state.tasks
    ]
    current_states = {
        (task.id, _settled_state(task.state), _from_epoch(task.begin), _from_epoch(task.end)) for task in state.tasks
    }
    is_reason_due = job.slurm_at is None or now - job.slurm_at >= REASON_INTERVAL
    has_new_reason = is_reason_due and any((task["id"], task.get("reason", "")) not in known_reasons for task in tasks)
    if job.slurm_id == state.id and current_states <= known_states and not has_new_reason:
        return None
    return job_events.job_in_slurm(job.id, job.attempts[-1].number, state.id, tasks, now)


def _settled_state(state: str) -> str:
    """Return a state of Slurm; RUNNING for its transitions, which get no event of their own."""
    return "RUNNING" if state in _TRANSITION_STATES else state


def _task(
    id_: str,
    state: str,
    nodes: Iterable[str],
    interval: tuple[datetime | None, datetime | None],
    ids_by_name: Mapping[str, str],
    reason: str = "",
) -> SlurmTask:
    """Return the record of a Slurm job or array element; `interval` is its begin and end."""
    begin, end = interval
    task: SlurmTask = {
        "id": id_,
        "state": state,
        "machines": [ids_by_name[name] for name in nodes if name in ids_by_name],
        "begin": None if begin is None else iso(begin),
        "end": None if end is None else iso(end),
    }
    if reason not in ("", "None"):
        task["reason"] = reason
    return task


def _from_epoch(epoch_s: float | None) -> datetime | None:
    return None if epoch_s is None else datetime.fromtimestamp(epoch_s, UTC)


def read_completion_log(connection: Connection, machine: Machine) -> tuple[str, timedelta]:
    """Return the text of Slurm's completion log on node 0 of a cluster, and how far its time zone is ahead of UTC.

    The log has a line for each job that ended. Empty where there is no log, or the time zone cannot be read. Raises
    Unreachable.
    """
    from cloudgpu.access.ssh.execute import run

    path, out = engine_paths(cluster_id(machine)).records, BytesIO()
    script = f'date +%z; tail -c {MAX_BYTES} "$HOME/{path}" 2>/dev/null || true'
    run(connection, ("sh", "-c", script), stdin=None, stdout=out, stderr=BytesIO())
    zone = _ZONE_LINE.search(text := out.getvalue().decode("utf-8", "replace"))
    if zone is None:
        return "", timedelta(0)
    ahead = timedelta(hours=int(zone["hours"]), minutes=int(zone["minutes"]))
    return text[zone.end() :], -ahead if zone["sign"] == "-" else ahead


def external_job_events(
    text: str, utc_offset: timedelta, nodes: Sequence[Machine], jobs: Iterable[Job]
) -> Iterator[Draft]:
    """Yield an event for each external job in Slurm's completion log.

    `nodes` are those of the cluster, node 0 first; `jobs` are all of the ledger, which are not external.
    """
    cluster = cluster_id(nodes[0])
    known_ids = {
        run.id for job in jobs if job.slurm_record and job.slurm_record["cluster"] == cluster for run in job.runs
    }
    ids_by_name = {node.name: node.id for node in nodes}
    for entry in read_records(text, utc_offset):
        if entry.begin is None or entry.id in known_ids:
            continue
        task = _task(entry.id, entry.state, entry.nodes, (entry.begin, entry.end), ids_by_name)
        record: job_events.SlurmJobRecorded = {
            "cluster": cluster,
            "members": [node.id for node in nodes],
            "user": entry.user,
            "name": entry.name,
            "status": entry.status,
            "task": task,
        }
        yield job_events.slurm_job_recorded(record, entry.end)


def append_external_jobs(session: Session, connection: Connection, nodes: Sequence[Machine]) -> None:
    """Record the external jobs in Slurm's completion log, read over a connection to node 0, the first of `nodes`.

    Raises Unreachable.
    """
    from cloudgpu.control.session.session import all_jobs

    text, utc_offset = read_completion_log(connection, nodes[0])
    session.ledger.append(list(external_job_events(text, utc_offset, nodes, all_jobs(session).values())))


def record_external_jobs(session: Session, nodes: Sequence[Machine]) -> None:
    """Record the external jobs in Slurm's completion log on node 0: the log is lost with the cluster.

    `nodes` are those of the cluster, node 0 first. Raises nothing: the cluster ends even if node 0 does not answer.
    """
    from cloudgpu.access.ssh.connection import connect
    from cloudgpu.errors import CloudgpuError

    if nodes[0].state == "running" and nodes[0].address:
        with (
            suppress(CloudgpuError, OSError, ValueError),
            connect(session.target(nodes[0]), timeout=CONNECT_TIMEOUT_S) as connection,
        ):
            append_external_jobs(session, connection, nodes)
