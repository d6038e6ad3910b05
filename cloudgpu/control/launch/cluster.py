"""The nodes of a cluster as one launch: found again, settled together, or ended together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudgpu.control.inventory.settle import settle_by_listing
from cloudgpu.control.inventory.sync import refresh
from cloudgpu.control.launch.attempt import end_nodes, send_all
from cloudgpu.core.model.machine import Machine, has_retained_resources, node_of, not_none
from cloudgpu.core.values.naming import lock_name
from cloudgpu.core.values.times import from_iso
from cloudgpu.errors import NoCapacity
from cloudgpu.ledger import saved_calls as saved
from cloudgpu.providers.cluster_abilities import LaunchesTogether

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from cloudgpu.control.launch.plan import PreparedLaunch
    from cloudgpu.control.session.session import Session
    from cloudgpu.core.model.launch import Attempt


def find_or_settle_node(
    session: Session,
    prepared: PreparedLaunch,
    confirm: Callable[[], None],
    deadline: datetime,
    *,
    is_in_plan: Callable[[Machine], bool],
) -> tuple[Machine | None, bool]:
    """Return a node of this request's cluster, and whether the cluster was launched before, without interruption.

    An interrupted launch is completed where the same calls can be sent again, and all its machines are allowed by the
    plan (`is_in_plan`). Else its machines are ended: a cluster is all of its machines or none. `confirm` is called
    before that if the plan was made for an existing machine. With `--new`, a complete cluster is not returned.
    """
    machines = _latest_nodes(session, prepared)
    existing = [
        machine
        for machine in machines
        if machine.launch_status == "made" and (machine.terminated_at is None or has_retained_resources(machine))
    ]
    if any(machine.launch_status == "open" for machine in machines):
        if prepared.existing is not None:
            confirm()
        return _complete_or_end(session, prepared, machines, deadline, is_in_plan), False
    never_made = [machine for machine in machines if machine.launch_status in ("refused", "void")]
    if existing and never_made:
        end_nodes(session, existing, f"{never_made[0].name} was never launched")
        return None, False
    if prepared.new:  # a complete cluster stays, and another one is launched
        return None, False
    if existing and all(machine.terminated_at is None for machine in existing):
        existing = [refresh(session, machine) for machine in existing]
    living = next((machine for machine in existing if machine.terminated_at is None), None)
    if living is not None:
        return living, True
    is_parked = bool(existing) and all(has_retained_resources(machine) for machine in existing)
    return (existing[0], True) if is_parked else (None, False)


def _latest_nodes(session: Session, prepared: PreparedLaunch) -> list[Machine]:
    """Return all nodes, in order, of this request's latest cluster with nodes or disks left."""
    requested = [
        machine
        for machine in session.ledger.machines()
        if machine.cluster_node and lock_name(machine.key) == prepared.lock and machine.request == prepared.fingerprint
    ]
    existing = [machine for machine in requested if machine.terminated_at is None or has_retained_resources(machine)]
    if not existing:
        return []
    latest_id = not_none(max(existing, key=lambda machine: machine.intended_at).cluster).id
    return sorted((machine for machine in requested if not_none(machine.cluster).id == latest_id), key=node_of)


def _complete_or_end(
    session: Session,
    prepared: PreparedLaunch,
    machines: Sequence[Machine],
    deadline: datetime,
    is_in_plan: Callable[[Machine], bool],
) -> Machine | None:
    """Complete an interrupted launch, or end what it made. Raises LaunchUncertain where that is not known yet."""
    attempts = _attempts_to_send(session, machines) if all(is_in_plan(machine) for machine in machines) else []
    if attempts:
        session.report(
            f"{prepared.name or machines[0].name}: an earlier launch was interrupted; sending the same calls again"
        )
        not_sent = [machine for machine in machines if machine.launch_status == "open"]
        *_, provider = [
            session.provider_of(machine) for machine in not_sent
        ]  # also checks that the account or host of each can be reached
        try:
            send_all(session, provider, attempts, deadline=deadline, closing_errors=(NoCapacity,))
        except NoCapacity as error:  # that proves that nothing was launched: the next offer is tried
            session.report(f"{machines[0].zone}: {error.message}")
            end_nodes(session, [machine for machine in machines if machine.launch_status == "made"], error.message)
            return None
    else:
        for machine in machines:
            if machine.launch_status == "open":
                settle_by_listing(session, machine)
    current = [session.ledger.machine(machine.id) or machine for machine in machines]
    made = [machine for machine in current if machine.terminated_at is None and machine.launch_status == "made"]
    if len(made) == not_none(machines[0].cluster).nodes:
        return made[0]
    end_nodes(session, made, "its launch was interrupted, and not all of its cluster was made")
    return None


def _attempts_to_send(session: Session, machines: Sequence[Machine]) -> list[Attempt]:
    """Return the attempts whose saved calls complete a launch; none if one is missing or can no longer be repeated.

    Where the provider launches all nodes in one call, that is sent again for all of them.
    """
    provider = session.provider_of(machines[0])
    launches_in_one_call = isinstance(provider, LaunchesTogether)
    to_send = [machine for machine in machines if launches_in_one_call or machine.launch_status == "open"]
    attempts = [saved.load(session.home.attempts, not_none(machine.token)) for machine in to_send]
    token_lifetime = provider.token_rule.lifetime
    can_repeat = all(session.clock() - from_iso(machine.intended_at) < token_lifetime for machine in machines)
    is_complete = len(machines) == not_none(machines[0].cluster).nodes and not session.ledger_away and can_repeat
    saved_attempts = [attempt for attempt in attempts if attempt is not None]
    return saved_attempts if is_complete and len(saved_attempts) == len(to_send) else []
