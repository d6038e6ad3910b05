"""A job's gang, several machines as one: what is done to the machine of an attempt is done to all nodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from itertools import chain

from cloudgpu.access.ssh.connection import connect
from cloudgpu.control.clusters.engine import remove_engine_from_owned
from cloudgpu.control.clusters.power import end_all, stop_all
from cloudgpu.control.clusters.start import start_all
from cloudgpu.control.clusters.together import raise_worst, run_on_machines
from cloudgpu.control.inventory.sync import refresh
from cloudgpu.control.jobs.slurm.events import record_external_jobs
from cloudgpu.control.launch.restore import start_machine
from cloudgpu.control.lifecycle.lifecycle import stop, terminate_with_resources
from cloudgpu.control.lifecycle.start import new_lease
from cloudgpu.control.session.session import Session
from cloudgpu.core.clusters.layout import cluster_id, in_order
from cloudgpu.core.events.job_events import job_gang_refused, job_machine
from cloudgpu.core.events.log import Draft
from cloudgpu.core.jobs.job import NOTHING_MADE, Attempt, Job
from cloudgpu.core.launch.attempt import launch_key
from cloudgpu.core.model.machine import Machine, by_cluster
from cloudgpu.errors import CloudgpuError

ANSWER_TIMEOUT_S = 3.0  # for the SSH connection that tells whether a node answers


def nodes_of(session: Session, machine: Machine) -> tuple[Machine, ...]:
    """Return all nodes of a machine's gang, ended ones too, node 0 first; of a machine without a gang itself alone."""
    if machine.cluster_node is None:
        return (machine,)
    return in_order(node for node in session.ledger.machines() if cluster_id(node) == machine.cluster_node.id)


def head_node_of(session: Session, key: str, nodes: int) -> Machine | None:
    """Return node 0 of the gang that a launch with this key made, or may have made; None where it made none.

    An incomplete gang, which was ended again because the rest was refused, does not count.
    """
    gangs = by_cluster(_made_nodes(session, key)).values()
    possible_gangs = [members for members in gangs if len(members) == nodes or _any_living(members)]
    return next(filter(_any_living, possible_gangs), possible_gangs[-1])[0] if possible_gangs else None


def _made_nodes(session: Session, key: str) -> list[Machine]:
    """Return the machines that launches of gangs with this key made, or may have made."""
    return [
        machine
        for machine in session.ledger.machines()
        if machine.cluster_node is not None and launch_key(machine) == key and machine.launch_status not in NOTHING_MADE
    ]


def ended_nodes_events(session: Session, job: Job, attempt: Attempt, now: datetime) -> list[Draft]:
    """Return the event that names nodes that came up for an attempt, and were ended because others were refused.

    Empty for a single machine, and where the ledger has that event.
    """
    if job.gang_size == 1 or attempt.key is None:
        return []
    gangs = by_cluster(machine for machine in _made_nodes(session, attempt.key) if machine.provider_id).values()
    incomplete = chain.from_iterable(members for members in gangs if len(members) != job.gang_size)
    ended_nodes = in_order(machine for machine in incomplete if machine.terminated_at is not None)
    unrecorded_ids = [machine.id for machine in ended_nodes if machine.id not in attempt.refused]
    return [job_gang_refused(job.id, attempt.number, unrecorded_ids, now)] if unrecorded_ids else []


def _any_living(nodes: Iterable[Machine]) -> bool:
    return any(node.terminated_at is None for node in nodes)


def has_living_node(session: Session, machine: Machine) -> bool:
    """Say whether any node of a machine's gang exists, or may exist."""
    return _any_living(nodes_of(session, machine))


def machine_assigned_events(
    session: Session, job: Job, attempt: Attempt, machine: Machine, now: datetime
) -> list[Draft]:
    """Return the events that name the machine of an attempt, all nodes of its gang, and nodes that were ended again."""
    nodes, refused_events = nodes_of(session, machine), ended_nodes_events(session, job, attempt, now)
    if len(nodes) == 1 or machine.cluster_node is None:
        assigned_event = job_machine(job.id, attempt.number, machine.id, now)
    else:
        ids = [node.id for node in nodes]
        assigned_event = job_machine(job.id, attempt.number, ids[0], now, cluster=machine.cluster_node.id, members=ids)
    return [assigned_event, *refused_events]


def terminate_gang(session: Session, machine: Machine, why: str) -> None:
    """End a machine with all nodes of its gang and their resources, and wait until each end is confirmed.

    All are tried. Raises the worst of their errors, StopUnproved before others.
    """
    nodes = nodes_of(session, machine)
    if len(nodes) == 1:
        terminate_with_resources(session, machine, why=why)
    else:
        if _any_living(nodes):
            record_external_jobs(session, nodes)
            remove_engine_from_owned(session, nodes)
        raise_worst(end_all(session, nodes, why=why))


def stop_gang(session: Session, machine: Machine, why: str) -> None:
    """Stop a machine, or park it; of a gang, stop all nodes. Raises InvalidRequest for a gang that cannot be stopped.

    Else raises as `stop` does.
    """
    nodes = [node for node in nodes_of(session, machine) if node.terminated_at is None]
    if machine.cluster_node is None:
        stop(session, machine, why=why)
    elif nodes:
        raise_worst(stop_all(session, nodes, why=why).errors)


def start_gang(session: Session, machine: Machine, duration: timedelta, *, no_guard: bool = False) -> None:
    """Start a stopped machine with a lease of this duration; of a gang, all nodes or none. Raises as `start` does."""
    nodes = [node for node in nodes_of(session, machine) if node.terminated_at is None]
    if machine.cluster_node is None:
        start_machine(session, machine, duration, renewable_for=duration, no_guard=no_guard)
    else:
        lease = new_lease(session, machine, duration, duration)
        raise_worst(start_all(session, nodes, lease, no_guard=no_guard).errors)


def refresh_nodes(session: Session, nodes: Sequence[Machine]) -> tuple[Machine, ...]:
    """Return these nodes as their provider has them now; one that cannot be asked about, as the ledger has it."""
    to_query = [node for node in nodes if node.terminated_at is None and node.provider_id]
    refreshed = {
        machine.id: machine
        for machine in run_on_machines(session, to_query, refresh)
        if not isinstance(machine, CloudgpuError)
    }
    return tuple(refreshed.get(node.id, session.ledger.machine(node.id) or node) for node in nodes)


def silent_node_name(session: Session, nodes: Sequence[Machine]) -> str | None:
    """Return the name of a node that its provider lists as running, and that does not answer; None where all answer."""
    running = [node for node in nodes if node.state == "running"]
    outcomes = zip(running, run_on_machines(session, running, _check_answers), strict=True)
    return next((node.name for node, outcome in outcomes if isinstance(outcome, CloudgpuError)), None)


def _check_answers(session: Session, machine: Machine) -> None:
    connect(session.target(machine), timeout=ANSWER_TIMEOUT_S).close()
