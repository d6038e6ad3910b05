"""Finds out whether a job's machine has a Slurm, and makes the options of `run` into those of its submission.

`slurm_record` is for the plan and the ledger, `submission_options` for the machine where jobs are submitted.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from io import BytesIO

from cloudgpu.access.jobs.program import slurm_program
from cloudgpu.control.access.reach import open_connection
from cloudgpu.control.clusters.together import living_nodes
from cloudgpu.control.jobs.inputs.request import RunRequest
from cloudgpu.control.session.session import Session, all_jobs
from cloudgpu.core.billing.charges import money
from cloudgpu.core.billing.forecast import burn_rate, open_usages
from cloudgpu.core.clusters.layout import cluster_id, engine_of_machine, engine_paths
from cloudgpu.core.events.job_events import SlurmRecord
from cloudgpu.core.jobs.job import Job
from cloudgpu.core.jobs.shares import elements_of, minutes_within
from cloudgpu.core.model.machine import Machine, command_name
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.naming import tag_value
from cloudgpu.core.values.times import duration_text, from_iso
from cloudgpu.errors import InvalidRequest

# Succeeds where Slurm answers: by the PATH and SLURM_CONF of any shell, else by those of a login shell.
SLURM_PROBE = ("sh", "-c", 'sinfo -h -o %P || "${SHELL:-sh}" -lc "sinfo -h -o %P"')
MINUTE = timedelta(minutes=1)
MAX_NAME = 40  # letters of a job's own name in its name in Slurm
_NO_SLURM_TEXT = (
    "Options of Slurm go with --on CLUSTER, where CLUSTER has the engine slurm, or is a machine with sbatch."
)


def slurm_record(session: Session, machine: Machine, request: RunRequest) -> SlurmRecord | None:
    """Return what a job asks of the Slurm of this machine; None where its command runs on the machine itself.

    An on-premises machine (provider `ssh`) is asked whether it has Slurm. Raises InvalidRequest for options of Slurm
    where there is none, for more nodes than it has, and for a job without a time limit; Unreachable.
    """
    options = request.slurm
    has_our_engine = engine_of_machine(machine) == "slurm"  # cloudgpu has set up its Slurm
    if not has_our_engine and not (
        machine.provider == "ssh" and machine.cluster is None and _has_slurm(session, machine)
    ):
        if options.typed_options:
            raise InvalidRequest(
                f"{options.typed_options[0]} needs a Slurm, and {machine.name} has none.",
                field=options.typed_options[0],
                value=None,
                next=f"{_NO_SLURM_TEXT} Or leave {options.typed_options[0]} out.",
            )
        return None
    nodes = living_nodes(session, machine) if has_our_engine else ()
    cluster = cluster_id(machine) if has_our_engine else None
    _check_options(request, nodes)
    record = _new_slurm_record(request, _time_limit_minutes(session, request, machine))
    record["cluster"], record["members"] = cluster, [node.id for node in nodes]
    record["after"] = None if options.after is None else _dependency_slurm_id(session, options.after, cluster, machine)
    gpu_hour_nanos = None if has_our_engine else _gpu_hour_nanos(session, machine)
    if gpu_hour_nanos is not None:
        record["usd_per_gpu_hour"] = gpu_hour_nanos
    if request.max_cost is not None:
        per_hour = (
            _hourly_cost_of_nodes(session, machine, nodes, record)
            if has_our_engine
            else _hourly_cost_of_gpus(machine, record)
        )
        record["minutes"] = _minutes_within_cost(request.max_cost, per_hour, record)
        record["per_hour"] = per_hour.nanos
    return record


def gang_slurm_record(request: RunRequest) -> SlurmRecord:
    """Return what a job asks of the Slurm of the gang that each of its attempts launches; without the gang's machines.

    Raises InvalidRequest for options that do not go with Slurm, or with a gang.
    """
    _check_supported(request)
    _refuse_if_given(request.keep, "--keep", "all machines of a job of its own end with it", "Leave --keep out.")
    return _new_slurm_record(request, 0)


def _new_slurm_record(request: RunRequest, minutes: int) -> SlurmRecord:
    """Return the record of these options, with a time limit of so many minutes."""
    options = request.slurm
    return {
        "cluster": None,
        "members": [],
        "name": request.name,
        "nodes": options.nodes,
        "minutes": minutes,
        "gpus_per_node": options.gpus_per_node,
        "array": options.array,
        "after": None,
        "partition": options.partition,
        "account": options.account,
        "once": options.once,
    }


def _gpu_hour_nanos(session: Session, machine: Machine) -> int | None:
    """Return what a GPU costs for an hour in the Slurm that a host submits to, in nano-dollars; None: it is free."""
    account = session.settings.accounts.get(machine.account)
    hosts = [] if account is None else account.options.get("hosts", [])
    usd = next((host.get("usd_per_gpu_hour") for host in hosts if host.get("name") == machine.region), None)
    return None if usd is None else Money.usd(Decimal(str(usd))).nanos


def _has_slurm(session: Session, machine: Machine) -> bool:
    """Say whether jobs can be submitted to Slurm from an on-premises machine. Raises Unreachable."""
    from cloudgpu.access.ssh.execute import run

    connection = open_connection(session, machine)
    try:
        return not run(connection, SLURM_PROBE, stdin=None, stdout=BytesIO(), stderr=BytesIO())
    finally:
        connection.close()


def _check_options(request: RunRequest, nodes: Sequence[Machine]) -> None:
    """Raise InvalidRequest for what Slurm cannot do."""
    options = request.slurm
    if nodes and options.nodes > len(nodes):
        raise InvalidRequest(
            f"--nodes {options.nodes} is more than the {len(nodes)} of {request.on}.",
            field="--nodes",
            value=str(options.nodes),
            next=f"Ask for {len(nodes)} at most, or launch a larger cluster (cloudgpu up --nodes).",
        )
    _check_supported(request)


def _check_supported(request: RunRequest) -> None:
    """Raise InvalidRequest for an option that does not go with a job in Slurm."""
    _refuse_if_given(
        request.results_to,
        "--results-to",
        "its results come to this computer",
        f"Leave --results-to out. They come to {request.results}/{request.name}: copy them on from there.",
    )
    _refuse_if_given(
        request.data,
        "--data",
        "data is fetched to one machine, and Slurm may run the job on others",
        "Leave --data out, and have the command, or --setup, fetch it on each node: aws s3 cp, say.",
    )
    _refuse_if_given(
        request.ports,
        "--port",
        "Slurm may run the job on a node that the port does not lead to",
        "Leave --port out. For a page to look at, run the command on one machine, without --on and --nodes.",
    )


def _refuse_if_given(value: object, option: str, why: str, remedy: str) -> None:
    """Raise InvalidRequest for an option that was given and does not go with Slurm."""
    if value:
        message = f"{option} does not go with a job in Slurm: {why}."
        raise InvalidRequest(message, field=option, value=None, next=remedy)


def _hourly_cost_of_nodes(session: Session, machine: Machine, nodes: Sequence[Machine], record: SlurmRecord) -> Money:
    """Return the hourly cost of the nodes that a job may get, the most expensive ones: it pays for all of a node.

    Raises InvalidRequest where a price is missing, or there is none.
    """
    now, ids = session.clock(), {node.id for node in nodes}
    machines = [node for node in session.ledger.read(lambda view: view.billable_machines()) if node.id in ids]
    rates = [burn_rate(open_usages([node], now), now) for node in machines]
    costliest = sorted((money(rate.total).nanos for rate in rates), reverse=True)
    total = Money(sum(costliest[: record["nodes"]]))
    if any(rate.without_price for rate in rates) or not total.nanos:
        why = f"and {machine.cluster.name if machine.cluster else machine.name} has none"
        raise _missing_price_error(why, "Leave it out, or limit the time: --timeout 2h")
    return total


def _hourly_cost_of_gpus(machine: Machine, record: SlurmRecord) -> Money:
    """Return what an hour of a job costs in a Slurm that cloudgpu did not set up; InvalidRequest if it is free."""
    price = record.get("usd_per_gpu_hour")
    if not price:
        remedy = f"Set usd_per_gpu_hour for {machine.name} in config.toml, or limit the time: --timeout 2h"
        raise _missing_price_error(f"and hours on {machine.name} are free", remedy)
    if record["gpus_per_node"] is None:
        raise _missing_price_error(
            "which is for GPUs there, and the job asks for none", "Add --gpus-per-node, or use --timeout."
        )
    return Money(price * record["nodes"] * record["gpus_per_node"])


def _missing_price_error(why: str, remedy: str) -> InvalidRequest:
    return InvalidRequest(f"--max-cost needs a price, {why}.", field="--max-cost", value=None, next=remedy)


def _minutes_within_cost(limit: Money, per_hour: Money, record: SlurmRecord) -> int:
    """Return the time limit, in minutes, that --max-cost pays for; the record's limit where that is shorter."""
    elements = elements_of(record["array"])
    minutes = minutes_within(limit, per_hour, elements)
    if minutes:
        return min(minutes, record["minutes"])
    cost_clause = f"{elements} array tasks cost" if elements > 1 else "the job costs"
    raise InvalidRequest(
        f"--max-cost {limit.text(2)} is less than one minute of {cost_clause}, at {per_hour.text(2)} an hour.",
        field="--max-cost",
        value=limit.text(2),
        next=f"Allow at least {Money(-(-per_hour.nanos * elements // 60)).text(2)}, or ask for fewer nodes.",
    )


def _time_limit_minutes(session: Session, request: RunRequest, machine: Machine) -> int:
    """Return the time limit, in minutes: --timeout, or what is left to the machine's renew-until."""
    remaining = None if machine.renew_until is None else from_iso(machine.renew_until) - session.clock()
    limit = request.timeout if request.timeout is not None else remaining
    if limit is None:
        raise InvalidRequest(
            f"A job in Slurm needs a time limit, and {machine.name} has no end.",
            field="--timeout",
            value=None,
            next="Add --timeout 12h, say: Slurm starts a job the sooner, the shorter it is.",
        )
    if remaining is not None and limit > remaining:
        raise InvalidRequest(
            f"--timeout {duration_text(limit)} is longer than {machine.name} lives.",
            field="--timeout",
            value=duration_text(limit),
            next=f"Allow less, or run: cloudgpu extend {command_name(machine)}",
        )
    return max(1, -(-limit // MINUTE) if request.timeout is not None else limit // MINUTE)


def _dependency_slurm_id(session: Session, dependency: str, cluster: str | None, machine: Machine) -> str:
    """Return Slurm's id of the job that has to succeed first: a cloudgpu job in the same Slurm, or the id itself."""
    matching = [
        job for job in all_jobs(session).values() if dependency in (job.name, job.key, job.id) and job.slurm_record
    ]
    in_same_slurm = [
        job for job in matching if job.slurm_record and job.slurm_record["cluster"] == cluster and job.slurm_id
    ]
    if in_same_slurm and in_same_slurm[-1].slurm_id:
        return in_same_slurm[-1].slurm_id
    if dependency.isdecimal() and not matching:
        return dependency
    why = "is not in Slurm yet" if matching and not in_same_slurm else f"is no job in the Slurm of {machine.name}"
    raise InvalidRequest(
        f"--after {dependency}: it {why}.", field="--after", value=dependency, next="See: cloudgpu jobs"
    )


def submission_options(session: Session, job: Job, record: SlurmRecord) -> dict[str, object]:
    """Return the options for `access/slurm/remote_submit.py`.

    `whole`: the job gets nodes to itself, as in a cluster of ours without --gpus-per-node. `spread`: its files have to
    be sent to the nodes that it gets; local machines share this computer's disk, and another Slurm is taken to share
    home directories. `own`: the name of node 0. `records`: the path of Slurm's completion log. `token` is
    part of the names of files that are sent to nodes; `program` has the scripts that run there.
    """
    members = [session.ledger.machine(id_) for id_ in record["members"]]
    head_node = members[0] if members else None
    if job.gang_size > 1 and head_node is not None:
        record = {**record, "minutes": _gang_time_limit_minutes(job, head_node, session.clock())}
    files = None if record["cluster"] is None else engine_paths(record["cluster"])
    is_remote = head_node is not None and head_node.provider != "local"
    return {
        **{key: value for key, value in record.items() if key not in ("cluster", "members")},
        "name": queue_name(record, job),
        "conf": None if files is None else files.conf,
        "records": None if files is None else f"~/{files.records}",
        "whole": files is not None and record["gpus_per_node"] is None,
        "spread": is_remote and len(members) > 1,
        "own": None if head_node is None else head_node.name,
        "setup": job.spec["setup"] if files is not None else None,
        "token": secrets.token_hex(16),
        "program": slurm_program(),
    }


def _gang_time_limit_minutes(job: Job, machine: Machine, now: datetime) -> int:
    """Return the time limit of a gang's job, in minutes: its --timeout, or what is left to its machines."""
    if job.spec["timeout_s"] is not None:
        return max(1, -(-job.spec["timeout_s"] // 60))
    remaining = timedelta(days=1) if machine.renew_until is None else from_iso(machine.renew_until) - now
    return max(1, remaining // MINUTE)


def queue_name(record: SlurmRecord, job: Job) -> str:
    """Return the name that a job has in Slurm, which no other has.

    A retry gets a new name. After an interruption the name stays: the Slurm job may have outlived the process that
    watched it, and is then found again.
    """
    failures = sum(attempt.ended_at is not None and not attempt.interrupted for attempt in job.attempts)
    return f"{tag_value(record['name'])[:MAX_NAME]}-{job.id.rpartition('-')[2]}-{failures + 1}"
