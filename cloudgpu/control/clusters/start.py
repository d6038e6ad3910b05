"""Starts clusters: all nodes or none. Where one has no capacity, those that came are stopped again, and proved."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from cloudgpu.control.access.reach import wait_until_ready
from cloudgpu.control.clusters.engine import set_up
from cloudgpu.control.clusters.power import check_start_all, stop_nodes
from cloudgpu.control.clusters.together import ClusterResult, each, faults_in, reload_machines, worst_of
from cloudgpu.control.lifecycle.lifecycle import lock_machine
from cloudgpu.control.lifecycle.start import (
    AWAKE,
    admit_start,
    check_start,
    may_start,
    refresh_to_start,
    requests_taken_back,
    start_locked,
)
from cloudgpu.control.session.session import Session
from cloudgpu.core.clusters.layout import engine_of_machine
from cloudgpu.core.launch.plan import Lease
from cloudgpu.core.model.machine import Machine, and_billed, command_name
from cloudgpu.errors import CloudgpuError, InstanceNotFound, InvalidRequest, NoCapacity
from cloudgpu.underway import changing

_WHY = "another node of its cluster did not start"


def check_not_moved(machine: Machine, *, move: bool) -> None:
    """Raise InvalidRequest for `--move`: nodes stand in one zone, and no cluster comes back from images."""
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
    """Start the nodes of a stopped cluster under one new lease, and return their rows once all are accepted.

    With `wait`, once SSH of each is verified and its engine is ready: a fault names what runs and does not answer.
    Budgets admit all nodes at once. Where one is refused, or ends while it starts, those that were started are stopped
    again and proved, and its error is raised: NoCapacity, or StopUnproved where one of those may still be billed.
    Raises as `start` does.
    """
    name = command_name(machines[0])
    check_start(session, machines, override)
    check_start_all(machines)
    with changing(may_start(machines[0], name)):
        with lock_machine(session, machines[0]):
            rows = _living_nodes(session, machines)
            asleep = [machine for machine in rows if machine.state not in AWAKE]
            awake = [machine for machine in rows if machine.state in AWAKE]
            if asleep:
                admit_start(session, asleep, lease, override, no_guard=no_guard, awake=awake)
                _refused_whole(session, rows, asleep, each(session, asleep, partial(_started, lease=lease)))
            else:
                session.ledger.append(requests_taken_back(session, awake))
                session.report(f"{name} runs already; extend makes its lease longer")
        if not wait:
            return ClusterResult(reload_machines(session, rows))
        outcomes = each(session, reload_machines(session, rows), wait_until_ready)
        with lock_machine(session, machines[0]):
            _ended_meanwhile(session, rows, asleep, outcomes)
        faults = faults_in(outcomes) or _engine_again(session, reload_machines(session, rows))
    return ClusterResult(reload_machines(session, rows), faults)


def _engine_again(session: Session, machines: Sequence[Machine]) -> tuple[CloudgpuError, ...]:
    """Set the engine up on nodes that run again: their addresses may be other ones. Return what kept it from that."""
    if engine_of_machine(machines[0]) != "slurm":
        return ()
    try:
        set_up(session, machines)
    except CloudgpuError as error:
        error.message += (
            f" {command_name(machines[0])} runs{and_billed(machines[0], ' and is billed')}, without its queue."
        )
        error.next = error.next or f"Run: cloudgpu start {command_name(machines[0])}"
        return (error,)
    return ()


def _started(session: Session, machine: Machine, *, lease: Lease) -> Machine:
    return start_locked(session, machine, lease)


def _living_nodes(session: Session, machines: Sequence[Machine]) -> list[Machine]:
    """Return the rows of now of the nodes that are there, and tell of those that have ended.

    Raises what keeps one from being asked: nothing was started then; InstanceNotFound where none is there.
    """
    outcomes = each(session, machines, refresh_to_start)
    awake = [machine.name for machine in reload_machines(session, machines) if machine.state in AWAKE]
    if 0 < len(awake) < len(machines):
        session.report(f"{command_name(machines[0])} runs in part: {', '.join(awake)}")
    lost = [one for one in faults_in(outcomes) if isinstance(one, InstanceNotFound)]
    unknown = worst_of(one for one in faults_in(outcomes) if not isinstance(one, InstanceNotFound))
    if unknown is not None:
        unknown.message += f" No node of {command_name(machines[0])} was started."
        raise unknown
    rows = [one for one in outcomes if not isinstance(one, CloudgpuError)]
    if not rows:
        raise lost[0]
    for one in lost:
        session.report(one.message)
    return rows


def _refused_whole(
    session: Session,
    machines: Sequence[Machine],
    asleep: Sequence[Machine],
    outcomes: Sequence[Machine | CloudgpuError],
) -> None:
    """Stop what was started and raise why, where one of these nodes was not."""
    faults = faults_in(outcomes)
    if not faults:
        return
    first = next((one for one in faults if isinstance(one, NoCapacity)), worst_of(faults))
    assert first is not None  # noqa: S101  (for the type checker: there is one)
    name = command_name(machines[0])
    session.report(f"{name}: {first.message} Stopping the nodes that have started")
    unproved = faults_in(stop_nodes(session, asleep, _WHY))
    ran = [machine.name for machine in machines if machine not in asleep]
    before = f" {', '.join(ran)} ran before, and still {'runs' if len(ran) == 1 else 'run'}." if ran else ""
    worst = worst_of(unproved)
    if worst is not None:
        billed = and_billed(machines[0], " and be billed")
        worst.message = f"{name} did not start: {first.message} A part of it may run{billed}: {worst.message}{before}"
        worst.next = f"Run: cloudgpu stop {name}"
        raise worst
    first.message = f"{name} did not start: {first.message} The nodes that had started are stopped again.{before}"
    first.next = f"Try again later: cloudgpu start {name}"
    raise first


def _ended_meanwhile(
    session: Session,
    machines: Sequence[Machine],
    asleep: Sequence[Machine],
    outcomes: Sequence[Machine | CloudgpuError],
) -> None:
    """Stop all that this start has started, where one of it has ended while it started: that was no start."""
    started, now = {machine.id for machine in asleep}, reload_machines(session, machines)
    over = [
        one
        for machine, one in zip(now, outcomes, strict=True)
        if isinstance(one, CloudgpuError) and machine.id in started and machine.state not in AWAKE
    ]
    if over:
        _refused_whole(session, machines, asleep, over)
