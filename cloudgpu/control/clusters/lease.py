"""Extends the lease of a cluster, which is the same for all nodes, and holds it; budgets admit all nodes at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from cloudgpu.control.budgets.admission import check_credit_of_hold, credit_of_machine, sync_before_admission
from cloudgpu.control.clusters.power import check_may_act_on_all
from cloudgpu.control.clusters.together import ClusterResult, errors_in, raise_worst, reload_machines, run_on_machines
from cloudgpu.control.lifecycle import lease as machine_lease
from cloudgpu.control.lifecycle.lifecycle import lock_machine
from cloudgpu.control.lifecycle.start import UP_STATES, withdraw_requests
from cloudgpu.control.session.session import Session
from cloudgpu.control.team.authorization import check_override
from cloudgpu.core.launch.plan import Lease
from cloudgpu.core.model.machine import Machine, command_name
from cloudgpu.core.values.money import ZERO, Money
from cloudgpu.errors import CloudgpuError
from cloudgpu.underway import on_abort


@dataclass(frozen=True, slots=True)
class ClusterExtension:
    """A planned extension: the new lease, whether `renew-until` moves, and the added cost of all nodes.

    `machines` are the nodes that answered. `errors` has one for each other node, whose lease does not change.
    """

    machines: tuple[Machine, ...]
    lease: Lease
    moves_renew_until: bool
    added_cost: Money
    errors: tuple[CloudgpuError, ...] = ()


def plan_extension_of_all(session: Session, machines: Sequence[Machine], added_time: timedelta) -> ClusterExtension:
    """Query all nodes, and return what an extension by `added_time` would do: all nodes get the latest of their leases.

    Raises as `plan_extension` if no node can be queried.
    """
    outcomes = run_on_machines(
        session,
        machines,
        lambda thread_session, machine: machine_lease.plan_extension(thread_session, machine, added_time),
    )
    plans, errors = [plan for plan in outcomes if not isinstance(plan, CloudgpuError)], errors_in(outcomes)
    if not plans:
        raise_worst(errors)
    return ClusterExtension(
        tuple(plan.machine for plan in plans),
        _latest_lease([plan.lease for plan in plans]),
        any(plan.moves_renew_until for plan in plans),
        sum((plan.added_cost for plan in plans), ZERO),
        errors,
    )


def _latest_lease(leases: Sequence[Lease]) -> Lease:
    """Return the latest end and the latest renew-until of these leases, as one lease."""
    return Lease(max(lease.expires for lease in leases), max(lease.renew_until for lease in leases))


def extend_all(session: Session, extension: ClusterExtension, *, override: str | None = None) -> ClusterResult:
    """Execute an extension: budgets admit all nodes at once, then it is set on each. Raises as `extend`: then on none.

    The result has an error for each node on which it could not be set, which keeps its lease.
    """
    machines = extension.machines
    check_may_act_on_all(session, machines, "extend")
    check_override(session, override)
    if extension.moves_renew_until:
        session.check_launchable()
        sync_before_admission(session, {}, lambda budget: any(budget.scope.covers(machine) for machine in machines))
    with lock_machine(session, machines[0]), on_abort(machine_lease.partial_lease_text(command_name(machines[0]))):
        refreshed = run_on_machines(session, reload_machines(session, machines), _refresh_to_extend)
        extendable = [node for node in refreshed if not isinstance(node, CloudgpuError)]
        outcomes: list[Machine | CloudgpuError] = [*errors_in(refreshed)]
        if extendable:
            lease = _latest_lease([machine_lease.keep_later_end(extension.lease, node) for node in extendable])
            machine_lease.admit_lease(
                session, extendable, lease, "extend", override, credit_of_machine(session, extendable[0])
            )
            _withdraw_stop_or_end(session, machines)
            outcomes += run_on_machines(
                session,
                extendable,
                lambda thread_session, machine: machine_lease.apply_lease(thread_session, machine, lease, "extend"),
            )
    return ClusterResult(reload_machines(session, machines), (*extension.errors, *errors_in(outcomes)))


def _refresh_to_extend(session: Session, machine: Machine) -> Machine:
    machine = machine_lease.refresh_lease(session, machine)
    machine_lease.check_follows_lease(session, machine)
    return machine


def hold_all(session: Session, machines: Sequence[Machine], until: datetime | None) -> ClusterResult:
    """Hold all nodes of a cluster until then, or release them (None); return an error for each node that failed."""
    check_may_act_on_all(session, machines, "hold")
    machine_lease.check_hold_end(session, command_name(machines[0]), until)
    check_credit_of_hold(session, machines, until)
    with lock_machine(session, machines[0]):
        if until is not None:
            _withdraw_stop_or_end(session, machines)
        outcomes = run_on_machines(
            session,
            machines,
            lambda thread_session, machine: machine_lease.set_hold_locked(thread_session, machine, until),
        )
    return ClusterResult(reload_machines(session, machines), errors_in(outcomes))


def _withdraw_stop_or_end(session: Session, machines: Sequence[Machine]) -> None:
    """Withdraw the request of an interrupted stop or end if all nodes still run: the user wants to keep the cluster."""
    nodes = reload_machines(session, machines)
    if all(machine.state in UP_STATES for machine in nodes):
        withdraw_requests(session, nodes)
