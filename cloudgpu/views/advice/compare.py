"""The cloud beside a desktop as the plain values that `compare` prints, from a ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, TypeVar

from cloudgpu.core.advice.break_even import MICRO
from cloudgpu.core.advice.compare import Case, CaseCosts, OwnMachineWork, RentedMachine, gpu_seconds_by_day
from cloudgpu.core.advice.desktop import ownership_cost
from cloudgpu.core.values.money import HOUR, ZERO, Money, usd
from cloudgpu.core.values.times import iso
from cloudgpu.views.advice.compare_basis import assumptions, cautions, desktop_value
from cloudgpu.views.advice.compare_sentences import AmountFormat, own_sentence, sentence
from cloudgpu.views.plans import price_value

if TYPE_CHECKING:
    from datetime import datetime

    from cloudgpu.core.catalog.gpus import SpeedRatio
    from cloudgpu.core.values.currency import Currency
    from cloudgpu.views.advice.compare_sentences import CompareFacts
    from cloudgpu.views.documents.money.compare import (
        Again,
        AgainCases,
        BreakEven,
        CloudCost,
        ComparedDay,
        CompareDocument,
        Counterpart,
        DailyPace,
        NumberCases,
        OwnedCases,
        OwnedCost,
        OwnMachine,
        Paces,
        ScaledGpu,
        TimeCases,
    )

T = TypeVar("T")
MAX_POINTS = 400  # of a curve; a longer one leaves out days, never its last or the one on which the two met
_MICROS = 1_000_000


def compare_value(story: CompareFacts, tz: str, currency: Currency | None, changed: Sequence[str]) -> CompareDocument:
    """Return the whole document: amounts as decimal text in USD, hours as decimal text; a time that is never is null.

    Of the cases `low` is for the cloud, `high` for the desktop. `changed` are the options that changed the desktop.
    """
    amounts = AmountFormat(currency)
    return {
        "mode": "ledger",
        "as_of": iso(story.now),
        "since": _time(story.since or (story.history.begin if story.history else None)),
        "until": _time(story.until),
        "tz": tz,
        "currency": None if currency is None else currency.value(),
        "desktop": desktop_value(story.desktop, changed),
        "work": str(story.work),
        "speeds": _speeds(story),
        "cloud": _cloud(story),
        "owned": _owned_cases_value(story) if story.cases else None,
        "break_even": _break_even(story),
        "pace": _paces(story) if story.cases else None,
        "resale_value": {"usd": usd(story.worth), "by": str(story.worth_by)},
        "own_machines": [own_value(work) for work in story.own],
        "own_machines_sentence": own_sentence(story.own, amounts) if story.own else None,
        "paid_usd": _paid_sentence(story),
        "assumptions": assumptions(story, amounts),
        "cautions": cautions(story),
        "sentence": sentence(story, amounts),
        "curve": curve(story),
    }


def hours(seconds: float) -> str:
    """Return seconds as decimal hours, to a hundred-millionth."""
    return usd(Money(round(Fraction(round(seconds * _MICROS), HOUR) * 10**8) * 10))


def _time(at: datetime | None) -> str | None:
    return None if at is None else iso(at)


def _speeds(story: CompareFacts) -> list[ScaledGpu]:
    """Return each GPU of the cloud, with how many of its hours an hour of the desktop's does and its hours of work."""
    kinds: dict[tuple[str, float | None, SpeedRatio], list[RentedMachine]] = {}
    for machine in [] if story.history is None else story.history.machines:
        if machine.gpus:
            kinds.setdefault((machine.gpu, machine.memory_gib, machine.speed), []).append(machine)
    return [_speed(kind, machines, story.desktop_memory) for kind, machines in sorted(kinds.items(), key=_speed_name)]


def _speed_name(kind: tuple[tuple[str, float | None, SpeedRatio], list[RentedMachine]]) -> tuple[str, float]:
    return kind[0][0], kind[0][1] or 0.0


def _speed(
    kind: tuple[str, float | None, SpeedRatio], machines: Sequence[RentedMachine], desktop: float | None
) -> ScaledGpu:
    gpu, memory, speed = kind
    return {
        "gpu": gpu,
        "memory_gib": memory,
        "hours": hours(sum(one.gpus * sum(gpu_seconds_by_day(one, Case.EXPECTED).values()) for one in machines)),
        "ratio": round(float(speed.ratio), 4),
        "low": round(float(speed.low), 4),
        "high": round(float(speed.high), 4),
        "basis": str(speed.basis),
        "fits": None if memory is None or desktop is None else memory <= desktop,
    }


def _cloud(story: CompareFacts) -> CloudCost:
    machines = [] if story.history is None else story.history.machines
    sums = [story.cases[case].cloud if story.cases else ZERO for case in (Case.LOW, Case.EXPECTED, Case.HIGH)]
    low, expected, high = (None if story.has_no_price else usd(amount) for amount in sums)
    totals = [machine.total for machine in machines]
    return {
        "low_usd": low,
        "usd": expected,
        "high_usd": high,
        "billed_hours": hours(sum(map(sum, totals))),
        "gpu_hours": hours(sum(one.gpu for one in totals)),
        "used_hours": hours(sum(one.used for one in totals)),
        "idle_hours": hours(sum(one.idle for one in totals)),
        "unknown_hours": hours(sum(one.unknown for one in totals)),
        "unpriced": list(story.unpriced),
    }


def _owned_cases_value(story: CompareFacts) -> OwnedCases:
    low, expected, high = (_owned_cost_value(story, story.cases[case]) for case in (Case.LOW, Case.EXPECTED, Case.HIGH))
    return {"low": low, "expected": expected, "high": high}


def _owned_cost_value(story: CompareFacts, side: CaseCosts) -> OwnedCost:
    cost, history = side.owned, story.history
    elapsed = cost.worked if history is None else max(cost.worked, history.elapsed * cost.number)
    share = Fraction(cost.worked // MICRO, elapsed // MICRO) if elapsed else Fraction(0)
    return {
        "desktops": cost.number,
        "hours": hours(cost.worked.total_seconds()),
        "kwh": f"{float(cost.energy.kwh):.4f}",
        "purchase_usd": usd(cost.purchase),
        "electricity_usd": usd(cost.electricity),
        "maintenance_usd": usd(cost.maintenance),
        "worth_usd": usd(cost.worth),
        "total_usd": usd(cost.total),
        "utilization_percent": _percent(share),
    }


def percent(share: Fraction | None) -> float | None:
    """Return a share in percent, to a hundredth."""
    return None if share is None else _percent(share)


def _percent(share: Fraction) -> float:
    return round(float(share) * 100, 2)


def _break_even(story: CompareFacts) -> BreakEven:
    expected_costs = story.cases.get(Case.EXPECTED)
    price, paid = None if expected_costs is None else expected_costs.break_even_price, None
    if expected_costs is not None and expected_costs.worked and not story.has_no_price:
        paid = usd(expected_costs.cloud.scaled(Fraction(HOUR, expected_costs.worked // MICRO)))
    return {
        "past": _times(story, lambda side: side.first_break_even),
        "cloud_costs_more_since": _times(story, lambda side: side.costlier_since),
        "projected": _times(story, lambda side: side.projected_break_even),
        "desktop_costs_more_again": _rerun_value(story),
        "utilization_percent": _usage_cases(story),
        "price_usd_per_hour": None if price is None else usd(price),
        "paid_usd_per_hour": paid,
    }


def _cases(story: CompareFacts, what: Callable[[CaseCosts], T | None]) -> tuple[T | None, T | None, T | None]:
    """Return something of each case: the one for the cloud, what is expected, the one for the desktop."""
    if not story.cases:
        return None, None, None
    low, expected, high = (what(story.cases[case]) for case in (Case.LOW, Case.EXPECTED, Case.HIGH))
    return low, expected, high


def _times(story: CompareFacts, when: Callable[[CaseCosts], datetime | None]) -> TimeCases:
    low, expected, high = _cases(story, when)
    return {"low": _time(low), "expected": _time(expected), "high": _time(high)}


def _rerun_value(story: CompareFacts) -> AgainCases:
    def again(side: CaseCosts) -> Again | None:
        return (
            None
            if side.desktop_costlier is None
            else {"from": iso(side.desktop_costlier[0]), "until": _time(side.desktop_costlier[1])}
        )

    low, expected, high = _cases(story, again)
    return {"low": low, "expected": expected, "high": high}


def _usage_cases(story: CompareFacts) -> NumberCases:
    low, expected, high = _cases(story, lambda side: percent(side.break_even_use if side.cloud else None))
    return {"low": low, "expected": expected, "high": high}


def _paces(story: CompareFacts) -> Paces:
    low, expected, high = _cases(story, lambda side: None if story.has_no_price else _pace(side))
    return {"low": low, "expected": expected, "high": high}


def _pace(side: CaseCosts) -> DailyPace | None:
    if side.pace is None:
        return None
    return {"usd_per_day": usd(side.pace.cloud), "hours_per_day": hours(side.pace.worked.total_seconds())}


def own_value(work: OwnMachineWork) -> OwnMachine:
    """Return one of the user's own machines: what it took, and where the same could have been rented."""
    offer, price = work.offer, work.per_hour
    rented: Counterpart | None = None
    if offer is not None and price is not None:
        rented = {
            "provider": offer.type.provider,
            "instance_type": offer.type.name,
            "region": offer.listed.region,
            "gpu": offer.type.gpu.name,
            "usd_per_gpu_hour": usd(price),
            "ratio": round(float(work.ratio), 4),
            "price": price_value(offer.listed.price),
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


def _paid_sentence(story: CompareFacts) -> str | None:
    """Return what was paid in all: the cloud's, and the electricity of one's own machines; None: not known."""
    if story.has_no_price or any(one.electricity is None for one in story.own):
        return None
    own = sum(one.electricity.nanos for one in story.own if one.electricity is not None)
    cloud = story.expected.cloud.nanos if story.cases else 0
    return usd(Money(cloud + own))


def curve(story: CompareFacts) -> list[ComparedDay]:
    """Return what both cost by the end of each day, as expected; the last entry has all there is."""
    return [] if story.history is None else list(_curve(story))


def _curve(story: CompareFacts) -> Iterator[ComparedDay]:
    history, side = story.history, story.expected
    if history is None:
        return
    points, number = side.points, side.owned.number
    step = -(-len(points) // MAX_POINTS)
    for index, point in enumerate(points):
        last = index == len(points) - 1
        if index % step and not last and point.at != side.first_break_even:
            continue
        elapsed = point.at - history.begin
        cost = side.owned
        if not last:
            cost = ownership_cost(story.desktop, elapsed, min(point.worked, elapsed * number), number)
        day = (point.at - MICRO if elapsed else point.at).astimezone(history.zone).date()
        yield {
            "day": day.isoformat(),
            "cloud_usd": None if story.has_no_price else usd(point.cloud),
            "desktop_usd": usd(cost.total),
        }
