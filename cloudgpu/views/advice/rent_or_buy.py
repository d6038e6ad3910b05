"""The answer of `compare` without a ledger as plain values: for each utilization a low, expected and high case.

Where GPUs count as equally fast but are known to differ much, a sentence gives the answer by speed, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from fractions import Fraction
from typing import TYPE_CHECKING

from cloudgpu.core.advice.break_even import FIRST_HOUR
from cloudgpu.core.advice.desktop import USED_SOURCE, YEAR
from cloudgpu.core.advice.rent_or_buy import (
    Calculation,
    CostsAtTime,
    RentOrBuyResult,
    costs_after,
    evaluate_case,
    milestones,
)
from cloudgpu.core.catalog.catalog import is_old_price, spot_uncertainty
from cloudgpu.core.values.money import usd
from cloudgpu.core.values.times import iso
from cloudgpu.core.values.units import hours
from cloudgpu.views.advice.compare_basis import desktop_document, rounded_number
from cloudgpu.views.advice.rent_or_buy_answer import (
    Choice,
    choices,
    crossing,
    remarks,
    resale_sentence,
    sentence as answer_sentence,
    verdict,
)
from cloudgpu.views.advice.rent_or_buy_sentences import assumptions, difference_reason, percent_text, sentence

if TYPE_CHECKING:
    from cloudgpu.core.advice.rent_or_buy import Rent
    from cloudgpu.core.catalog.gpus import SpeedRatio
    from cloudgpu.core.values.currency import Currency
    from cloudgpu.views.documents.money.rent_or_buy import (
        CurvePoint,
        Outcome,
        Outcomes,
        OverYears,
        RentedMachine,
        RentOrBuyDocument,
        SpeedRatio as SpeedRatioValue,
        TimelinePoint,
    )

SIMILAR_SPEED = (
    Fraction("0.67"),
    Fraction("1.5"),
)  # ratios between these count as similar: the answer by speed is not mentioned


def by_speed_sentence(calculation: Calculation, answers: Sequence[RentOrBuyResult]) -> str:
    """Return ` By speed it is 67.6 days.`; empty where speeds are alike, not known, or are what was counted."""
    known_ratio = calculation.known_ratio
    if known_ratio is None or SIMILAR_SPEED[0] <= known_ratio.ratio <= SIMILAR_SPEED[1] or not answers[-1].case.use:
        return ""
    scaled = [evaluate_case(calculation.case_at(result.case.use, known_ratio.ratio)) for result in answers]
    has_days = [result.break_even is not None and result.break_even > FIRST_HOUR for result in answers]
    if not any(has_days) and [_break_even_text(result) for result in answers] == [
        _break_even_text(scaled_result) for scaled_result in scaled
    ]:
        return " By speed it is the same."
    begin = "it is" if all(has_days) else "the cloud has cost as much"
    after = "" if all(has_days) else "after "
    texts = [
        _break_even_text(scaled_result, after)
        + (f" at {percent_text(scaled_result.case.use)}" if len(scaled) > 1 else "")
        for scaled_result in scaled
    ]
    return f" By speed {begin} {' and '.join(texts)}."


def _break_even_text(answer: RentOrBuyResult, after: str = "") -> str:
    desktops = f" with {answer.year.number:,} desktops" if answer.year.number > 1 else ""
    if answer.break_even is None:
        return f"never{desktops}"
    if answer.break_even <= FIRST_HOUR:
        return f"from the first hour on{desktops}"
    days = f"{float(hours(answer.break_even) / 24):,.1f}"
    return f"{after}{days} day{'s' * (days != '1.0')}{desktops}"


TIMELINE_STEPS = 48  # of a timeline


def rent_or_buy_document(
    calculation: Calculation, now: datetime, *, changed: Sequence[str] = (), currency: Currency | None = None
) -> RentOrBuyDocument:
    """Return what follows from a price and a utilization, with all assumptions."""
    expected = [
        evaluate_case(calculation.case_at(use, calculation.speed_ratio.ratio)) for use in calculation.rent.use.shares
    ]
    choices_made, terms = choices(calculation, expected), calculation.terms
    resale = resale_sentence(calculation, choices_made, currency)
    return {
        "mode": "calculator",
        "as_of": iso(now),
        "currency": None if currency is None else currency.to_json(),
        "desktop": desktop_document(calculation.desktop, changed),
        "cloud": _cloud(calculation.rent, now),
        "usage": {"typed": calculation.rent.use.text, "bound": str(calculation.rent.use.bound)},
        "work": calculation.work and str(calculation.work),
        "speed": _speed(calculation.speed_ratio),
        "fits": _fits(calculation),
        "answers": [_answer(calculation, use, calculation.speed_ratio) for use in calculation.rent.use.shares],
        "with_known_speeds": None
        if calculation.known_ratio is None
        else {
            "speed": _speed(calculation.known_ratio),
            "answers": [_answer(calculation, use, calculation.known_ratio) for use in calculation.rent.use.shares],
        },
        "why_they_differ": difference_reason(expected[0], currency),
        "assumptions": [text for text in (resale, *assumptions(calculation, currency)) if text],
        "years": rounded_number(hours(calculation.rent.horizon) / hours(YEAR)),
        "verdict": verdict(choices_made),
        "over_years": [_over_years(choice) for choice in choices_made],
        "timeline": list(_timeline(calculation, choices_made[-1])),
        "interest_percent": rounded_number(terms.interest * 100),
        "price_drift_percent": rounded_number(terms.drift * 100),
        "vat_percent": rounded_number(terms.vat * 100),
        "resale_source": USED_SOURCE if resale else None,
        "break_even_sentence": sentence(calculation, expected, currency) + by_speed_sentence(calculation, expected),
        "sentence": answer_sentence(calculation, choices_made, currency),
        "crossing": crossing(calculation, choices_made),
        "remarks": remarks(calculation),
    }


def _timeline(calculation: Calculation, choice: Choice) -> Iterator[TimelinePoint]:
    """Yield what both have cost in even steps over the years, the first step from nothing."""
    case, year = choice.result.case, choice.result.year
    sold_and_unsold = calculation.with_resale(case), choice.unsold.case
    for step in range(TIMELINE_STEPS + 1):
        elapsed = calculation.rent.horizon * step / TIMELINE_STEPS
        sold, unsold = (costs_after(resale_case, elapsed, year) for resale_case in sold_and_unsold)
        yield {
            "years": rounded_number(hours(elapsed) / hours(YEAR)),
            "cloud_usd": usd(sold.cloud),
            "sold_usd": usd(sold.owned.total),
            "unsold_usd": usd(unsold.owned.total),
        }


def _over_years(choice: Choice) -> OverYears:
    costs, desktop_is_cheaper = choice.lifetime.costs, choice.lifetime.desktop_is_cheaper
    owned = costs.owned
    return {
        "utilization_percent": rounded_number(choice.result.case.use * 100),
        "cloud_usd": usd(costs.cloud),
        "paid_usd": usd(owned.total + owned.worth),
        "sold_for_usd": usd(owned.worth),
        "desktop_usd": usd(owned.total),
        "cheaper": "desktop" if desktop_is_cheaper else "cloud",
        "difference_usd": usd(choice.lifetime.difference),
        "desktop_cheaper_from_days": _days(
            choice.lifetime.cheaper_from if desktop_is_cheaper else choice.sold.break_even
        ),
        "paid_off_unsold_days": _days(choice.unsold.break_even),
    }


def _cloud(rent: Rent, now: datetime) -> RentedMachine:
    rented: RentedMachine = {
        "gpu": None if rent.spec is None else rent.spec.name,
        "instead_of": None if rent.substitute_for is None else rent.substitute_for.name,
        "matching_gpus": list(rent.matching_gpus),
        "gpus": rent.gpus,
        "usd_per_hour": usd(rent.per_hour),
        "offer": None,
    }
    if rent.offer is not None:
        listed, machine_type = rent.offer.listed, rent.offer.type
        rented["offer"] = {
            "provider": machine_type.provider,
            "region": listed.region,
            "instance_type": machine_type.name,
            "market": str(listed.market),
            "source": listed.price.source,
            "as_of": iso(listed.price.as_of),
            "basis": str(listed.price.basis),
            "old": is_old_price(listed.price.as_of, now),
            "uncertain": spot_uncertainty(rent.offer, now) or None,
            "legacy": machine_type.legacy_reason or None,
        }
    return rented


def _speed(ratio: SpeedRatio) -> SpeedRatioValue:
    return {
        "ratio": rounded_number(ratio.ratio),
        "low": rounded_number(ratio.low),
        "high": rounded_number(ratio.high),
        "basis": str(ratio.basis),
    }


def _fits(calculation: Calculation) -> bool | None:
    """Return whether the desktop's GPU has at least the rented GPU's memory; None where one of them is not known."""
    if calculation.rent.memory_gib is None or calculation.desktop_gpu is None:
        return None
    return calculation.desktop_gpu.memory_gib >= calculation.rent.memory_gib


def _answer(calculation: Calculation, use: Fraction, speed: SpeedRatio) -> Outcomes:
    ratios = {speed.low, speed.ratio, speed.high}
    cases = {ratio: _case(calculation, evaluate_case(calculation.case_at(use, ratio))) for ratio in ratios}
    return {
        "utilization_percent": rounded_number(use * 100),
        "hours_per_day": rounded_number(use * 24),
        "low": cases[speed.low],  # it favours the cloud
        "expected": cases[speed.ratio],
        "high": cases[speed.high],  # and this one the desktop
    }


def _case(calculation: Calculation, answer: RentOrBuyResult) -> Outcome:
    marked_times = [] if answer.comparison_time is None else [answer.comparison_time]
    curve_times = milestones(answer.case.desktop.life, calculation.rent.horizon, marked_times)
    sold, break_even_use = calculation.with_resale(answer.case), answer.break_even_use
    return {
        "desktops": answer.year.number,
        "desktop_hours_per_day": rounded_number(answer.case.use * 24 / answer.case.speed),
        "kwh_per_year": rounded_number(answer.year.energy.kwh),
        "electricity_usd_per_year": usd(answer.year.electricity),
        "break_even_days": _days(answer.break_even),
        "break_even_days_by_flat_year": _days(answer.flat),
        "desktop_costs_more_again": None
        if answer.costlier is None
        else {
            "from_days": rounded_number(hours(answer.costlier.since) / 24),
            "until_days": _days(answer.costlier.until),
        },
        "break_even_utilization_percent": None if break_even_use is None else rounded_number(break_even_use * 100),
        "break_even_usd_per_hour": None if answer.break_even_price is None else usd(answer.break_even_price),
        "curve": [
            _curve_point(costs_after(answer.case, time, answer.year), costs_after(sold, time, answer.year))
            for time in curve_times
        ],
    }


def _curve_point(costs: CostsAtTime, sold: CostsAtTime) -> CurvePoint:
    return {
        "days": rounded_number(hours(costs.elapsed) / 24),
        "cloud_usd": usd(costs.cloud),
        "desktop_usd": usd(costs.owned.total),
        "purchase_usd": usd(costs.owned.purchase),
        "electricity_usd": usd(costs.owned.electricity),
        "maintenance_usd": usd(costs.owned.maintenance),
        "worth_usd": usd(costs.owned.worth),
        "flat_year_usd": usd(costs.flat),
        "sold_for_usd": usd(sold.owned.worth),
        "net_usd": usd(sold.owned.total),
    }


def _days(duration: timedelta | None) -> float | None:
    return None if duration is None else rounded_number(hours(duration) / 24)
