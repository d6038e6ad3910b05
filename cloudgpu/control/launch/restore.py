"""Brings a machine back from what is kept of it: a launch from its image, under its own id, key and name."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from cloudgpu.control.access.reach import wait_until_ready
from cloudgpu.control.budgets.admission import ask_budgets, look_first
from cloudgpu.control.inventory.settle import settle
from cloudgpu.control.inventory.stop_proof import PROVED_WITHIN
from cloudgpu.control.launch.budget_preview import check_asking
from cloudgpu.control.launch.launch import launch
from cloudgpu.control.launch.offers import offers_or_known
from cloudgpu.control.launch.plan import Prepared, prepare_again
from cloudgpu.control.launch.volumes import with_volume
from cloudgpu.control.lifecycle.lifecycle import alone, new_lease, start
from cloudgpu.control.lifecycle.parking import park
from cloudgpu.control.lifecycle.timers import drop
from cloudgpu.control.pricing.attached_costs import image_price
from cloudgpu.control.pricing.price_history import on_demand_of
from cloudgpu.control.records import retention as kept
from cloudgpu.control.team.law import check_may, check_override
from cloudgpu.core.budgets.refusal import Way, shorter_launch
from cloudgpu.core.launch.attempt import setup_from_json
from cloudgpu.core.launch.plan_cost import Extra, row_until
from cloudgpu.core.model.facts import HourlyPrice
from cloudgpu.core.model.launch import LaunchRequest, Setup
from cloudgpu.core.model.machine import Machine, comes_back, fact, stays
from cloudgpu.core.model.offers import Market, Requirements, price_to_json
from cloudgpu.core.model.resources import Kind
from cloudgpu.core.policies.policy import Lifetime, Origin
from cloudgpu.core.resources import retention as keeping
from cloudgpu.core.resources.orphan import PAUSED
from cloudgpu.core.values.naming import machine_id
from cloudgpu.errors import InvalidRequest, NoCapacity

if TYPE_CHECKING:
    from collections.abc import Callable

    from cloudgpu.control.session.session import Session
    from cloudgpu.core.launch.plan import Lease
    from cloudgpu.core.model.offers import Offer

_USUAL = Setup()


@dataclass(frozen=True, slots=True)
class Move:
    """What moving a stopped machine means: the image of its disk, and the offers from which it could run again."""

    row: Machine
    image: Extra
    offers: tuple[Offer, ...]


def start_stopped(
    session: Session, row: Machine, lease: Lease, *, wait: bool = True, override: str | None = None
) -> Machine:
    """Start a stopped machine with its volume and return its row; wait until SSH is verified, unless told not to.

    Raises NoCapacity with what it would cost to move the machine by an image, where that helps.
    """
    try:
        row = start(session, row, lease, override=override)
    except NoCapacity as fault:
        raise offer_to_move(session, session.ledger.machine(row.id) or row, fault) from fault
    row = with_volume(session, row)
    return _ready(session, row) if wait else row


def _ready(session: Session, row: Machine) -> Machine:
    """Wait until SSH is verified; then the image from which the machine may have come back is no longer needed."""
    row = wait_until_ready(session, row)
    if not row.retained:
        return row
    with alone(session, row):
        return kept.superseded(session, session.ledger.machine(row.id) or row)


def started(
    session: Session,
    row: Machine,
    span: timedelta | None,
    *,
    renew: timedelta | None = None,
    override: str | None = None,
    move_it: bool = False,
    wait: bool = True,
) -> Machine:
    """Start a machine, whether it is stopped, parked or was interrupted, without asking; return its row."""
    check_may(session, row, "start")
    check_override(session, override)
    row = settled_first(session, row)
    if move_it and not comes_back(row):
        check_move(session, plan_move(session, row), new_lease(session, row, span, renew), override)
        row = move(session, row, why="it is moved")
    if comes_back(row):
        plan = plan_comeback(session, row, span, renew=renew, override=override, wider=move_it)
        return come_back(session, plan, wait=wait)
    return start_stopped(session, row, new_lease(session, row, span, renew), wait=wait, override=override)


def settled_first(session: Session, row: Machine) -> Machine:
    """Return the row of a machine whose comeback may have been interrupted, settled: it runs, or can be tried again."""
    if row.launch_status != "open" or not row.retained:
        return row
    with alone(session, row):
        row = session.ledger.machine(row.id) or row
        return settle(session, row, deadline=session.clock() + PROVED_WITHIN) if row.launch_status == "open" else row


def plan_comeback(
    session: Session,
    row: Machine,
    span: timedelta | None,
    *,
    renew: timedelta | None = None,
    override: str | None = None,
    wider: bool = False,
) -> Prepared:
    """Return the plan that launches a machine from its image; finish the image first where it is not ready.

    `wider` allows every type with the same GPUs, else it is the same type again; always in the region of the image.
    Raises NoCapacity when nothing fits: what is kept stays. InvalidRequest for a machine that cannot be launched again.
    """
    check_may(session, row, "start")
    check_override(session, override)
    session.check_launchable()
    check_comeback(session, row)
    with alone(session, row):
        row = session.ledger.machine(row.id) or row
        if stays(row) and not keeping.is_parked(row):
            row = park(session, row, why="its start was asked")
        if row.terminated_at is not None and row.timer:  # of the machine before: the one to come gets its own
            row = drop(session, row)
    if _image_of(row) is None:  # somebody else started or ended it meanwhile
        raise InvalidRequest(
            f"{row.name} is no longer parked: it is {row.state}.",
            field="name",
            value=row.name,
            next=f"Run: cloudgpu show {row.name} --refresh",
        )
    lease = new_lease(session, row, span, renew)
    try:
        request = _request(session, row, lease, wider=wider)
        return prepare_again(session, request, row, _spans(session, lease), override)
    except NoCapacity as fault:
        raise _stays(row, fault, wider=wider) from fault


def come_back(
    session: Session, prepared: Prepared, *, wait: bool = True, agree: Callable[[], None] = lambda: None
) -> Machine:
    """Carry out the plan of a comeback and return the machine's row; its image is removed once it is known to run.

    Without `wait` the image stays until a later look sees that the machine has run for a while.
    """
    try:
        row = launch(session, prepared, wait=wait, agree=agree).row
    except NoCapacity as fault:
        latest = session.ledger.machine(machine_id(session.ledger.id, prepared.key or ""))
        raise (fault if latest is None else _stays(latest, fault, wider=False)) from fault
    if row.terminated_at is not None or not row.retained:
        return row
    if not wait:
        session.tell(f"{row.name}: its image stays until ls --refresh has seen it run for a while")
        return row
    with alone(session, row):
        return kept.superseded(session, session.ledger.machine(row.id) or row)


def plan_move(session: Session, row: Machine) -> Move:
    """Return what it means to bring a stopped machine back elsewhere in its region. Changes nothing.

    Raises InvalidRequest for a machine of which no image can be made, NoCapacity when nothing else fits.
    """
    if not kept.keeps(session, row) or row.state not in PAUSED:
        raise _not_to_be_moved(row)
    check_comeback(session, row)
    provider, request = session.provider_of(row), _want(row, wider=True)
    offers = [
        offer
        for offer in offers_or_known(session, provider, request, None)
        if (offer.available.zone, offer.available.instance_type) != (row.zone, row.instance_type)
    ]
    if not offers:
        raise NoCapacity(
            f"Nothing else in {row.region} has what {row.name} has.",
            field="name",
            value=row.name,
            next=f"Its disk is kept. Try again later: cloudgpu start {row.name}",
        )
    return Move(row, _image_price(session, row), tuple(offers))


def check_move(session: Session, move: Move, lease: Lease, override: str | None) -> None:
    """Raise BudgetRefused where a budget does not carry a machine at the cheapest place to which it can be moved.

    Asked before the machine ends for it: what is then launched is asked again. Raises LedgerUnavailable in doubt.
    """
    session.check_launchable()
    row, offer = move.row, move.offers[0]
    look_first(session, {}, lambda budget: budget.scope.covers(row))
    session.check_launchable()
    item, price = offer.available, on_demand_of(session, offer, move.offers)
    wanted = row_until(row, lease.renew_until)
    wanted = wanted._replace(
        instance_type=item.instance_type,
        zone=item.zone,
        price=HourlyPrice.of(price_to_json(offer.price)),
        on_demand=None if price is None else HourlyPrice.of(price_to_json(price)),
    )
    now = session.clock()
    shorter = shorter_launch(now, lease.expires - now, f"cloudgpu start {row.name} --move")
    ask = session.ledger.read(lambda view: ask_budgets(session, view, wanted))
    check_asking(ask, override, Way(shorter, offers=move.offers))


def move(session: Session, row: Machine, *, why: str) -> Machine:
    """End a stopped machine and make an image of its disk; return its row, to be brought back from that."""
    check_may(session, row, "start")
    with alone(session, row):
        return park(session, session.ledger.machine(row.id) or row, why=why)


def offer_to_move(session: Session, row: Machine, fault: NoCapacity) -> NoCapacity:
    """Return the fault of a start without capacity, which says what moving by image would cost, where that helps."""
    try:
        found = plan_move(session, row)
    except (InvalidRequest, NoCapacity):
        return fault
    cheapest = found.offers[0]
    per_month = found.image.per_month
    costs = "whose price is not known" if per_month is None else f"at most {per_month.text()} a month until it runs"
    fault.next = (
        f"Its disk is kept. To move it by an image ({costs}) to {cheapest.available.instance_type} in "
        f"{cheapest.available.zone} at {cheapest.price.per_hour.text(4)} an hour: cloudgpu start {row.name} --move"
    )
    return fault


def check_comeback(session: Session, row: Machine) -> None:
    """Raise InvalidRequest for a machine whose launch is not known well enough to be repeated."""
    if row.instance_type and row.template and row.key:
        known = machine_id(session.ledger.id, row.key) == row.id
    else:
        known = False
    if not known:
        raise InvalidRequest(
            f"{row.name} was found without a launch record, so cloudgpu does not know how to launch it again.",
            field="name",
            value=row.name,
            next=f"Launch from its image by hand (cloudgpu show {row.name} -o json names it), or end it: "
            f"cloudgpu down {row.name}",
        )


def _image_of(row: Machine) -> str | None:
    """Return the image that a machine comes back from, None where there is none that is ready."""
    return next((entry.id for entry in row.retained if entry.kind == Kind.IMAGE and entry.ready), None)


def _request(session: Session, row: Machine, lease: Lease, *, wider: bool) -> LaunchRequest:
    now = session.clock().replace(microsecond=0)
    setup = setup_from_json(row.setup.record()) if row.setup else _USUAL
    image = _image_of(row)
    return LaunchRequest(
        key=row.key,
        name=row.name,
        provider=row.provider,
        account=session.account_here(row),
        want=replace(_want(row, wider=wider), persistent=setup.persistent),
        template=fact(row.template),
        owner=row.owner,
        project=row.project,
        policy=row.policy,
        lease_s=int((lease.expires - now).total_seconds()),
        renew_s=int((lease.renew_until - now).total_seconds()),
        setup=replace(setup, image=image),
        policy_by=row.policy_by or "",
        terms=row.terms and row.terms.record(),
    )


def _want(row: Machine, *, wider: bool) -> Requirements:
    """Return what is looked for: the same type on the same market, or, wider, every type with the same GPUs."""
    place, market = row.region, Market(row.market)
    gpus = row.accelerators or ()
    if wider and gpus:
        return Requirements(gpu=gpus[0].name, gpu_count=gpus[0].number, region=place, market=market)
    return Requirements(instance_type=row.instance_type, region=place, market=market)


def _spans(session: Session, lease: Lease) -> Lifetime:
    now = session.clock().replace(microsecond=0)
    return Lifetime(lease.expires - now, lease.renew_until - now, Origin.POLICY, Origin.POLICY)


def _image_price(session: Session, row: Machine) -> Extra:
    disks = [one for one in kept.leftovers_at(session, row).items if one.attached_to == row.provider_id]
    size = sum(one.size_gb for one in disks if one.kind is Kind.DISK)
    return image_price(row.provider, row.region, size)


def _stays(row: Machine, fault: NoCapacity, *, wider: bool) -> NoCapacity:
    fault.message += f" What is kept of {row.name} stays."
    widely = "" if wider else f"; with any type that has the same GPUs: cloudgpu start {row.name} --move"
    fault.next = f"Try again later: cloudgpu start {row.name}{widely}"
    return fault


def _not_to_be_moved(row: Machine) -> InvalidRequest:
    says = "cannot keep an image" if row.state in PAUSED else f"is {row.state}: only a stopped machine is moved"
    return InvalidRequest(
        f"{row.name} on {row.provider} {says}.",
        field="--move",
        value=row.name,
        next=f"Leave --move out, or stop it first: cloudgpu stop {row.name}",
    )
