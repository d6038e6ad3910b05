"""Restores a machine from its image: a launch under the same id, key and name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta

from cloudgpu.control.access.reach import attach_volume, wait_until_ready
from cloudgpu.control.budgets.admission import evaluate_budgets, sync_before_admission
from cloudgpu.control.inventory import retention as retention_records
from cloudgpu.control.inventory.settle import settle
from cloudgpu.control.inventory.stop_proof import STOP_TIMEOUT
from cloudgpu.control.inventory.sync import refresh
from cloudgpu.control.launch.budget_preview import check_admission
from cloudgpu.control.launch.launch import launch
from cloudgpu.control.launch.offers import constrained, placement_constraint
from cloudgpu.control.launch.plan import PreparedLaunch, prepare_restore, restore_offers
from cloudgpu.control.lifecycle.lifecycle import lock_machine
from cloudgpu.control.lifecycle.parking import park
from cloudgpu.control.lifecycle.start import new_lease, start
from cloudgpu.control.lifecycle.timers import delete_timer
from cloudgpu.control.policies.resolve import policy_of
from cloudgpu.control.pricing.price_history import on_demand_of
from cloudgpu.control.session.guarding import check_launch_guarded
from cloudgpu.control.session.session import Session
from cloudgpu.control.team.authorization import check_override, check_right, check_right_and_claim_owner
from cloudgpu.core.budgets.refusal import Remedy, shorter_launch
from cloudgpu.core.launch.attempt import setup_from_json
from cloudgpu.core.launch.plan import Lease
from cloudgpu.core.launch.plan_cost import AddedCost, as_running
from cloudgpu.core.model.facts import HourlyPrice
from cloudgpu.core.model.launch import LaunchRequest, Setup
from cloudgpu.core.model.machine import Machine, can_be_restored, has_retained_resources, not_none
from cloudgpu.core.model.offers import Market, Offer, Requirements, Trust, price_to_json
from cloudgpu.core.model.resources import Kind
from cloudgpu.core.policies.policy import Lifetime, Origin
from cloudgpu.core.resources import retention as retention_rules
from cloudgpu.core.resources.orphan import STARTABLE_STATES
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.naming import machine_id
from cloudgpu.errors import CloudgpuError, InvalidRequest, NoCapacity
from cloudgpu.providers.abilities import PlacementConstraint, Resolved, needs_reaper_run
from cloudgpu.providers.attached_costs import image_cost

_DEFAULT_SETUP = Setup()
# The fields of an error about what a zone does not have: options of `up`, which `start` does not take.
_PLACE_OPTIONS = ("--region", "--zone", "--gpu", "--instance-type")


@dataclass(frozen=True, slots=True)
class MovePlan:
    """A planned move of a stopped machine by an image of its disk: what the image costs, and offers for the machine."""

    machine: Machine
    lease: Lease
    image_cost: AddedCost
    offers: tuple[Offer, ...]


def start_stopped(
    session: Session,
    machine: Machine,
    lease: Lease,
    *,
    wait: bool = True,
    override: str | None = None,
    no_guard: bool = False,
) -> Machine:
    """Start a stopped machine with its volume and return the machine; with `wait`, once SSH is verified.

    Raises NoCapacity, with the cost of moving the machine by an image where that helps.
    """
    try:
        machine = start(session, machine, lease, override=override, no_guard=no_guard)
    except NoCapacity as error:
        raise suggest_move(session, session.ledger.machine(machine.id) or machine, lease, error) from error
    machine = attach_volume(session, machine)
    return _wait_and_delete_image(session, machine) if wait else machine


def _wait_and_delete_image(session: Session, machine: Machine) -> Machine:
    """Wait until SSH is verified; then delete the image from which the machine was restored, if any."""
    machine = wait_until_ready(session, machine)
    if not machine.retained:
        return machine
    with lock_machine(session, machine):
        return retention_records.delete_superseded_image(session, session.ledger.machine(machine.id) or machine)


def start_machine(
    session: Session,
    machine: Machine,
    lease_length: timedelta | None,
    *,
    renewable_for: timedelta | None = None,
    override: str | None = None,
    move_it: bool = False,
    wait: bool = True,
    no_guard: bool = False,
    max_price: Money | None = None,
) -> Machine:
    """Start a machine that is stopped, parked or was interrupted, without confirmation; return the machine.

    `lease_length` and `renewable_for` (up to renew-until) are from now; None: those of the policy. `move_it`: restore
    the machine from an image of its disk, wherever there is capacity in its region.
    """
    check_right_and_claim_owner(session, machine, "start")
    check_override(session, override)
    machine = settle_restore(session, machine)
    check_max_price(machine, max_price, move_it=move_it)
    if move_it and not can_be_restored(machine):
        lease = new_lease(session, machine, lease_length, renewable_for)
        check_move(session, plan_move(session, machine, lease, max_price), override, no_guard=no_guard)
        machine = move(session, machine, why="it is moved")
    if can_be_restored(machine):
        plan = plan_restore(
            session,
            machine,
            lease_length,
            renewable_for=renewable_for,
            override=override,
            any_type=move_it,
            no_guard=no_guard,
            max_price=max_price,
        )
        return restore_machine(session, plan, wait=wait)
    lease = new_lease(session, machine, lease_length, renewable_for)
    return start_stopped(session, machine, lease, wait=wait, override=override, no_guard=no_guard)


def check_max_price(machine: Machine, max_price: Money | None, *, move_it: bool) -> None:
    """Raise InvalidRequest for a maximum price where nothing is launched: a stopped machine keeps its price."""
    if max_price is not None and (machine.cluster_node or not (move_it or can_be_restored(machine))):
        raise InvalidRequest(
            f"{machine.name} is not launched again from an image, so --max-price cannot change what it costs.",
            field="--max-price",
            value=f"{max_price.dollars:f}",
            next="Leave it out.",
        )


def settle_restore(session: Session, machine: Machine) -> Machine:
    """Settle a restore that may have been interrupted, and return the machine: it runs, or can be restored again."""
    if machine.launch_status != "open" or not machine.retained:
        return machine
    with lock_machine(session, machine):
        machine = session.ledger.machine(machine.id) or machine
        return (
            settle(session, machine, deadline=session.clock() + STOP_TIMEOUT)
            if machine.launch_status == "open"
            else machine
        )


def plan_restore(
    session: Session,
    machine: Machine,
    lease_length: timedelta | None,
    *,
    renewable_for: timedelta | None = None,
    override: str | None = None,
    any_type: bool = False,
    no_guard: bool = False,
    max_price: Money | None = None,
) -> PreparedLaunch:
    """Return the plan that launches a machine from its image; make the image first where it is not ready.

    `any_type` allows every instance type with the same GPUs; without it, only the same type. The region is always that
    of the image. `max_price` is for an hour; None: that of the launch. Raises NoCapacity when nothing fits: retained
    resources stay. InvalidRequest for a machine that cannot be launched again.
    """
    check_right(session, machine, "start")
    check_override(session, override)
    session.check_launchable()
    check_restorable(session, machine)
    with lock_machine(session, machine):
        machine = session.ledger.machine(machine.id) or machine
        if has_retained_resources(machine) and not retention_rules.is_parking_complete(machine):
            machine = park(session, machine, why="its start was asked")
        if machine.terminated_at is not None and machine.timer:  # the restored machine gets a new timer
            machine = delete_timer(session, machine)
    if _image_id_of(machine) is None:  # somebody else started or ended it meanwhile
        raise InvalidRequest(
            f"{machine.name} is no longer parked: it is {machine.state}.",
            field="name",
            value=machine.name,
            next=f"Run: cloudgpu show {machine.name} --refresh",
        )
    lease = new_lease(session, machine, lease_length, renewable_for)
    try:
        request = _launch_request(session, machine, lease, _requirements_of(machine, max_price, any_type=any_type))
        return prepare_restore(
            session, request, machine, _lifetime_of_lease(session, lease), override, no_guard=no_guard
        )
    except NoCapacity as error:
        raise _still_retained_error(machine, error, any_type=any_type) from error


def restore_machine(
    session: Session, prepared: PreparedLaunch, *, wait: bool = True, confirm: Callable[[], None] = lambda: None
) -> Machine:
    """Execute the plan of a restore and return the machine; its image is deleted once the machine is ready.

    Without `wait` the image stays until a later sync sees that the machine has run for a while.
    """
    try:
        machine = launch(session, prepared, wait=wait, confirm=confirm).machine
    except NoCapacity as error:
        latest = session.ledger.machine(machine_id(session.ledger.id, prepared.key or ""))
        raise (error if latest is None else _still_retained_error(latest, error, any_type=False)) from error
    if machine.terminated_at is not None or not machine.retained:
        return machine
    if not wait:
        session.report(f"{machine.name}: its image stays until ls --refresh has seen it run for a while")
        return machine
    with lock_machine(session, machine):
        return retention_records.delete_superseded_image(session, session.ledger.machine(machine.id) or machine)


def plan_move(session: Session, machine: Machine, lease: Lease, max_price: Money | None = None) -> MovePlan:
    """Return the plan to move a stopped machine elsewhere in its region, or in the zone of its volume or subnet.

    Changes nothing. Raises InvalidRequest for a machine of which no image can be made, or whose template or limits do
    not allow its launch any more, NoCapacity when nothing else fits.
    """
    if not retention_records.supports_images(session, machine) or machine.state not in STARTABLE_STATES:
        raise _cannot_move_error(machine)
    check_restorable(session, machine)
    policy_of(session, machine)
    provider = session.provider_of(machine)
    request = _launch_request(session, machine, lease, _requirements_of(machine, max_price, any_type=True))
    request = replace(request, setup=replace(request.setup, image=None))  # its image is not made yet
    constraint = placement_constraint(provider, request)
    try:
        _, offers, _ = restore_offers(session, provider, constrained(request, constraint))
    except (InvalidRequest, NoCapacity) as error:
        if constraint.zone is None or error.field not in _PLACE_OPTIONS:
            raise
        raise _nothing_else_error(machine, constraint) from error
    here = (machine.zone, machine.instance_type)
    offers = tuple(offer for offer in offers if (offer.configuration.zone, offer.configuration.instance_type) != here)
    if not offers:
        raise _nothing_else_error(machine, constraint)
    max_price = request.requirements.max_price
    machine = machine._replace(max_price=None if max_price is None else max_price.nanos)
    return MovePlan(machine, lease, _image_price(session, machine), offers)


def check_move(session: Session, plan: MovePlan, override: str | None, *, no_guard: bool = False) -> None:
    """Raise the error with which the launch of a planned move would be refused, as far as no cloud has to be asked.

    Checked before the machine is ended for the move; the launch checks again. Raises BudgetRefused where a budget does
    not admit the cheapest offer, LedgerUnavailable where the ledger may be incomplete, and InvalidRequest, unless
    `no_guard`, where nothing would end the moved machine.
    """
    session.check_launchable()
    machine, lease, offer = plan.machine, plan.lease, plan.offers[0]
    if not no_guard and needs_reaper_run(session.provider_of(machine), offer, Resolved({})):
        check_launch_guarded(session, offer)
    sync_before_admission(session, {}, lambda budget: budget.scope.covers(machine))
    session.check_launchable()
    configuration, price = offer.configuration, on_demand_of(session, offer, plan.offers)
    moved_machine = as_running(machine, lease.renew_until)
    moved_machine = moved_machine._replace(
        instance_type=configuration.instance_type,
        zone=configuration.zone,
        price=HourlyPrice.of(price_to_json(offer.price)),
        on_demand=None if price is None else HourlyPrice.of(price_to_json(price)),
    )
    now = session.clock()
    shorter_lease = shorter_launch(now, lease.expires - now, f"cloudgpu start {machine.name} --move")
    admission = session.ledger.read(lambda view: evaluate_budgets(session, view, moved_machine))
    check_admission(admission, override, Remedy(shorter_lease, offers=plan.offers))


def move(session: Session, machine: Machine, *, why: str) -> Machine:
    """End a stopped machine and make an image of its disk; return the machine, to be restored from that.

    Raises InvalidRequest where it was started since the plan, or since its record.
    """
    check_right_and_claim_owner(session, machine, "start")
    with lock_machine(session, machine):
        machine = session.ledger.machine(machine.id) or machine
        if machine.terminated_at is None:
            machine = refresh(session, machine)
        if machine.terminated_at is None and machine.state not in STARTABLE_STATES:
            raise _cannot_move_error(machine)
        return park(session, machine, why=why)


def suggest_move(session: Session, machine: Machine, lease: Lease, error: NoCapacity) -> NoCapacity:
    """Return the error of a start without capacity, with the cost of a move by image if a move is known to be possible.

    What fails in finding that out is not raised: the missing capacity is what the user has to know.
    """
    try:
        plan = plan_move(session, machine, lease)
    except CloudgpuError:
        return error
    cheapest = plan.offers[0]
    per_month = plan.image_cost.per_month
    cost_text = "whose price is not known" if per_month is None else f"at most {per_month.text()} a month until it runs"
    destination = cheapest.configuration
    error.next = (
        f"Its disk is kept. To move it by an image ({cost_text}) to {destination.instance_type} in {destination.zone} "
        f"at {cheapest.price.per_hour.text(4)} an hour: cloudgpu start {machine.name} --move"
    )
    return error


def check_restorable(session: Session, machine: Machine) -> None:
    """Raise InvalidRequest for a machine whose launch is not known well enough to be repeated."""
    is_known = machine.instance_type and machine.template and machine.key
    if not is_known or machine_id(session.ledger.id, machine.key) != machine.id:
        raise InvalidRequest(
            f"{machine.name} was found without a launch record, so cloudgpu does not know how to launch it again.",
            field="name",
            value=machine.name,
            next=f"Launch from its image by hand (cloudgpu show {machine.name} -o json names it), or end it: "
            f"cloudgpu down {machine.name}",
        )


def _image_id_of(machine: Machine) -> str | None:
    """Return the id of the image to restore a machine from; None where none is ready."""
    return next((entry.id for entry in machine.retained if entry.kind == Kind.IMAGE and entry.ready), None)


def _launch_request(session: Session, machine: Machine, lease: Lease, needs: Requirements) -> LaunchRequest:
    """Return the request that launches the machine again from its image, with its own key and name."""
    now = session.clock().replace(microsecond=0)
    setup = setup_from_json(machine.setup.record()) if machine.setup else _DEFAULT_SETUP
    return LaunchRequest(
        key=machine.key,
        name=machine.name,
        provider=machine.provider,
        account=session.account_name_here(machine),
        requirements=replace(needs, persistent=setup.persistent),
        template=not_none(machine.template),
        owner=machine.owner,
        project=machine.project,
        policy=machine.policy,
        lease_s=int((lease.expires - now).total_seconds()),
        renew_s=int((lease.renew_until - now).total_seconds()),
        setup=replace(setup, image=_image_id_of(machine)),
        policy_by=machine.policy_by or "",
        terms=machine.terms and machine.terms.record(),
    )


def _requirements_of(machine: Machine, max_price: Money | None, *, any_type: bool) -> Requirements:
    """Return the requirements: the same type on the same market, or with `any_type` every type with the same GPUs."""
    gpus = machine.accelerators or ()
    needs = Requirements(
        region=machine.region,
        market=Market(machine.market),
        trust=Trust(machine.trust or Trust.CLOUD),
        max_price=max_price or (None if machine.max_price is None else Money(machine.max_price)),
    )
    if any_type and gpus:
        return replace(needs, gpu=gpus[0].name, gpu_count=gpus[0].number)
    return replace(needs, instance_type=machine.instance_type)


def _lifetime_of_lease(session: Session, lease: Lease) -> Lifetime:
    """Return the lease and renew-until as durations from now."""
    now = session.clock().replace(microsecond=0)
    return Lifetime(lease.expires - now, lease.renew_until - now, Origin.POLICY, Origin.POLICY)


def _image_price(session: Session, machine: Machine) -> AddedCost:
    """Return what an image of the machine's disks costs."""
    resources = retention_records.resources_in_region(session, machine).items
    disks = (
        resource for resource in resources if resource.kind is Kind.DISK and resource.attached_to == machine.provider_id
    )
    return image_cost(machine.provider, machine.region, sum(disk.size_gb for disk in disks))


def _still_retained_error(machine: Machine, error: NoCapacity, *, any_type: bool) -> NoCapacity:
    error.message += f" Retained resources of {machine.name} remain."
    start_command = f"cloudgpu start {machine.name}"
    price_option = f"; at a higher price: {start_command} --max-price USD" if error.field == "--max-price" else ""
    move_option = "" if any_type else f"; with any type that has the same GPUs: {start_command} --move"
    error.next = f"Try again later: {start_command}{price_option}{move_option}"
    return error


def _nothing_else_error(machine: Machine, constraint: PlacementConstraint) -> NoCapacity:
    location, reason = machine.region, ""
    if constraint.zone is not None:
        location, reason = constraint.zone, f", and it cannot leave that zone: {constraint.why}"
    return NoCapacity(
        f"Nothing else in {location} has what {machine.name} has{reason}.",
        field="name",
        value=machine.name,
        next=f"Its disk is kept. Try again later: cloudgpu start {machine.name}",
    )


def _cannot_move_error(machine: Machine) -> InvalidRequest:
    reason = (
        "cannot keep an image"
        if machine.state in STARTABLE_STATES
        else f"is {machine.state}: only a stopped machine is moved"
    )
    return InvalidRequest(
        f"{machine.name} on {machine.provider} {reason}.",
        field="--move",
        value=machine.name,
        next=f"Leave --move out, or stop it first: cloudgpu stop {machine.name}",
    )
