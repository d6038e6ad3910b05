"""Moves the one lease of all nodes of a cluster, and holds them: budgets admit all of it at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from cloudgpu.control.budgets.admission import check_credit_of_hold, credit_of_machine, sync_before_admission
from cloudgpu.control.clusters.together import ClusterResult, faults_in, reload_machines, run_on_machines, worst_of
from cloudgpu.control.lifecycle import lease as single
from cloudgpu.control.lifecycle.lifecycle import lock_machine
from cloudgpu.control.lifecycle.start import UP_STATES, withdraw_requests_events
from cloudgpu.control.session.session import Session
from cloudgpu.control.team.authorization import authorization_of, check_may, check_override
from cloudgpu.core.launch.plan import Lease
from cloudgpu.core.model.machine import Machine, command_name
from cloudgpu.core.values.money import ZERO, Money
from cloudgpu.errors import CloudgpuError
from cloudgpu.underway import on_abort


@dataclass(frozen=True, slots=True)
class ClusterExtension:
    """What a longer lease means for a cluster: its one new lease, whether `renew-until` moves, and what all cost more.

    `machines` are the nodes that answered, `faults` those of the others: their lease stays as it is.
    """

    machines: tuple[Machine, ...]
    lease: Lease
    moves_renew_until: bool
    added_cost: Money
    faults: tuple[CloudgpuError, ...] = ()


def plan_extension_of_all(session: Session, machines: Sequence[Machine], by: timedelta) -> ClusterExtension:
    """Ask about all nodes, and return what extending would do: the latest of their leases moves, for all of them.

    Raises as `plan_extension` does where no node can be asked.
    """
    outcomes = run_on_machines(session, machines, partial(_plan, by=by))
    plans, faults = [one for one in outcomes if not isinstance(one, CloudgpuError)], faults_in(outcomes)
    if not plans:
        worst = worst_of(faults)
        assert worst is not None  # noqa: S101  (for the type checker: there is no other one)
        raise worst
    return ClusterExtension(
        tuple(one.machine for one in plans),
        _latest([one.lease for one in plans]),
        any(one.moves_renew_until for one in plans),
        sum((one.added_cost for one in plans), ZERO),
        faults,
    )


def _plan(session: Session, machine: Machine, *, by: timedelta) -> single.Extension:
    return single.plan_extension(session, machine, by)


def _latest(leases: Sequence[Lease]) -> Lease:
    return Lease(max(one.expires for one in leases), max(one.renew_until for one in leases))


def extend_all(session: Session, extension: ClusterExtension, *, override: str | None = None) -> ClusterResult:
    """Carry out an extension: admitted for all nodes at once, set on each. Raises as `extend` does: then on none.

    A fault for each node on which it is not set: such a one keeps the lease that it had.
    """
    machines = extension.machines
    authorization = authorization_of(session)
    for machine in machines:
        check_may(session, machine, "extend", authorization=authorization)
    check_override(session, override)
    if extension.moves_renew_until:
        session.check_launchable()
        sync_before_admission(session, {}, lambda budget: any(budget.scope.covers(machine) for machine in machines))
    with lock_machine(session, machines[0]), on_abort(single.partial_lease_text(command_name(machines[0]))):
        looks = run_on_machines(session, reload_machines(session, machines), _extendable)
        latest = [one for one in looks if not isinstance(one, CloudgpuError)]
        outcomes: list[Machine | CloudgpuError] = [*faults_in(looks)]
        if latest:
            lease = _latest([single.keep_later_end(extension.lease, one) for one in latest])
            single.admit_lease(session, latest, lease, "extend", override, credit_of_machine(session, latest[0]))
            _undo_stop_or_end(session, machines)
            outcomes += run_on_machines(session, latest, partial(_set_lease, lease=lease))
    return ClusterResult(reload_machines(session, machines), (*extension.faults, *faults_in(outcomes)))


def _extendable(session: Session, machine: Machine) -> Machine:
    machine = single.refresh_lease(session, machine)
    single.check_learns_lease(session, machine)
    return machine


def _set_lease(session: Session, machine: Machine, *, lease: Lease) -> Machine:
    return single.apply_lease(session, machine, lease, "extend")


def hold_all(session: Session, machines: Sequence[Machine], until: datetime | None) -> ClusterResult:
    """Hold all nodes of a cluster until then, or release them (None); a fault for each of which that is not known."""
    authorization = authorization_of(session)
    for machine in machines:
        check_may(session, machine, "hold", authorization=authorization)
    single.check_hold_end(session, command_name(machines[0]), until)
    check_credit_of_hold(session, machines, until)
    with lock_machine(session, machines[0]):
        if until is not None:
            _undo_stop_or_end(session, machines)
        outcomes = run_on_machines(session, machines, partial(_set_hold, until=until))
    return ClusterResult(reload_machines(session, machines), faults_in(outcomes))


def _undo_stop_or_end(session: Session, machines: Sequence[Machine]) -> None:
    """Take back a stop or an end that was interrupted before any node had gone: who holds a cluster wants it."""
    nodes = reload_machines(session, machines)
    if all(machine.state in UP_STATES for machine in nodes):
        session.ledger.append(withdraw_requests_events(session, nodes))


def _set_hold(session: Session, machine: Machine, *, until: datetime | None) -> Machine:
    return single.set_hold_locked(session, machine, until)
