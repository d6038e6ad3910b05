"""Compares what the cloud has cost, by this ledger, with a desktop that would have done the same work.

It tells the ledger's rented machines from those that are the user's own, and says which GPUs they have, how fast the
desktop's is beside them, and where the same can be rented.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from cloudgpu import catalog
from cloudgpu.catalog.location import use as use_prices
from cloudgpu.catalog.read import gpu_named, gpu_of, knows_gpus, speeds
from cloudgpu.control.activity.utilization import OwnMachine, own_machines, utilization_of
from cloudgpu.core.activity.utilization import Hour
from cloudgpu.core.advice.compare import (
    HERE,
    Case,
    History,
    OwnMachineWork,
    RentedMachine,
    by_day,
    clouds_of,
    comparisons as sides_of,
)
from cloudgpu.core.advice.desktop import ownership_cost, sold_by_age
from cloudgpu.core.billing.charges import money
from cloudgpu.core.billing.daily import Daily, add_sums, daily
from cloudgpu.core.catalog.catalog import CatalogOffer, GpuSpec
from cloudgpu.core.catalog.gpus import EQUAL, SpeedRatio, Work, speed_ratio
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.model.offers import Accelerator, Basis, Market
from cloudgpu.core.values.money import ZERO, Money
from cloudgpu.core.values.times import from_iso, iso
from cloudgpu.core.values.units import Energy
from cloudgpu.ledger.samples.store import SampleStore
from cloudgpu.views.advice.compare import compare_value
from cloudgpu.views.advice.compare_sentences import Story

if TYPE_CHECKING:
    from cloudgpu.control.advice.compare_request import CompareRequest
    from cloudgpu.control.session.session import Session
    from cloudgpu.core.billing.cost_groups import Ended
    from cloudgpu.views.documents.money.compare import CompareDocument


LOOK_BACK = 3600.0  # seconds of samples in which the use of a GPU would stand, where it is read
NOTHING = timedelta(0)
NO_TIME = timedelta(minutes=1)  # two clocks that differ by less agree
_KWH = 3_600_000  # joules


@dataclass(frozen=True, slots=True)
class PeriodCosts:
    """What the ledger and the samples say: rows, ended uses, each machine's hours (`control.activity.utilization`).

    `cost` is what all of these rows cost by day, for whoever has added that up already.
    """

    rows: Sequence[Machine]
    ended: Sequence[Ended]
    hours: Mapping[str, Sequence[Hour]]
    cost: Daily | None = None


def read_period_costs(session: Session, since: datetime | None, until: datetime | None) -> PeriodCosts:
    """Return what both say of a period, the ledger as of one line of it."""
    text = "" if since is None else iso(since)
    machines, ended = session.ledger.read(lambda view: (view.billable_machines(), list(view.uses(text))))
    return PeriodCosts(machines, ended, utilization_of(session, machines, ended, since, until))


def compare_with_desktop(
    session: Session, request: CompareRequest, costs: PeriodCosts | None = None
) -> CompareDocument:
    """Return the comparison with a desktop: what `compare` prints without a price. Asks no cloud.

    `found` is what was read already of the very period of `request`.
    """
    use_prices(session.home.price_lists)
    known = costs or read_period_costs(session, request.since, request.until)
    return compare_value(_story(session, request, known), request.tz, request.currency, request.changed)


def _story(session: Session, request: CompareRequest, costs: PeriodCosts) -> Story:
    now, desktop = session.clock(), request.desktop
    its, goes_on = gpu_named(desktop.gpu), request.until is None or request.until > now
    counted, rehearsed = clouds_of(costs.rows)
    last = _ahead(session, now)
    within, known = request, costs
    if last is not None:  # what is still to come did not happen yet
        within, known = replace(request, until=min(now, request.until or now)), replace(costs, cost=None)
    history, unpriced = _history(session, within, known, counted, now)
    ran, ids = [machine for machine in costs.rows if machine.id in costs.hours], {machine.id for machine in counted}
    worth_of = sold_by_age(desktop)
    sides = {} if history is None else sides_of(history, desktop, goes_on=goes_on)
    number = sides[Case.EXPECTED].owned.number if sides else 1
    here = [] if rehearsed else [machine.name or machine.id for machine in ran if machine.provider == HERE]
    return Story(
        now=now,
        desktop=desktop,
        desktop_memory=None if its is None else its.memory_gib,
        work=request.work or Work.TRAINING,
        history=history,
        sides=sides,
        own=_own_work(session, request, costs),
        unpriced=unpriced,
        since=request.since,
        until=request.until,
        goes_on=goes_on,
        worth=ZERO if history is None else ownership_cost(worth_of, history.elapsed, NOTHING, number).worth,
        worth_by=worth_of.depreciation,
        last=last,
        rehearsed=rehearsed,
        left_out=here,
        unknown_gpus=[machine.name or machine.id for machine in ran if machine.id in ids and not knows_gpus(machine)],
    )


def _history(
    session: Session, request: CompareRequest, costs: PeriodCosts, counted: Sequence[Machine], now: datetime
) -> tuple[History | None, tuple[str, ...]]:
    """Return what the counted rows cost by day and did, and what of it has no price; None where nothing was billed."""
    ids, of_all = {machine.id for machine in counted}, len(counted) == len(costs.rows)
    ended = costs.ended if of_all else [one for one in costs.ended if one[0] in ids]
    begins = [use.begin for _, use in ended] + [use.begin for machine in counted for use in machine.open_usage]
    cost = costs.cost if of_all else None
    if cost is None:
        cost = daily(counted, ended, now, request.zone, since=request.since, until=request.until)
    if not begins or not (cost.days or cost.without_price or ids & costs.hours.keys()):
        return None, ()
    begin = max(filter(None, (from_iso(min(begins)), request.since)))
    end = now if request.until is None else min(now, request.until)
    by_days = {day: add_sums(projects.values()) for day, projects in cost.days.items()}
    machines = _machines(session, request, costs, counted)
    return History(begin, max(begin, end), request.zone, by_days, machines), cost.without_price


def _machines(
    session: Session, request: CompareRequest, costs: PeriodCosts, counted: Sequence[Machine]
) -> list[RentedMachine]:
    ran = [machine for machine in counted if machine.id in costs.hours]
    begins = {hour.at for machine in ran for hour in costs.hours[machine.id]}
    days = {at: at.astimezone(request.zone).date() for at in begins}  # an hour is of the day on which it begins
    speed = speeds(request.desktop, request.work or Work.TRAINING)
    return [_machine(session, machine, costs.hours[machine.id], days, speed) for machine in ran]


def _machine(
    session: Session,
    machine: Machine,
    hours: Sequence[Hour],
    days: Mapping[datetime, Any],
    speed: Callable[[Accelerator], SpeedRatio],
) -> RentedMachine:
    gpu = gpu_of(machine)
    return RentedMachine(
        name=machine.name or machine.id,
        gpu="" if gpu is None else gpu.name,
        gpus=0.0 if gpu is None else gpu.count * gpu.share,
        memory_gib=None if gpu is None else gpu.memory_gib,
        speed=EQUAL if gpu is None else speed(gpu),
        read=gpu is None or _is_read(session, machine, hours),
        days=by_day(hours, days),
    )


def _is_read(session: Session, machine: Machine, hours: Sequence[Hour]) -> bool:
    """Say whether the use of its GPUs is read; samples as old as those that were dropped say nothing of it."""
    if any(hour.gpu for hour in hours) or not any(hour.used for hour in hours):
        return True
    shelf = SampleStore(session.home.samples, machine.id)
    last = shelf.last()
    return any(one.get("gpu") is not None for one in shelf.read(last - LOOK_BACK, last))


def _own_work(session: Session, asked: CompareRequest, found: PeriodCosts) -> list[OwnMachineWork]:
    rows = {machine.id: machine for machine in found.rows}
    mine = own_machines(found.rows, found.hours)
    work = asked.work or Work.TRAINING

    def of(one: OwnMachine) -> OwnMachineWork:
        machine = rows[one.id]
        cost = _cost_of(machine, found.ended, session.clock(), asked)
        return compare_own_machine(machine, one, work, cost, read=_is_read(session, machine, found.hours[one.id]))

    return [of(one) for one in mine]


def _cost_of(machine: Machine, ended: Sequence[Ended], now: datetime, request: CompareRequest) -> Money | None:
    """Return what one machine cost in the period: the very figure of `cost`. None where a part has no price."""
    its = [one for one in ended if one[0] == machine.id]
    found = daily([machine], its, now, request.zone, since=request.since, until=request.until)
    return None if found.without_price else money(found.total.amount)


def _ahead(session: Session, now: datetime) -> datetime | None:
    """Return when the ledger's last line was written, where that is still to come by this computer's clock."""
    _, _, recorded = session.ledger.head()
    last = from_iso(recorded) if recorded else None
    return last if last is not None and last > now + NO_TIME else None


def compare_own_machine(
    machine: Machine, period_costs: OwnMachine, work: Work, cost: Money | None, *, read: bool
) -> OwnMachineWork:
    """Return what one of the user's own machines did; `cost` is what the ledger says it came to, None: not known.

    Where its GPUs are not `read_period_costs`, all its use counts as work.
    """
    gpu = gpu_of(machine)
    hours = period_costs.gpu_hours if read else period_costs.hours
    spec = None if gpu is None else catalog.spec_of(gpu.name, gpu.memory_gib)
    offer, ratio = (None, Fraction(1)) if spec is None else cheapest_substitute(spec, work)
    return OwnMachineWork(
        id=period_costs.id,
        name=period_costs.name or period_costs.id,
        gpu="" if gpu is None else gpu.name,
        gpus=0.0 if gpu is None else gpu.count * gpu.share,
        worked=timedelta(hours=hours),
        unknown=timedelta(hours=period_costs.unknown_hours),
        energy=_energy(period_costs, hours),
        electricity=cost,
        assumed=machine.price is not None and machine.price.basis == Basis.ASSUMED,
        offer=offer,
        ratio=ratio,
        cards=timedelta(hours=period_costs.card_hours),
        counted=timedelta(hours=period_costs.counted_hours),
    )


def _energy(machine: OwnMachine, hours: float) -> Energy | None:
    """Return what its GPUs drew, where that was measured: hours that were not are as the others' mean."""
    if machine.kwh is None or not machine.measured_hours:
        return None
    late = max(0.0, hours - machine.measured_hours)
    return Energy(Fraction(machine.kwh) + Fraction(machine.watts or 0.0) * Fraction(late) / 1000)


def cheapest_substitute(spec: GpuSpec, work: Work) -> tuple[CatalogOffer | None, Fraction]:
    """Return the cheapest on-demand offer of this GPU and 1; where no cloud lists it, of the same work and its ratio.

    That is how many hours of the offer's GPU an hour of this one does. None where nothing is known.
    """
    offers = [offer for offer in catalog.offers(market=Market.ON_DEMAND) if offer.type.gpu.share]
    same = [(offer, Fraction(1)) for offer in offers if offer.type.gpu.name == spec.name]
    found = same or [(offer, ratio) for offer in offers if (ratio := _ratio(spec, offer, work))]
    if not found:
        return None, Fraction(1)
    return min(found, key=lambda one: (_per_gpu(one[0]) * one[1], one[0].type.provider, one[0].type.name))


def _ratio(spec: GpuSpec, offer: CatalogOffer, work: Work) -> Fraction | None:
    other = catalog.spec_of(offer.type.gpu.name, offer.type.gpu.memory_gib)
    ratio = None if other is None else speed_ratio(spec, other, work)
    return None if ratio is None else ratio.ratio


def _per_gpu(offer: CatalogOffer) -> Fraction:
    """Return what an hour of one whole GPU of it costs, in nano-dollars."""
    gpu = offer.type.gpu
    return Fraction(offer.listed.price.per_hour.nanos) / (Fraction(str(gpu.share)) * gpu.count)
