"""A recommendation as the plain values that `-o json` prints and the library returns."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from fractions import Fraction
from typing import TYPE_CHECKING

from cloudgpu.core.advice.desktop_build import BreakEven, Build, PowerSupply
from cloudgpu.core.advice.model_memory import MemoryComponent
from cloudgpu.core.advice.recommend import FittingOffer
from cloudgpu.core.advice.recommendation import Recommendation
from cloudgpu.core.advice.workloads import Source
from cloudgpu.core.catalog.catalog import is_old_price
from cloudgpu.core.model.machine import not_none
from cloudgpu.core.values.money import usd
from cloudgpu.core.values.times import iso
from cloudgpu.views.advice.recommend_sentences import monthly_cost, sentence
from cloudgpu.views.advice.recommend_steps import Step, free_hours_sentence, remarks, steps, warnings
from cloudgpu.views.plans import price_document

if TYPE_CHECKING:
    from cloudgpu.core.values.currency import Currency
    from cloudgpu.views.documents.market.recommend import (
        BuildableDesktop,
        DesktopBreakEven,
        FreeHours,
        MemoryPart,
        PowerSupply as PowerSupplyPart,
        RecommendDocument,
        RentableMachine,
        Source as SourcePart,
        Step as StepPart,
    )

_DAY = timedelta(days=1)


def recommendation(answer: Recommendation, now: datetime, currency: Currency | None = None) -> RecommendDocument:
    """Return the document: the answer in one sentence first, then the steps that lead to it.

    Memory in GiB, speeds as parts of one H100 SXM, powers in watts. What is not known is null. A remark has the amounts
    of the answer in `currency`; all others are in dollars.
    """
    model, memory, hours = answer.model, answer.need.memory, answer.limits.hours
    return {
        "as_of": iso(now),
        "sentence": sentence(answer),
        "verdict": answer.verdict.value,
        "kind": answer.kind.name or None,
        "title": answer.kind.title,
        "parameters": None if model is None else model.parameters,
        "method": None if model is None else str(model.method),
        "precision": None if model is None else str(model.precision),
        "speed_by": str(answer.need.work),
        "cards": answer.need.cards,
        "hours_per_week": _rounded_or_none(hours),
        "memory_gib": _rounded(memory.total),
        "memory": [_memory_part(part) for part in memory.parts],
        "other_ways": [
            {"method": str(method), "precision": str(precision), "memory_gib": _rounded(memory_need.total)}
            for method, precision, memory_need in answer.other_methods
        ],
        "machines": [_machine(machine, answer, now) for machine in answer.machines],
        "cheapest": None if answer.cheapest is None else _machine(answer.cheapest, answer, now),
        "desktops": [
            _desktop(memory_need, break_even, now)
            for memory_need, break_even in zip(answer.builds, answer.break_evens, strict=True)
        ],
        "power_supply": None if answer.power_supply is None else _power_supply(answer.power_supply),
        "left_out": dict(answer.left_out),
        "without_price": list(answer.unpriced),
        "steps": [_step(step) for step in steps(answer)],
        "free_hours": None if answer.kaggle_gpus is None else _free_hours(answer, answer.kaggle_gpus),
        "warnings": list(warnings(answer)),
        "notes": [*_currency_notes(answer, currency), *remarks(answer, now)],
        "currency": None if currency is None else currency.to_json(),
    }


def _free_hours(answer: Recommendation, gpus: int) -> FreeHours:
    figures = answer.workload_data.figures
    return {
        "where": "kaggle",
        "gpu": "T4",
        "gpus_needed": gpus,
        "hours_per_week": _rounded(figures.kaggle_hours.value),
        "session_hours": _rounded(figures.kaggle_session_hours.value),
        "source": _source(figures.kaggle_hours.source),
        "sentence": free_hours_sentence(answer),
    }


def _currency_notes(answer: Recommendation, currency: Currency | None) -> Iterator[str]:
    """Yield what the first machine and the first desktop cost in a currency, with its rate."""
    if currency is None:
        return
    machine, build, hours = answer.machine, answer.build, answer.limits.hours
    amounts = [
        "" if machine is None else f"the machine {currency.text(machine.price, 2)} an hour",
        "" if machine is None or hours is None else f"{currency.text(monthly_cost(machine, hours))} a month",
        "" if build is None else f"the desktop {currency.text(build.desktop.purchase)}",
    ]
    yield f"In {currency.code}: {', '.join(filter(None, amounts)) or 'nothing to rent or buy'}. {currency}."


def _memory_part(part: MemoryComponent) -> MemoryPart:
    return {
        "what": part.label,
        "gib": _rounded(part.gib),
        "bytes_per_parameter": _rounded_or_none(part.bytes_per_parameter, 6),
        "source": None if part.source is None else _source(part.source),
    }


def _source(source: Source) -> SourcePart:
    return {"text": source.text, "as_of": source.as_of.isoformat(), "basis": str(source.quality)}


def _machine(machine: FittingOffer, answer: Recommendation, now: datetime) -> RentableMachine:
    machine_type, listed, hours = machine.offer.type, machine.offer.listed, answer.limits.hours
    return {
        "provider": machine_type.provider,
        "region": listed.region,
        "instance_type": machine_type.name,
        "market": str(listed.market),
        "trust": str(machine.offer.trust),
        "gpu": machine_type.gpu.name,
        "count": machine_type.gpu.count,
        "share": machine_type.gpu.share,
        "gpu_memory_gib": not_none(machine_type.gpu.memory_gib),
        "gpus_needed": machine.gpus,
        "gib_per_gpu": _rounded(answer.need.memory.gib_per_gpu(machine.gpus)),
        "price": price_document(listed.price),
        "old": is_old_price(listed.price.as_of, now),
        "usd_per_month": None if hours is None else usd(monthly_cost(machine, hours)),
        "speed": None
        if machine.speed is None
        else {"vs_h100": round(machine.speed.vs_h100, 4), "basis": str(machine.speed.basis)},
        "h100_hours_per_dollar": None if machine.per_dollar is None else round(machine.per_dollar, 4),
    }


def _desktop(build: Build, break_even: BreakEven | None, now: datetime) -> BuildableDesktop:
    card_prices = build.spec.card_prices
    return {
        "gpu": build.spec.name,
        "cards": build.cards,
        "paid": str(build.price_kind),
        "card_usd": usd(build.price),
        "dated": build.dated,
        "old": card_prices is not None and is_old_price(card_prices.as_of, now),
        "desktop_usd": usd(build.desktop.purchase),
        "watts": _rounded(build.desktop.busy_power.watts),
        "idle_watts": _rounded(build.desktop.waiting_power.watts),
        "life_years": _rounded(Fraction(build.desktop.life // _DAY, 365)),
        "usd_per_kwh": usd(build.desktop.tariff.per_kwh),
        "break_even": None if break_even is None else _break_even(break_even),
    }


def _break_even(break_even: BreakEven) -> DesktopBreakEven:
    return {
        "hours_replaced": _rounded(break_even.speed, 4),
        "basis": str(break_even.speed_ratio.basis),
        "from_hours_per_week": _rounded_or_none(break_even.weekly_hours, 1),
        "after_days": _days(break_even.after),
        "soonest_days": _days(break_even.soonest),
        "latest_days": _days(break_even.latest),
        "desktops": break_even.desktops,
        "rent_usd": None if break_even.over_life is None else usd(break_even.over_life.costs.cloud),
        "desktop_usd": None if break_even.over_life is None else usd(break_even.over_life.costs.owned.total),
        "sold_for_usd": None if break_even.over_life is None else usd(break_even.over_life.costs.owned.worth),
    }


def _power_supply(supply: PowerSupply) -> PowerSupplyPart:
    return {
        "cards": supply.cards,
        "draw_watts": _rounded(supply.draw.watts),
        "low_watts": _rounded(supply.low.watts),
        "high_watts": _rounded(supply.high.watts),
        "wall_watts": _rounded(supply.wall.watts),
        "limited_watts": _rounded(supply.limited.watts),
        "circuit_watts": _rounded(supply.continuous.watts),
        "circuit": str(supply.circuit),
    }


def _step(step: Step) -> StepPart:
    return {
        "title": step.title,
        "text": step.text,
        "sources": [_source(source) for source in dict.fromkeys(step.sources)],
    }


def _days(duration: timedelta | None) -> float | None:
    return None if duration is None else round(duration / _DAY, 2)


def _rounded(value: Fraction, places: int = 2) -> float:
    return round(float(value), places)


def _rounded_or_none(value: Fraction | None, places: int = 2) -> float | None:
    return None if value is None else _rounded(value, places)
