"""Starts clusters: all nodes or none. If one has no capacity, the started ones are stopped again, and confirmed."""

from __future__ import annotations

from collections.abc import Sequence

from cloudgpu.control.access.reach import wait_until_ready
from cloudgpu.control.clusters.engine import set_up_engine
from cloudgpu.control.clusters.power import check_nodes_exist, stop_nodes
from cloudgpu.control.clusters.together import ClusterResult, errors_in, reload_machines, run_on_machines, worst_of
from cloudgpu.control.lifecycle.lifecycle import lock_machine
from cloudgpu.control.lifecycle.start import (
    UP_STATES,
    admit_start,
    check_start,
    interrupted_start_text,
    refresh_to_start,
    start_locked,
    withdraw_requests,
)
from cloudgpu.control.session.session import Session
from cloudgpu.core.clusters.layout import engine_of_machine
from cloudgpu.core.launch.plan import Lease
from cloudgpu.core.model.machine import Machine, billed_text, command_name, not_none, stop_command
from cloudgpu.errors import CloudgpuError, InstanceNotFound, InvalidRequest, NoCapacity
from cloudgpu.underway import on_abort

_STOP_REASON = "another node of its cluster did not start"


def check_no_move_option(machine: Machine, *, move: bool) -> None:
    """Raise InvalidRequest for `--move`: all nodes are in one zone, and no cluster is restored from images."""
    if move:
        raise InvalidRequest(
            f"{command_name(machine)} cannot be moved: clusters cannot be restored from images.",
            field="--move",
            value=command_name(machine),
            next=f"Try again later without --move: cloudgpu start {command_name(machine)}",
        )


def start_all(
    session: Session,
    machines: Sequence[Machine],
    lease: Lease,
    *,
    override: str | None = None,
    no_guard: bool = False,
    wait: bool = True,
) -> ClusterResult:
    """Start the nodes of a stopped cluster under one new lease, and return their records once all are accepted.

    With `wait`, return once SSH of each is verified and the engine is ready; errors name nodes that do not answer.
    Budgets admit all nodes at once. If one is refused, or ends while it starts, the started ones are stopped again and
    its error is raised: NoCapacity, or StopUnproved if one of those may still be billed.
    Raises as `start` does.
    """
    name = command_name(machines[0])
    check_start(session, machines, override)
    check_nodes_exist(machines, "started")
    with on_abort(interrupted_start_text(machines[0], name)):
        with lock_machine(session, machines[0]):
            nodes = _living_nodes(session, machines)
            stopped = [machine for machine in nodes if machine.state not in UP_STATES]
            running = [machine for machine in nodes if machine.state in UP_STATES]
            if stopped:
                admit_start(session, stopped, lease, override, no_guard=no_guard, running_nodes=running)
                outcomes = run_on_machines(
                    session, stopped, lambda thread_session, machine: start_locked(thread_session, machine, lease)
                )
                _stop_started_and_raise(session, nodes, stopped, outcomes)
            else:
                withdraw_requests(session, running)
                session.report(f"{name} runs already; extend makes its lease longer")
        if not wait:
            return ClusterResult(reload_machines(session, nodes))
        outcomes = run_on_machines(session, reload_machines(session, nodes), wait_until_ready)
        with lock_machine(session, machines[0]):
            _check_still_running(session, nodes, stopped, outcomes)
        errors = errors_in(outcomes) or _set_up_engine(session, reload_machines(session, nodes))
    return ClusterResult(reload_machines(session, nodes), errors)


def _set_up_engine(session: Session, machines: Sequence[Machine]) -> tuple[CloudgpuError, ...]:
    """Set up the engine (Slurm) on nodes that run again, whose addresses may have changed; return the errors."""
    if engine_of_machine(machines[0]) != "slurm":
        return ()
    try:
        set_up_engine(session, machines)
    except CloudgpuError as error:
        error.message += (
            f" {command_name(machines[0])} runs{billed_text(machines[0], ' and is billed')}, without its queue."
        )
        error.next = error.next or f"Run: cloudgpu start {command_name(machines[0])}"
        return (error,)
    return ()


def _living_nodes(session: Session, machines: Sequence[Machine]) -> list[Machine]:
    """Return the present records of the nodes that exist, and report those that have ended.

    Raises the error of a node that cannot be queried, before any is started; InstanceNotFound if none exists.
    """
    outcomes = run_on_machines(session, machines, refresh_to_start)
    running_names = [machine.name for machine in reload_machines(session, machines) if machine.state in UP_STATES]
    if 0 < len(running_names) < len(machines):
        session.report(f"{command_name(machines[0])} runs in part: {', '.join(running_names)}")
    ended_errors = [outcome for outcome in errors_in(outcomes) if isinstance(outcome, InstanceNotFound)]
    query_error = worst_of(outcome for outcome in errors_in(outcomes) if not isinstance(outcome, InstanceNotFound))
    if query_error is not None:
        query_error.message += f" No node of {command_name(machines[0])} was started."
        raise query_error
    living = [outcome for outcome in outcomes if not isinstance(outcome, CloudgpuError)]
    if not living:
        raise ended_errors[0]
    for outcome in ended_errors:
        session.report(outcome.message)
    return living


def _stop_started_and_raise(
    session: Session,
    machines: Sequence[Machine],
    started: Sequence[Machine],
    outcomes: Sequence[Machine | CloudgpuError],
) -> None:
    """If one of these nodes did not start, stop those that did, and raise its error."""
    errors = errors_in(outcomes)
    if not errors:
        return
    cause = not_none(next((error for error in errors if isinstance(error, NoCapacity)), worst_of(errors)))
    name = command_name(machines[0])
    session.report(f"{name}: {cause.message} Stopping the nodes that have started")
    stop_errors = errors_in(stop_nodes(session, started, _STOP_REASON))
    running_names = [machine.name for machine in machines if machine not in started]
    running_note = (
        f" {', '.join(running_names)} ran before, and still {'runs' if len(running_names) == 1 else 'run'}."
        if running_names
        else ""
    )
    worst = worst_of(stop_errors)
    if worst is not None:
        billed_clause = billed_text(machines[0], " and be billed")
        worst.message = (
            f"{name} did not start: {cause.message} A part of it may run{billed_clause}: {worst.message}{running_note}"
        )
        worst.next = f"Run: {stop_command(machines[0])}"
        raise worst
    cause.message = f"{name} did not start: {cause.message} The nodes that had started are stopped again.{running_note}"
    cause.next = f"Try again later: cloudgpu start {name}"
    raise cause


def _check_still_running(
    session: Session,
    machines: Sequence[Machine],
    started_nodes: Sequence[Machine],
    outcomes: Sequence[Machine | CloudgpuError],
) -> None:
    """If a node has ended while it started, stop all nodes that this start has started, and raise its error."""
    started_ids, latest = {machine.id for machine in started_nodes}, reload_machines(session, machines)
    end_errors = [
        outcome
        for machine, outcome in zip(latest, outcomes, strict=True)
        if isinstance(outcome, CloudgpuError) and machine.id in started_ids and machine.state not in UP_STATES
    ]
    if end_errors:
        _stop_started_and_raise(session, machines, started_nodes, end_errors)
