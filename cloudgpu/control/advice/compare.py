"""Compares the cost of rented machines, by the ledger, with a desktop that would have done the same work.

It separates the rented machines in the ledger from the user's own, and finds their GPUs, the speed of the desktop's GPU
relative to them, and the cheapest offer of a GPU like the user's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from fractions import Fraction
from typing import TYPE_CHECKING

from cloudgpu import catalog
from cloudgpu.catalog.location import use_directory as use_prices
from cloudgpu.catalog.read import find_gpu, gpu_of, knows_gpus, speed_ratios
from cloudgpu.control.activity.utilization import OwnMachine, own_machines, utilization_of
from cloudgpu.core.activity.utilization import Hour
from cloudgpu.core.advice.compare import (
    LOCAL,
    Case,
    History,
    OwnMachineWork,
    RentedMachine,
    by_day,
    comparisons as compare_cases,
    rented_machines,
)
from cloudgpu.core.advice.desktop import ownership_cost, with_market_depreciation
from cloudgpu.core.billing.charges import money
from cloudgpu.core.billing.daily import DailyCosts, add_ranges, daily
from cloudgpu.core.catalog.catalog import CatalogOffer, GpuSpec
from cloudgpu.core.catalog.gpus import EQUAL_SPEED, SpeedRatio, Workload, speed_ratio
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.model.offers import Accelerator, Basis, Market
from cloudgpu.core.values.money import ZERO, Money
from cloudgpu.core.values.times import from_iso, iso
from cloudgpu.core.values.units import Energy
from cloudgpu.ledger.samples.store import SampleStore
from cloudgpu.views.advice.compare import compare_document
from cloudgpu.views.advice.compare_sentences import CompareFacts

if TYPE_CHECKING:
    from cloudgpu.control.advice.compare_request import CompareRequest
    from cloudgpu.control.session.session import Session
    from cloudgpu.core.model.usage import EndedUsage
    from cloudgpu.views.documents.money.compare import CompareDocument


SAMPLES_WINDOW_S = 3600.0  # the last hour of samples shows whether the GPU is measured
NO_TIME = timedelta(0)
CLOCK_TOLERANCE = timedelta(minutes=1)  # two clocks that differ by less agree


@dataclass(frozen=True, slots=True)
class PeriodCosts:
    """The machines, their `ended_usages`, and their hours of activity by machine id, in a period.

    `cost` is the daily cost of all of these machines, if the caller has computed it already.
    """

    machines: Sequence[Machine]
    ended_usages: Sequence[EndedUsage]
    hours: Mapping[str, Sequence[Hour]]
    cost: DailyCosts | None = None


def read_period_costs(session: Session, since: datetime | None, until: datetime | None) -> PeriodCosts:
    """Return a period's machines, usages and hours, all from one read of the ledger."""
    since_text = "" if since is None else iso(since)
    machines, ended_usages = session.ledger.read(
        lambda view: (view.billable_machines(), list(view.ended_usages(since_text)))
    )
    return PeriodCosts(machines, ended_usages, utilization_of(session, machines, ended_usages, since, until))


def compare_with_desktop(
    session: Session, request: CompareRequest, costs: PeriodCosts | None = None
) -> CompareDocument:
    """Return the document of `compare` without a price: the ledger compared with a desktop. Asks no cloud.

    `costs` are those of the period of `request`, if the caller has read them already.
    """
    use_prices(session.home.price_lists)
    inputs = costs or read_period_costs(session, request.since, request.until)
    return compare_document(_compare_facts(session, request, inputs), request.tz, request.currency, request.changed)


def _compare_facts(session: Session, request: CompareRequest, costs: PeriodCosts) -> CompareFacts:
    now, desktop = session.clock(), request.desktop
    desktop_gpu, is_ongoing = find_gpu(desktop.gpu), request.until is None or request.until > now
    rented, uses_local_as_rented = rented_machines(costs.machines)
    future_entry_at = _future_entry_at(session, now)
    past_request = request
    if future_entry_at is not None:  # entries dated later than now must not count
        past_request, costs = replace(request, until=min(now, request.until or now)), replace(costs, cost=None)
    history, unpriced = _history(session, past_request, costs, rented, now)
    active, rented_ids = (
        [machine for machine in costs.machines if machine.id in costs.hours],
        {machine.id for machine in rented},
    )
    market_desktop = with_market_depreciation(desktop)
    cases = {} if history is None else compare_cases(history, desktop, goes_on=is_ongoing)
    desktop_count = cases[Case.EXPECTED].owned.number if cases else 1
    local_names = (
        [] if uses_local_as_rented else [machine.name or machine.id for machine in active if machine.provider == LOCAL]
    )
    resale_value = ZERO
    if history is not None:
        resale_value = ownership_cost(market_desktop, history.elapsed, NO_TIME, desktop_count).worth
    return CompareFacts(
        now=now,
        desktop=desktop,
        desktop_memory=None if desktop_gpu is None else desktop_gpu.memory_gib,
        workload=request.work or Workload.TRAINING,
        history=history,
        cases=cases,
        own_machines=_own_machines_work(session, past_request, costs),
        unpriced=unpriced,
        since=request.since,
        until=request.until,
        is_ongoing=is_ongoing,
        resale_value=resale_value,
        resale_depreciation=market_desktop.depreciation,
        ledger_ahead=future_entry_at,
        uses_local_as_rented=uses_local_as_rented,
        local_names=local_names,
        unknown_gpus=[
            machine.name or machine.id for machine in active if machine.id in rented_ids and not knows_gpus(machine)
        ],
    )


def _history(
    session: Session, request: CompareRequest, costs: PeriodCosts, rented: Sequence[Machine], now: datetime
) -> tuple[History | None, tuple[str, ...]]:
    """Return the rented machines' daily cost and work, and names of what has no price; None if nothing was billed."""
    rented_ids, are_all_rented = {machine.id for machine in rented}, len(rented) == len(costs.machines)
    ended_usages = (
        costs.ended_usages
        if are_all_rented
        else [(id_, usage) for id_, usage in costs.ended_usages if id_ in rented_ids]
    )
    begins = [usage.begin for _, usage in ended_usages] + [
        usage.begin for machine in rented for usage in machine.open_usage
    ]
    cost = costs.cost if are_all_rented else None
    if cost is None:
        cost = daily(rented, ended_usages, now, request.zone, since=request.since, until=request.until)
    if not begins or not (cost.days or cost.without_price or rented_ids & costs.hours.keys()):
        return None, ()
    begin = max(filter(None, (from_iso(min(begins)), request.since)))
    end = now if request.until is None else min(now, request.until)
    sums_by_day = {day: add_ranges(projects.values()) for day, projects in cost.days.items()}
    machines = _rented_machines_with_hours(session, request, costs, rented)
    return History(begin, max(begin, end), request.zone, sums_by_day, machines), cost.without_price


def _rented_machines_with_hours(
    session: Session, request: CompareRequest, costs: PeriodCosts, rented: Sequence[Machine]
) -> list[RentedMachine]:
    active = [machine for machine in rented if machine.id in costs.hours]
    begins = {hour.at for machine in active for hour in costs.hours[machine.id]}
    days = {at: at.astimezone(request.zone).date() for at in begins}  # an hour counts on the day when it begins
    speed = speed_ratios(request.desktop, request.work or Workload.TRAINING)
    return [_rented_machine(session, machine, costs.hours[machine.id], days, speed) for machine in active]


def _rented_machine(
    session: Session,
    machine: Machine,
    hours: Sequence[Hour],
    days: Mapping[datetime, date],
    speed: Callable[[Accelerator], SpeedRatio],
) -> RentedMachine:
    gpu = gpu_of(machine)
    return RentedMachine(
        name=machine.name or machine.id,
        gpu="" if gpu is None else gpu.name,
        gpus=0.0 if gpu is None else gpu.count * gpu.share,
        memory_gib=None if gpu is None else gpu.memory_gib,
        speed=EQUAL_SPEED if gpu is None else speed(gpu),
        is_measured=gpu is None or _is_measured(session, machine, hours),
        days=by_day(hours, days),
    )


def _is_measured(session: Session, machine: Machine, hours: Sequence[Hour]) -> bool:
    """Return whether the use of the machine's GPUs is measured; False if its samples were deleted already.

    True for a machine that was never in use: there is nothing to measure.
    """
    if any(hour.gpu_s for hour in hours) or not any(hour.used_s for hour in hours):
        return True
    store = SampleStore(session.home.samples, machine.id)
    last_s = store.last()
    return any(sample.get("gpu") is not None for sample in store.read(last_s - SAMPLES_WINDOW_S, last_s))


def _own_machines_work(session: Session, request: CompareRequest, costs: PeriodCosts) -> list[OwnMachineWork]:
    by_id = {machine.id: machine for machine in costs.machines}
    return [
        compare_own_machine(
            by_id[own.id],
            own,
            request.work or Workload.TRAINING,
            _cost_of(by_id[own.id], costs.ended_usages, session.clock(), request),
            is_measured=_is_measured(session, by_id[own.id], costs.hours[own.id]),
        )
        for own in own_machines(costs.machines, costs.hours)
    ]


def _cost_of(
    machine: Machine, ended_usages: Sequence[EndedUsage], now: datetime, request: CompareRequest
) -> Money | None:
    """Return the cost of one machine in the period, as `cost` shows it; None if a part has no price."""
    usages = [(machine_id, usage) for machine_id, usage in ended_usages if machine_id == machine.id]
    costs = daily([machine], usages, now, request.zone, since=request.since, until=request.until)
    return None if costs.without_price else money(costs.total.amount)


def _future_entry_at(session: Session, now: datetime) -> datetime | None:
    """Return the time of the ledger's last entry if it is later than this computer's clock, else None."""
    _, _, recorded = session.ledger.head()
    last_entry_at = from_iso(recorded) if recorded else None
    return last_entry_at if last_entry_at is not None and last_entry_at > now + CLOCK_TOLERANCE else None


def compare_own_machine(
    machine: Machine, own: OwnMachine, work: Workload, cost: Money | None, *, is_measured: bool
) -> OwnMachineWork:
    """Return the work of one of the user's own machines; `cost` is its cost in the ledger, None: not known.

    Without `is_measured`, all its use counts as work.
    """
    gpu = gpu_of(machine)
    hours = own.gpu_busy_hours if is_measured else own.hours
    spec = None if gpu is None else catalog.spec_of(gpu.name, gpu.memory_gib)
    offer, ratio = (None, Fraction(1)) if spec is None else cheapest_substitute(spec, work)
    return OwnMachineWork(
        id=own.id,
        name=own.name or own.id,
        gpu="" if gpu is None else gpu.name,
        gpus=0.0 if gpu is None else gpu.count * gpu.share,
        worked=timedelta(hours=hours),
        unknown=timedelta(hours=own.unknown_hours),
        energy=_energy(own, hours),
        electricity=cost,
        is_assumed=machine.price is not None and machine.price.basis == Basis.ASSUMED,
        offer=offer,
        ratio=ratio,
        counted_gpu_time=timedelta(hours=own.gpu_hours),
        time_with_gpu_count=timedelta(hours=own.hours_with_gpu_count),
    )


def _energy(machine: OwnMachine, hours: float) -> Energy | None:
    """Return the energy of the machine's GPUs, None if never measured; unmeasured hours count at the mean power."""
    if machine.kwh is None or not machine.measured_hours:
        return None
    unmeasured = max(0.0, hours - machine.measured_hours)
    return Energy(Fraction(machine.kwh) + Fraction(machine.watts or 0.0) * Fraction(unmeasured) / 1000)


def cheapest_substitute(spec: GpuSpec, work: Workload) -> tuple[CatalogOffer | None, Fraction]:
    """Return the cheapest on-demand offer of this GPU, or of another one if no cloud lists it; None if there is none.

    The fraction is how many hours of the offer's GPU replace one hour of this GPU.
    """
    offers = [offer for offer in catalog.offers(market=Market.ON_DEMAND) if offer.type.gpu.share]
    same_gpu = [(offer, Fraction(1)) for offer in offers if offer.type.gpu.name == spec.name]
    candidates = same_gpu or [(offer, ratio) for offer in offers if (ratio := _hours_ratio(spec, offer, work))]
    if not candidates:
        return None, Fraction(1)
    return min(
        candidates, key=lambda it: (_nanos_per_gpu(it[0]) * it[1], it[0].type.provider, it[0].type.name)
    )  # it: (offer, ratio)


def _hours_ratio(spec: GpuSpec, offer: CatalogOffer, work: Workload) -> Fraction | None:
    """Return how many hours of the offer's GPU replace one hour of this GPU; None if a speed is not known."""
    offer_spec = catalog.spec_of(offer.type.gpu.name, offer.type.gpu.memory_gib)
    ratio = None if offer_spec is None else speed_ratio(spec, offer_spec, work)
    return None if ratio is None else ratio.ratio


def _nanos_per_gpu(offer: CatalogOffer) -> Fraction:
    """Return the price of one GPU of the offer for an hour, in nano-dollars."""
    gpu = offer.type.gpu
    return Fraction(offer.listed.price.per_hour.nanos) / (Fraction(str(gpu.share)) * gpu.count)
