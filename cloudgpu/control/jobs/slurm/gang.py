"""A job's gang, several machines as one: what is done to the machine of an attempt is done to all nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from cloudgpu.access.ssh.connection import connect
from cloudgpu.control.clusters.engine import remove_engine_from_owned
from cloudgpu.control.clusters.power import end_all, stop_all
from cloudgpu.control.clusters.start import start_all
from cloudgpu.control.clusters.together import errors_in, run_on_machines, worst_of
from cloudgpu.control.inventory.sync import refresh
from cloudgpu.control.jobs.slurm.events import record_foreign_jobs
from cloudgpu.control.launch.restore import start_machine
from cloudgpu.control.lifecycle.lifecycle import stop, terminate_with_resources
from cloudgpu.control.lifecycle.start import new_lease
from cloudgpu.control.session.session import Session
from cloudgpu.core.clusters.layout import in_order
from cloudgpu.core.events.job_lines import job_gang_refused, job_machine
from cloudgpu.core.events.log import Draft
from cloudgpu.core.jobs.job import NOTHING_MADE, Attempt, Job
from cloudgpu.core.launch.attempt import launch_key
from cloudgpu.core.model.machine import Machine
from cloudgpu.errors import CloudgpuError

ANSWER_TIMEOUT_S = 3.0


def nodes_of(session: Session, machine: Machine) -> tuple[Machine, ...]:
    """Return all nodes of a machine's gang, ended ones too, node 0 first; of a machine without a gang itself alone."""
    gang = machine.gang
    if gang is None:
        return (machine,)
    return in_order(node for node in session.ledger.machines() if node.gang is not None and node.gang.id == gang.id)


def head_node_of(session: Session, key: str, nodes: int) -> Machine | None:
    """Return node 0 of the gang that a launch with this key made, or may have made; None where it made none.

    An incomplete gang, which was ended again because the rest was refused, does not count.
    """
    machines = [
        machine for machine in session.ledger.machines() if machine.gang is not None and launch_key(machine) == key
    ]
    made = [machine for machine in machines if machine.launch_status not in NOTHING_MADE]
    gangs: dict[str, list[Machine]] = {}
    for machine in made:
        gangs.setdefault(machine.gang.id if machine.gang else "", []).append(machine)
    complete_or_living = [
        nodes_of_gang for nodes_of_gang in gangs.values() if len(nodes_of_gang) == nodes or _any_living(nodes_of_gang)
    ]
    return (
        in_order(next(filter(_any_living, complete_or_living), complete_or_living[-1]))[0]
        if complete_or_living
        else None
    )


def ended_nodes(session: Session, job: Job, attempt: Attempt, now: datetime) -> list[Draft]:
    """Return the line that names nodes that came up for an attempt, and were ended because others were refused.

    Empty for a single machine, and where the ledger has that line.
    """
    if job.gang == 1 or attempt.key is None:
        return []
    machines = [
        machine
        for machine in session.ledger.machines()
        if machine.gang is not None and launch_key(machine) == attempt.key
    ]
    made = [machine for machine in machines if machine.launch_status not in NOTHING_MADE and machine.provider_id]
    complete_ids = {
        id_ for id_, count in Counter(machine.gang.id for machine in made if machine.gang).items() if count == job.gang
    }
    ended = [
        machine
        for machine in made
        if machine.gang and machine.gang.id not in complete_ids and machine.terminated_at is not None
    ]
    unrecorded_ids = [machine.id for machine in in_order(ended) if machine.id not in attempt.refused]
    return [job_gang_refused(job.id, attempt.number, unrecorded_ids, now)] if unrecorded_ids else []


def _any_living(nodes: Iterable[Machine]) -> bool:
    return any(one.terminated_at is None for one in nodes)


def is_living(session: Session, machine: Machine) -> bool:
    """Say whether any node of a machine's gang lives, or may."""
    return _any_living(nodes_of(session, machine))


def machine_assigned_events(
    session: Session, job: Job, attempt: Attempt, machine: Machine, now: datetime
) -> list[Draft]:
    """Return the lines that name the machine of an attempt, all nodes of its gang, and nodes that were ended again."""
    nodes, refused_events = nodes_of(session, machine), ended_nodes(session, job, attempt, now)
    if len(nodes) == 1 or machine.gang is None:
        return [job_machine(job.id, attempt.number, machine.id, now), *refused_events]
    ids = [one.id for one in nodes]
    return [
        job_machine(job.id, attempt.number, nodes[0].id, now, cluster=machine.gang.id, members=ids),
        *refused_events,
    ]


def terminate_gang(session: Session, machine: Machine, why: str) -> None:
    """End a machine with all nodes of its gang, and what was made with them, proved.

    All are tried; raises the gravest error, StopUnproved before others.
    """
    nodes = nodes_of(session, machine)
    if len(nodes) == 1:
        terminate_with_resources(session, machine, why=why)
        return
    if _any_living(nodes):
        record_foreign_jobs(session, nodes)
        remove_engine_from_owned(session, nodes)
    error = worst_of(errors_in(end_all(session, nodes, why=why)))
    if error is not None:
        raise error


def stop_gang(session: Session, machine: Machine, why: str) -> None:
    """Stop a machine, or park it, with all nodes of its gang. Raises as `stop` does; a gang is never parked."""
    nodes = [one for one in nodes_of(session, machine) if one.terminated_at is None]
    if machine.gang is None:
        stop(session, machine, why=why)
    elif nodes:
        error = stop_all(session, nodes, why=why).worst
        if error is not None:
            raise error


def start_gang(session: Session, machine: Machine, duration: timedelta, *, no_guard: bool = False) -> None:
    """Start a stopped machine for so long, with all nodes of its gang: all or none. Raises as `start` does."""
    nodes = [one for one in nodes_of(session, machine) if one.terminated_at is None]
    if machine.gang is None:
        start_machine(session, machine, duration, renewable_for=duration, no_guard=no_guard)
    else:
        error = start_all(session, nodes, new_lease(session, machine, duration, duration), no_guard=no_guard).worst
        if error is not None:
            raise error


def refresh_nodes(session: Session, nodes: Sequence[Machine]) -> tuple[Machine, ...]:
    """Return these nodes as their provider has them now; one that cannot be asked about, as the ledger has it."""
    queried = [one for one in nodes if one.terminated_at is None and one.provider_id]
    refreshed = {
        machine.id: machine
        for machine in run_on_machines(session, queried, refresh)
        if not isinstance(machine, CloudgpuError)
    }
    return tuple(refreshed.get(one.id, session.ledger.machine(one.id) or one) for one in nodes)


def silent_node(session: Session, nodes: Sequence[Machine]) -> str | None:
    """Return the name of a node that runs by its provider, and does not answer; None where all of them do."""
    running = [one for one in nodes if one.state == "running"]
    answers = zip(running, run_on_machines(session, running, _answers), strict=True)
    return next((one.name for one, answered in answers if answered is not True), None)


def _answers(session: Session, machine: Machine) -> bool:
    connect(session.target(machine), timeout=ANSWER_TIMEOUT_S).close()
    return True
