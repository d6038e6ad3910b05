"""Launches or finds the machine for one attempt of a job, and begins its command there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta

from cloudgpu.access.jobs.program import RequestRefused
from cloudgpu.access.jobs.remote import RemoteJob, RemoteSpec, Restored
from cloudgpu.access.jobs.snapshot import load
from cloudgpu.control.cost.cost import job_spent
from cloudgpu.control.inputs.launch_request import parse_request
from cloudgpu.control.inventory.settle import resolve_before_end, settle
from cloudgpu.control.inventory.stop_proof import STOP_TIMEOUT
from cloudgpu.control.jobs.buckets.data import data_transfers
from cloudgpu.control.jobs.buckets.results import job_bucket, restore_plan
from cloudgpu.control.jobs.slurm.gang import head_node_of, nodes_of, terminate_gang
from cloudgpu.control.jobs.slurm.submission import submission_options
from cloudgpu.control.jobs.store import directory_of
from cloudgpu.control.launch.launch import launch
from cloudgpu.control.launch.plan import PreparedLaunch, prepare
from cloudgpu.control.launch.within_cost import lifetime_within_cost
from cloudgpu.control.session.session import Session
from cloudgpu.control.spot.history import better_location
from cloudgpu.core.events.job_events import Market, job_placed, job_waits
from cloudgpu.core.events.log import Draft
from cloudgpu.core.jobs.deadline import launch_options_of
from cloudgpu.core.jobs.job import NOTHING_MADE, Attempt, Job
from cloudgpu.core.jobs.remote_state import Phase, RemoteState
from cloudgpu.core.jobs.snapshot import Snapshot
from cloudgpu.core.jobs.steps import MOVED, Step
from cloudgpu.core.jobs.stored import VOLUME, folder, volume_of
from cloudgpu.core.jobs.transfers import Transfers
from cloudgpu.core.model.buckets import bucket_address
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.naming import lock_name
from cloudgpu.errors import (
    CloudgpuError,
    InvalidRequest,
    LedgerUnavailable,
    NoCapacity,
    ProviderUnavailable,
    Unreachable,
)
from cloudgpu.providers.shared.calls import result_or_error

# How long the command of a job that moves has to end by itself, before its machine is ended.
END_TIMEOUT = timedelta(seconds=30)
# in which the command may still run, or write something
LIVING_PHASES = (Phase.CLAIMED, Phase.SETUP, Phase.RUNNING, Phase.ORPHANED)


def launch_attempt(session: Session, job: Job, attempt: Attempt) -> Machine | None:
    """Return the machine of an attempt, launched where there is none for its key yet; None for a cancelled job.

    The same key never makes two machines. Raises what `up` raises.
    """
    if attempt.key is None:  # an existing machine (--on)
        return session.ledger.machine(attempt.machine or "")
    existing = find_launched_machine(session, job, attempt)
    if existing is not None and (existing.terminated_at is not None or job.cancel is not None):
        return settle_launch(session, job, existing)
    if existing is None and job.cancel is not None:
        return None
    return launch(session, _prepare_launch(session, job, attempt)).machine


def _prepare_launch(session: Session, job: Job, attempt: Attempt) -> PreparedLaunch:
    """Return the plan of an attempt's launch; of a spot job with a deadline, where spot was interrupted least."""
    options = launch_options_of(job, attempt, session.clock())
    name_and_key: dict[str, str] = {"name": _machine_name(job, attempt), "key": attempt.key or ""}
    prepared = prepare(session, parse_request(**options, **name_and_key))  # type: ignore[arg-type]
    if prepared.existing is not None or find_launched_machine(session, job, attempt) is not None:
        return prepared
    limits = _lifetime_within_rest(session, job, prepared)
    if limits is not None:
        options = {**options, "lease": limits[0], "renew_until": limits[1]}
        prepared = prepare(session, parse_request(**options, **name_and_key))  # type: ignore[arg-type]
    if attempt.market != "spot":
        return prepared
    location = better_location(session, prepared)
    if location is None:
        return prepared
    location_options = {"account": location.account, "region": location.region, "zone": location.zone or ""}
    with suppress(InvalidRequest, NoCapacity):  # sold out meanwhile: then the offers are tried in the order of prices
        return prepare(session, parse_request(**{**options, **location_options}, **name_and_key))  # type: ignore[arg-type]
    return prepared


def _lifetime_within_rest(session: Session, job: Job, prepared: PreparedLaunch) -> tuple[str, str] | None:
    """Return the lease and the renew-until that the rest of --max-cost allows a machine; None where the plan's fit.

    The options of a first machine have them already, but not with a deadline: the machines of its markets differ.
    """
    max_cost = job.spec["max_cost"]
    if max_cost is None or (job.deadline is None and len(job.attempts) == 1):
        return None
    return lifetime_within_cost(prepared, Money(max_cost) - job_spent(session, job))


def find_launched_machine(session: Session, job: Job, attempt: Attempt) -> Machine | None:
    """Return the machine that was, or may have been, launched for an attempt; None where its launch was refused.

    For a gang, return node 0.
    """
    if job.gang_size > 1:
        return None if attempt.key is None else head_node_of(session, attempt.key, job.gang_size)
    machines = [] if attempt.key is None else session.ledger.launched(attempt.key)
    return next((machine for machine in machines if machine.launch_status not in NOTHING_MADE), None)


def check_before_launch(session: Session, job: Job, attempt: Attempt, check: Callable[[], object]) -> None:
    """Raise what `check` does, where this computer could not begin a job and would launch a machine for it.

    `check` raises InvalidRequest or ProviderUnavailable. A launch that was interrupted is settled first: where it made
    all machines, no other launch is sent. Raises as `settle_launch`.
    """
    if job.cancel is not None or attempt.key is None:
        return
    try:
        check()
    except (InvalidRequest, ProviderUnavailable) as error:
        what_is_missing: CloudgpuError = error
    else:
        return
    machine = find_launched_machine(session, job, attempt)
    if machine is not None:
        settle_launch(session, job, machine)
        machine = find_launched_machine(session, job, attempt)
    nodes = () if machine is None else nodes_of(session, machine)
    if len(nodes) < job.gang_size or any(node.launch_status != "made" for node in nodes):
        raise what_is_missing


def settle_launch(session: Session, job: Job, machine: Machine) -> Machine:
    """Find out whether an interrupted launch made its machine, and return the machine as it is then.

    A machine whose launch was not interrupted is returned unchanged. For a cancelled job, no launch is sent again, and
    its gang is ended, which may be incomplete. Raises LaunchUncertain where that is not known yet, and what the
    repeated launch raises.
    """
    if machine.cluster_node is not None:
        if job.cancel is not None and any(node.launch_status == "open" for node in nodes_of(session, machine)):
            terminate_gang(session, machine, f"the job {job.name} was cancelled")
        return session.ledger.machine(machine.id) or machine
    if machine.launch_status != "open":
        return machine
    with session.lock(lock_name(machine.key), wait=5):
        latest = session.ledger.machine(machine.id) or machine
        if latest.launch_status != "open":  # another process, which held the lock, has settled it
            return latest
        resolve = settle if job.cancel is None else resolve_before_end
        return resolve(session, latest, deadline=session.clock() + STOP_TIMEOUT)


def _machine_name(job: Job, attempt: Attempt) -> str:
    """Return the name of an attempt's machine: the job's name, from the second attempt on with the attempt's number.

    A gang has an `r` before the number, since its nodes are called NAME-0, NAME-1 and so on.
    """
    prefix = "r" if job.gang_size > 1 else ""
    return job.name if attempt.number == 1 else f"{job.name}-{prefix}{attempt.number}"


def start_command(
    session: Session,
    job: Job,
    remote: RemoteJob,
    read_secrets: Callable[[], Mapping[str, str]],
    append: Callable[[Draft], None],
) -> RemoteState:
    """Send the snapshot, restore results and the newest checkpoint, begin the command; return its state then.

    An attempt begins once: where it has begun already, only its state is read. That it cannot be begun on its machine,
    which is billed, is recorded once, with the reason (`append`); not so where the ledger or the connection is lost.
    Raises LedgerUnavailable and Unreachable for these, InvalidRequest for a snapshot that is on another computer or a
    machine whose disk is full, and as `read_secrets` and `data_transfers`.
    """
    is_first_try = job.attempts[-1].stuck is None  # `stuck`: that it could not be begun there is recorded
    try:
        secrets, snapshot = read_secrets(), packed_files_of(session, job)
        count = len(snapshot.files)
        if is_first_try:
            session.report(f"{job.name}: sending {count:,} file{'s' if count != 1 else ''}")
        return _send_and_begin(session, job, remote, snapshot, secrets)
    except LedgerUnavailable:
        raise
    except CloudgpuError as error:
        if is_first_try and not is_connection_lost(error):
            why = " ".join(filter(None, (error.message, error.next)))
            append(job_waits(job.id, len(job.attempts), why, session.clock(), "start"))
        raise


def is_connection_lost(error: CloudgpuError) -> bool:
    """Say whether a start failed for want of a connection, and not because its machine, or this computer, cannot."""
    return isinstance(error, Unreachable) and not isinstance(error.__cause__, RequestRefused)


def _send_and_begin(
    session: Session, job: Job, remote: RemoteJob, snapshot: Snapshot, secrets: Mapping[str, str]
) -> RemoteState:
    """Send everything that an attempt needs, have its machine download the rest, and begin the command."""
    downloads, restored = data_transfers(session, job), None
    if len(job.attempts) > 1:
        restored, restored_transfers = _restore(session, job, remote)
        downloads = downloads.merged_with(restored_transfers)
    return remote.start(
        _remote_spec(session, job),
        snapshot,
        session.home.snapshots,
        secrets=secrets,
        restored=restored,
        transfers=downloads,
    )


def _restore(session: Session, job: Job, remote: RemoteJob) -> tuple[Restored | None, Transfers]:
    """Return the files that earlier attempts left, and those of them that the machine downloads from the bucket.

    None, and no downloads, where results are on a volume, which is attached to the machine.
    """
    bucket, directory = job_bucket(session, job), directory_of(session, job)
    if bucket is not None:
        return restore_plan(bucket, len(job.attempts) - 1) or (None, Transfers())
    if volume_of(job.spec["results_to"]) is not None:
        return None, Transfers()
    return remote.restore(directory / "results", directory / "checkpoints"), Transfers()


def _remote_spec(session: Session, job: Job) -> RemoteSpec:
    """Return the part of a job's specification that its machine gets."""
    spec, slurm = job.spec, job.slurm_record
    sources = [spec["results_to"], *(record["source"] for record in spec["data"])]
    return RemoteSpec(
        argv=tuple(spec["argv"]),
        name=job.name,
        env=spec["environment"],
        setup=None if slurm is not None and slurm["cluster"] is not None else spec["setup"],  # each node has its own
        timeout_s=spec["timeout_s"] if slurm is None else None,  # Slurm ends it: it may wait for long before
        results=spec["results"],
        checkpoint=spec["checkpoint"],
        data=tuple(
            (record["target"], record["source"]) for record in spec["data"] if not bucket_address(record["source"])
        ),
        volume=None if volume_of(spec["results_to"]) is None else folder(job.name, job.id),
        mounts=any(source is not None and source.startswith(VOLUME) for source in sources),
        slurm=None if slurm is None else submission_options(session, job, slurm),
    )


def packed_files_of(session: Session, job: Job) -> Snapshot:
    """Return the packed files with which a job begins; raise InvalidRequest where they are on another computer."""
    try:
        return load(session.home.snapshots, job.spec["snapshot"])
    except InvalidRequest as error:
        raise InvalidRequest(
            f"The files of {job.name} are not on this computer, so it cannot be started from here.",
            field="NAME",
            value=job.name,
            next=f"Run cloudgpu watch on {job.host}, where it was asked for.",
        ) from error


def has_files(session: Session, job: Job) -> bool:
    """Say whether this computer has the files of a job, so that it can begin it on another machine."""
    return isinstance(result_or_error(packed_files_of, session, job), Snapshot)


def request_end_before_move(remote: RemoteJob, state: RemoteState, elapsed: timedelta) -> bool:
    """Ask a running command to end before its last copy; say whether to wait for that. Raises Unreachable.

    `elapsed` is the time since the move was decided.
    """
    if state.phase not in LIVING_PHASES or elapsed >= END_TIMEOUT:
        return False
    remote.cancel(MOVED)
    return True


def may_have_launched(session: Session, job: Job) -> bool:
    """Say whether a launch for the open attempt of a job with a deadline may have made a machine."""
    attempt = job.attempt
    if job.deadline is None or attempt is None or attempt.machine is not None:
        return False
    return find_launched_machine(session, job, attempt) is not None


def market_of(step: Step) -> Market | None:
    """Return the market on which a step has a job run next; None where it waits, or the job has no deadline."""
    return None if step.mode is None or step.mode == "wait" else step.mode


def retry_market(job: Job, machine: Machine | None) -> Market | None:
    """Return the market of the machine on which a job with a deadline runs again; None without a deadline."""
    if job.deadline is None or machine is None:
        return None
    return "spot" if machine.market == "spot" else "on_demand"


def replacement_event(job: Job, attempt: Attempt, step: Step, now: datetime) -> Draft:
    """Return the event that an attempt for which no machine was launched is to be launched elsewhere.

    `turn` in it counts such changes, so that each launch has a key of its own.
    """
    turn = attempt.turn + 1
    key = f"{job.id}-{attempt.number}-{turn}"
    return job_placed(job.id, attempt.number, now, key=key, machine=None, market=market_of(step), turn=turn)
