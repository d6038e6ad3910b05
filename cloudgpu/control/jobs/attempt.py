"""Has a machine for one attempt of a job, and begins its command there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudgpu.access.jobs.remote import RemoteSpec
from cloudgpu.access.jobs.snapshot import load
from cloudgpu.control.inputs.launch_request import parse_request
from cloudgpu.control.inventory.settle import settle, settle_to_end
from cloudgpu.control.inventory.stop_proof import PROVED_WITHIN
from cloudgpu.control.jobs.buckets.data import transfers
from cloudgpu.control.jobs.buckets.results import job_bucket, restored_from
from cloudgpu.control.jobs.store import directory_of, snapshots
from cloudgpu.control.launch.launch import launch
from cloudgpu.control.launch.plan import prepare
from cloudgpu.core.jobs.stored import VOLUME, folder, volume_of
from cloudgpu.core.jobs.transfers import Transfers
from cloudgpu.core.model.buckets import bucket_address
from cloudgpu.core.values.naming import lock_name
from cloudgpu.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudgpu.access.jobs.remote import RemoteJob, Restored
    from cloudgpu.control.session.session import Session
    from cloudgpu.core.jobs.job import Attempt, Job
    from cloudgpu.core.jobs.remote_state import RemoteState
    from cloudgpu.core.jobs.snapshot import Snapshot
    from cloudgpu.core.model.machine import Machine

_NOTHING_MADE = ("refused", "void")


def launched(session: Session, job: Job, attempt: Attempt) -> Machine | None:
    """Return the machine of an attempt, launched where there is none for its key yet; None for a cancelled job.

    The same key never makes two machines. Raises what `up` raises.
    """
    if attempt.key is None:  # a machine that was there
        return session.ledger.machine(attempt.machine or "")
    there = made_for(session, attempt)
    if there is not None and (there.terminated_at is not None or job.cancel is not None):
        return settled(session, job, there)
    if there is None and job.cancel is not None:
        return None
    request = parse_request(**job.spec["launch"], name=_name(job, attempt), key=attempt.key)  # type: ignore[arg-type]
    return launch(session, prepare(session, request)).machine


def made_for(session: Session, attempt: Attempt) -> Machine | None:
    """Return the machine that was, or may have been, launched for an attempt; a launch that was refused made none."""
    found = (one for one in session.ledger.machines() if one.key == attempt.key)
    return next((one for one in found if one.launch_status not in _NOTHING_MADE), None)


def settled(session: Session, job: Job, machine: Machine) -> Machine:
    """Return a machine whose launch was interrupted once it is known whether that made it; any other as it is.

    That of a job that was cancelled is not launched for it. Raises LaunchUncertain where nobody can tell yet, and what
    the launch raises that is made again.
    """
    if machine.launch_status != "open":
        return machine
    with session.hold(lock_name(machine.key), wait=5):
        found = session.ledger.machine(machine.id) or machine
        if found.launch_status != "open":  # whoever had the lock has settled it
            return found
        do = settle if job.cancel is None else settle_to_end
        return do(session, found, deadline=session.clock() + PROVED_WITHIN)


def _name(job: Job, attempt: Attempt) -> str:
    """Return what an attempt's machine is called: as its job, with a number from the second one on."""
    return job.name if attempt.number == 1 else f"{job.name}-{attempt.number}"


def started(session: Session, job: Job, remote: RemoteJob, values: Mapping[str, str]) -> RemoteState:
    """Send the snapshot, put back results and the newest checkpoint, begin the command; return what is seen then.

    An attempt begins once: where it has begun already, it is only looked at. Raises Unreachable where the connection
    is lost on the way, InvalidRequest for a snapshot that is on another computer or a machine without room.
    """
    snapshot = snapshot_of(session, job)
    count = len(snapshot.files)
    session.tell(f"{job.name}: sending {count:,} file{'s' if count != 1 else ''}")
    moved = transfers(session, job)
    restored = None
    if len(job.attempts) > 1:
        restored, brought = _restored(session, job, remote)
        moved = moved.joined(brought)
    return remote.start(
        _remote_spec(job), snapshot, snapshots(session), secrets=values, restored=restored, transfers=moved
    )


def _restored(session: Session, job: Job, remote: RemoteJob) -> tuple[Restored | None, Transfers]:
    """Return what earlier attempts left, and what of it the machine brings from the bucket; on a volume it is there."""
    there, own = job_bucket(session, job), directory_of(session, job)
    if there is not None:
        return restored_from(there, len(job.attempts) - 1) or (None, Transfers())
    if volume_of(job.spec["results_to"]) is not None:
        return None, Transfers()
    return remote.restore(own / "results", own / "checkpoints"), Transfers()


def _remote_spec(job: Job) -> RemoteSpec:
    spec = job.spec
    sources = [spec["results_to"], *(one["source"] for one in spec["data"])]
    return RemoteSpec(
        argv=tuple(spec["argv"]),
        name=job.name,
        env=spec["environment"],
        setup=spec["setup"],
        timeout_s=spec["timeout_s"],
        results=spec["results"],
        checkpoint=spec["checkpoint"],
        data=tuple((one["target"], one["source"]) for one in spec["data"] if not bucket_address(one["source"])),
        volume=None if volume_of(spec["results_to"]) is None else folder(job.name, job.id),
        mounts=any(one is not None and one.startswith(VOLUME) for one in sources),
    )


def snapshot_of(session: Session, job: Job) -> Snapshot:
    """Return the files of a job; raise InvalidRequest where they are on another computer."""
    try:
        return load(snapshots(session), job.spec["snapshot"])
    except InvalidRequest as error:
        raise InvalidRequest(
            f"The files of {job.name} are not on this computer, so it cannot be started from here.",
            field="NAME",
            value=job.name,
            next=f"Run cloudgpu watch on {job.host}, where it was asked for.",
        ) from error
