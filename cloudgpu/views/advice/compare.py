"""The cloud compared with a desktop as the plain values that `compare` prints, from a ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, TypeVar

from cloudgpu.core.advice.compare import Case, CaseCosts, OwnMachineWork, RentedMachine, gpu_seconds_by_day
from cloudgpu.core.advice.desktop import ownership_cost
from cloudgpu.core.values.money import HOUR_MICROS, ZERO, Money, usd
from cloudgpu.core.values.times import MICRO, iso
from cloudgpu.views.advice.compare_basis import assumptions, cautions, desktop_document
from cloudgpu.views.advice.compare_sentences import AmountFormat, own_machines_sentence, sentence
from cloudgpu.views.plans import price_document

if TYPE_CHECKING:
    from datetime import datetime

    from cloudgpu.core.catalog.gpus import SpeedRatio
    from cloudgpu.core.values.currency import Currency
    from cloudgpu.views.advice.compare_sentences import CompareFacts
    from cloudgpu.views.documents.money.compare import (
        BreakEven,
        CloudCost,
        ComparedDay,
        CompareDocument,
        CostlierPeriod,
        DailyPace,
        OwnedCost,
        OwnMachine,
        RentalAlternative,
        ScaledGpu,
    )
    from cloudgpu.views.documents.parts import Cases

T = TypeVar("T")
MAX_POINTS = 400  # of a curve; a longer one leaves out days, never its last day or the break-even
MICROS_PER_S = 1_000_000


def compare_document(
    facts: CompareFacts, tz: str, currency: Currency | None, changed: Sequence[str]
) -> CompareDocument:
    """Return the whole document: amounts as decimal text in USD, hours as decimal text; null means never.

    Of the cases, `low` favours the cloud and `high` the desktop. `changed` are the options that changed the desktop.
    """
    amounts = AmountFormat(currency)
    return {
        "mode": "ledger",
        "as_of": iso(facts.now),
        "since": _time(facts.since or (facts.history.begin if facts.history else None)),
        "until": _time(facts.until),
        "tz": tz,
        "currency": None if currency is None else currency.to_json(),
        "desktop": desktop_document(facts.desktop, changed),
        "work": str(facts.workload),
        "speeds": _speeds(facts),
        "cloud": _cloud(facts),
        "owned": {
            "low": _owned_cost_document(facts, facts.cases[Case.LOW]),
            "expected": _owned_cost_document(facts, facts.expected),
            "high": _owned_cost_document(facts, facts.cases[Case.HIGH]),
        }
        if facts.cases
        else None,
        "break_even": _break_even(facts),
        "pace": _cases(facts, lambda costs: _daily_pace(facts, costs)) if facts.cases else None,
        "resale_value": {"usd": usd(facts.resale_value), "by": str(facts.resale_depreciation)},
        "own_machines": [own_machine_document(machine) for machine in facts.own_machines],
        "own_machines_sentence": own_machines_sentence(facts.own_machines, amounts) if facts.own_machines else None,
        "paid_usd": _paid_usd(facts),
        "assumptions": assumptions(facts, amounts),
        "cautions": cautions(facts),
        "sentence": sentence(facts, amounts),
        "curve": list(curve(facts)),
    }


def hours(seconds: float) -> str:
    """Return seconds as decimal hours, to a hundred-millionth."""
    return usd(Money(round(Fraction(round(seconds * MICROS_PER_S), HOUR_MICROS) * 10**8) * 10))


def _time(at: datetime | None) -> str | None:
    return None if at is None else iso(at)


def _speeds(facts: CompareFacts) -> list[ScaledGpu]:
    """Return each GPU rented from a cloud, with its speed relative to the desktop's GPU and its hours of work."""
    by_gpu: dict[tuple[str, float | None, SpeedRatio], list[RentedMachine]] = {}
    for machine in [] if facts.history is None else facts.history.machines:
        if machine.gpus:
            by_gpu.setdefault((machine.gpu, machine.memory_gib, machine.speed), []).append(machine)
    gpu_keys = sorted(by_gpu, key=lambda gpu_key: (gpu_key[0], gpu_key[1] or 0.0))
    return [_speed(gpu_key, by_gpu[gpu_key], facts.desktop_memory) for gpu_key in gpu_keys]


def _speed(
    gpu_key: tuple[str, float | None, SpeedRatio], machines: Sequence[RentedMachine], desktop_memory_gib: float | None
) -> ScaledGpu:
    gpu, memory_gib, speed = gpu_key
    return {
        "gpu": gpu,
        "memory_gib": memory_gib,
        "hours": hours(
            sum(machine.gpus * sum(gpu_seconds_by_day(machine, Case.EXPECTED).values()) for machine in machines)
        ),
        "ratio": round(float(speed.ratio), 4),
        "low": round(float(speed.low), 4),
        "high": round(float(speed.high), 4),
        "basis": str(speed.basis),
        "fits": None if memory_gib is None or desktop_memory_gib is None else memory_gib <= desktop_memory_gib,
    }


def _cloud(facts: CompareFacts) -> CloudCost:
    machines = [] if facts.history is None else facts.history.machines
    cloud_costs = [facts.cases[case].cloud if facts.cases else ZERO for case in (Case.LOW, Case.EXPECTED, Case.HIGH)]
    low, expected, high = (None if facts.has_no_price else usd(amount) for amount in cloud_costs)
    usage_seconds = [machine.used_seconds for machine in machines]
    return {
        "low_usd": low,
        "usd": expected,
        "high_usd": high,
        "billed_hours": hours(sum(map(sum, usage_seconds))),
        "gpu_hours": hours(sum(usage.gpu for usage in usage_seconds)),
        "used_hours": hours(sum(usage.used for usage in usage_seconds)),
        "idle_hours": hours(sum(usage.idle for usage in usage_seconds)),
        "unknown_hours": hours(sum(usage.unknown for usage in usage_seconds)),
        "unpriced": list(facts.unpriced),
    }


def _owned_cost_document(facts: CompareFacts, costs: CaseCosts) -> OwnedCost:
    ownership, history = costs.owned, facts.history
    elapsed = ownership.worked if history is None else max(ownership.worked, history.elapsed * ownership.number)
    share = Fraction(ownership.worked // MICRO, elapsed // MICRO) if elapsed else Fraction(0)
    return {
        "desktops": ownership.number,
        "hours": hours(ownership.worked.total_seconds()),
        "kwh": f"{float(ownership.energy.kwh):.4f}",
        "purchase_usd": usd(ownership.purchase),
        "electricity_usd": usd(ownership.electricity),
        "maintenance_usd": usd(ownership.maintenance),
        "worth_usd": usd(ownership.worth),
        "total_usd": usd(ownership.total),
        "utilization_percent": percent(share),
    }


def percent(share: Fraction) -> float:
    """Return a share in percent, to a hundredth."""
    return round(float(share) * 100, 2)


def _break_even(facts: CompareFacts) -> BreakEven:
    expected_costs = facts.cases.get(Case.EXPECTED)
    break_even_price, paid_per_hour = None if expected_costs is None else expected_costs.break_even_price, None
    if expected_costs is not None and expected_costs.worked and not facts.has_no_price:
        paid_per_hour = usd(expected_costs.cloud.scaled(Fraction(HOUR_MICROS, expected_costs.worked // MICRO)))
    return {
        "past": _cases(facts, lambda costs: _time(costs.first_break_even)),
        "cloud_costs_more_since": _cases(facts, lambda costs: _time(costs.costlier_since)),
        "projected": _cases(facts, lambda costs: _time(costs.projected_break_even)),
        "desktop_costs_more_again": _cases(facts, _costlier_period),
        "utilization_percent": _cases(facts, _break_even_percent),
        "price_usd_per_hour": None if break_even_price is None else usd(break_even_price),
        "paid_usd_per_hour": paid_per_hour,
    }


def _cases(facts: CompareFacts, value_of: Callable[[CaseCosts], T]) -> Cases[T | None]:
    """Return a value of each case, null where nothing was billed."""
    low, expected, high = (
        value_of(facts.cases[case]) if facts.cases else None for case in (Case.LOW, Case.EXPECTED, Case.HIGH)
    )
    return {"low": low, "expected": expected, "high": high}


def _costlier_period(costs: CaseCosts) -> CostlierPeriod | None:
    if costs.desktop_costlier is None:
        return None
    return {"from": iso(costs.desktop_costlier[0]), "until": _time(costs.desktop_costlier[1])}


def _break_even_percent(costs: CaseCosts) -> float | None:
    return None if costs.break_even_use is None or not costs.cloud else percent(costs.break_even_use)


def _daily_pace(facts: CompareFacts, costs: CaseCosts) -> DailyPace | None:
    if costs.pace is None or facts.has_no_price:
        return None
    return {"usd_per_day": usd(costs.pace.cloud), "hours_per_day": hours(costs.pace.worked.total_seconds())}


def own_machine_document(work: OwnMachineWork) -> OwnMachine:
    """Return one of the user's own machines: its hours and electricity, and where the same could have been rented."""
    offer, price = work.offer, work.per_hour
    rented: RentalAlternative | None = None
    if offer is not None and price is not None:
        rented = {
            "provider": offer.type.provider,
            "instance_type": offer.type.name,
            "region": offer.listed.region,
            "gpu": offer.type.gpu.name,
            "usd_per_gpu_hour": usd(price),
            "ratio": round(float(work.ratio), 4),
            "price": price_document(offer.listed.price),
        }
    return {
        "id": work.id,
        "name": work.name,
        "gpu": work.gpu or None,
        "gpus": work.gpus,
        "hours": hours(work.worked.total_seconds()),
        "gpu_hours": hours(work.gpu_time.total_seconds()),
        "unknown_hours": hours(work.unknown.total_seconds()),
        "kwh": None if work.energy is None else f"{float(work.energy.kwh):.4f}",
        "assumed": work.is_assumed,
        "electricity_usd": None if work.electricity is None else usd(work.electricity),
        "cloud_usd": None if work.cloud is None else usd(work.cloud),
        "offer": rented,
    }


def _paid_usd(facts: CompareFacts) -> str | None:
    """Return what was paid in all: the cloud's cost and the electricity of the user's own machines; None: not known."""
    if facts.has_no_price or any(machine.electricity is None for machine in facts.own_machines):
        return None
    own_electricity_nanos = sum(
        machine.electricity.nanos for machine in facts.own_machines if machine.electricity is not None
    )
    cloud_nanos = facts.expected.cloud.nanos if facts.cases else 0
    return usd(Money(cloud_nanos + own_electricity_nanos))


def curve(facts: CompareFacts) -> Iterator[ComparedDay]:
    """Yield what both cost by the end of each day, as expected; the last entry is at the end of the history."""
    history = facts.history
    if history is None:
        return
    costs = facts.expected
    points, desktop_count = costs.points, costs.owned.number
    step = -(-len(points) // MAX_POINTS)
    for index, point in enumerate(points):
        is_last = index == len(points) - 1
        if index % step and not is_last and point.at != costs.first_break_even:
            continue
        elapsed = point.at - history.begin
        ownership = costs.owned
        if not is_last:
            ownership = ownership_cost(
                facts.desktop, elapsed, min(point.worked, elapsed * desktop_count), desktop_count
            )
        day = (point.at - MICRO if elapsed else point.at).astimezone(history.zone).date()
        yield {
            "day": day.isoformat(),
            "cloud_usd": None if facts.has_no_price else usd(point.cloud),
            "desktop_usd": usd(ownership.total),
        }
