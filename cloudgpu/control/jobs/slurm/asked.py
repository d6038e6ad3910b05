"""Says what the machine where jobs are submitted is told of one: what is asked of Slurm, and where its files are."""

from __future__ import annotations

import secrets
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from cloudgpu.access.slurm.program import program
from cloudgpu.core.clusters.layout import engine_files
from cloudgpu.core.values.naming import tag_value
from cloudgpu.core.values.times import from_iso

if TYPE_CHECKING:
    from datetime import datetime

    from cloudgpu.control.session.session import Session
    from cloudgpu.core.events.job_lines import SlurmRecord
    from cloudgpu.core.jobs.job import Job
    from cloudgpu.core.model.machine import Machine

LONGEST = 40  # letters of a job's own name in its name in Slurm


def asked_of_slurm(session: Session, job: Job, record: SlurmRecord) -> dict[str, Any]:
    """Return what `access/slurm/remote_submit.py` is told.

    In a cluster of ours a job without --gpus-per-node has whole nodes, and its files are sent to those that it gets;
    local machines are all on this computer. Somebody else's Slurm is taken to have one home on all nodes.
    """
    members = [session.ledger.machine(one) for one in record["members"]]
    first = members[0] if members else None
    if job.gang > 1 and first is not None:
        record = {**record, "minutes": minutes_of(job, first, session.clock())}
    files = None if record["cluster"] is None else engine_files(record["cluster"])
    far = first is not None and first.provider != "local"
    return {
        **{key: value for key, value in record.items() if key not in ("cluster", "members")},
        "name": queue_name(record, job),
        "conf": None if files is None else files.conf,
        "records": None if files is None else f"~/{files.records}",
        "whole": files is not None and record["gpus_per_node"] is None,
        "spread": far and len(members) > 1,
        "own": None if first is None else first.name,
        "setup": job.spec["setup"] if files is not None else None,
        "token": secrets.token_hex(16),
        "program": program(),
    }


def minutes_of(job: Job, machine: Machine, now: datetime) -> int:
    """Return the time limit of a gang's job, in minutes: its --timeout, or what is left to its machines."""
    timeout = job.spec["timeout_s"]
    if timeout is not None:
        return max(1, -(-timeout // 60))
    left = timedelta(days=1) if machine.renew_until is None else from_iso(machine.renew_until) - now
    return max(1, left // timedelta(minutes=1))


def queue_name(record: SlurmRecord, job: Job) -> str:
    """Return the name that a job has in Slurm, which no other has.

    A try after a failed one has another name. One after an interruption has the same: the job may still be in Slurm
    when what followed it has gone, and is followed again then.
    """
    tries = sum(one.ended_at is not None and not one.interrupted for one in job.attempts)
    return f"{tag_value(record['name'])[:LONGEST]}-{job.id.rpartition('-')[2]}-{tries + 1}"
