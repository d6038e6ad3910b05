"""Rent or buy in sentences: the break-even at a price and a utilization, why break-evens differ, what is assumed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction

from cloudgpu.core.advice.break_even import FIRST_HOUR, MAX_HORIZON
from cloudgpu.core.advice.desktop import USED_LOSS, USED_SHARE, YEAR, Depreciation, Desktop
from cloudgpu.core.advice.rent_or_buy import MONTH, Bound, Calculation, RentOrBuyResult, costs_after
from cloudgpu.core.catalog.gpus import RatioBasis
from cloudgpu.core.values.currency import Currency
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.times import DAY
from cloudgpu.core.values.units import hours
from cloudgpu.views.advice.compare_sentences import desktops_text

CENT_NANOS = 10_000_000
MAX_PRICE = Money.usd(100_000)  # an hour; no machine costs more, and a higher break-even price is not shown
DAYS_ONLY_BELOW = 60  # days; from here on, months are shown, too


def amount_text(amount: Money, currency: Currency | None, places: int = 2) -> str:
    """Return an amount for people: `$2,311.20`, or `3,201,474 KRW`."""
    if currency is None:
        return amount.text(places)
    return f"{currency.text(amount, places - 2 if places > 2 else 0)} {currency.code}"  # noqa: PLR2004  (cents)


def hourly_text(price: Money, currency: Currency | None) -> str:
    """Return a price an hour: whole cents with two digits, others with four."""
    return amount_text(price, currency, 4 if price.nanos % CENT_NANOS else 2)


def percent_text(share: Fraction) -> str:
    """Return `15%`, `2.5%`: no more digits than a share of the time is known to."""
    tenths = round(share * 1000)
    if share and not tenths:
        return "<0.1%"
    return f"{Decimal(tenths) / 10:f}%".replace(".0%", "%")


def usage_text(share: Fraction) -> str:
    """Return `a use of more than 3% of the time`, above 1 `more than 1.4 machines at any time`."""
    if share > 1:
        return f"more than {float(share):.1f} machines at any time"
    return f"a use of more than {percent_text(share)} of the time"


def days_text(duration: timedelta, places: int = 0) -> str:
    """Return `293 days (9.6 months)`."""
    number = float(hours(duration) / 24)
    months = f" ({number / float(hours(MONTH) / 24):.1f} months)" if number >= DAYS_ONLY_BELOW else ""
    return f"{number:,.{places}f} day{'s' if f'{number:.{places}f}' != '1' else ''}{months}"


def years_text(duration: timedelta) -> str:
    """Return `4 years`."""
    number = float(hours(duration) / hours(YEAR))
    return f"{number:g} year{'s' * (number != 1)}"


def sentence(calculation: Calculation, answers: Sequence[RentOrBuyResult], currency: Currency | None) -> str:
    """Return the break-even for people."""
    first_result, last_result = answers[0], answers[-1]
    desktops_name = desktops_text(calculation.desktop, max(result.year.number for result in answers))
    if not last_result.case.use:
        return f"A cloud machine that is not used costs nothing, and {desktops_name} costs even when it is off."
    fits_text = _fit_condition(calculation)
    condition = f"At {hourly_text(calculation.rent.per_hour, currency)} an hour, {_use_text(calculation)},{fits_text}"
    exact_condition = (
        f"At {hourly_text(calculation.rent.per_hour, currency)} an hour, {_use_text(calculation, Bound.AT)},{fits_text}"
    )
    if not _holds_beyond_bound(calculation, answers):
        return f"{condition} {_per_use_text(calculation, answers)}{_costlier_again_text(answers)}"
    if last_result.break_even is None:
        otherwise_text = _otherwise_text(last_result, currency, names_use=len(answers) > 1)
        condition = (
            exact_condition if calculation.rent.use.bound is Bound.OVER else condition
        )  # used more, it may be otherwise
        return (
            f"{condition} the cloud stays cheaper than {desktops_name} for {years_text(MAX_HORIZON)}.{otherwise_text}"
        )
    if first_result.break_even is None:
        return (
            f"{condition} the cloud has cost as much as {desktops_name} after {days_text(last_result.break_even)} at "
            f"the earliest, and never at {percent_text(first_result.case.use)}.{_costlier_again_text(answers)}"
        )
    if first_result.break_even <= FIRST_HOUR:
        is_upper_bound = calculation.rent.use.bound is Bound.UNDER
        text = _first_hour_text(calculation.desktop, desktops_name)
        return f"{exact_condition} {text}{_below_text(first_result)}" if is_upper_bound else f"{condition} {text}"
    when = _when_text(calculation, first_result, last_result)
    return f"{condition} the cloud has cost as much as {desktops_name} {when}{_costlier_again_text(answers)}"


def _fit_condition(calculation: Calculation) -> str:
    """Return the condition of the sentence if the rented GPU has more memory, else an empty text."""
    rent, desktop_gpu = calculation.rent, calculation.desktop_gpu
    if desktop_gpu is None or rent.memory_gib is None or desktop_gpu.memory_gib >= rent.memory_gib:
        return ""
    return f" and if the work fits in {desktop_gpu.memory_gib:g} GiB{' a GPU' if calculation.desktop.gpus > 1 else ''},"


def _holds_beyond_bound(calculation: Calculation, answers: Sequence[RentOrBuyResult]) -> bool:
    """Return whether the answer at a bound also holds beyond it: not if that takes another number of desktops."""
    first, last = answers[0].year.number, answers[-1].year.number
    speed = answers[-1].case.speed
    return {
        Bound.AT: True,
        Bound.UNDER: last == 1,
        Bound.OVER: speed * last >= 1,
        Bound.BETWEEN: first == last,
    }[calculation.rent.use.bound]


def _per_use_text(calculation: Calculation, answers: Sequence[RentOrBuyResult]) -> str:
    """Return the break-even of each utilization, where they take different numbers of desktops."""
    parts = []
    for result in answers:
        after = "never" if result.break_even is None else f"after {days_text(result.break_even)}"
        parts.append(f"{after} at {percent_text(result.case.use)} with {result.year.number} of them")
    text = f"the cloud has cost as much as {desktops_text(calculation.desktop, 0)} {', and '.join(parts)}"
    return f"{text}; other uses may take another number."


def _use_text(calculation: Calculation, bound: Bound | None = None) -> str:
    """Return `used 15% of the time`, `3 machines at any time`."""
    if calculation.rent.use.shares[-1] > 1:
        number = f"{float(calculation.rent.use.shares[-1]):,g}"
        return f"{number} machine{'s' * (number != '1')} at any time"
    shares = [percent_text(share) for share in calculation.rent.use.shares]
    before = {Bound.UNDER: "less than ", Bound.OVER: "more than "}.get(bound or calculation.rent.use.bound, "")
    return f"used {before}{' to '.join(shares)} of the time"


def _first_hour_text(desktop: Desktop, desktops_name: str) -> str:
    if desktop.depreciation is Depreciation.NONE:
        return f"the cloud costs more than {desktops_name} from the first hour on."
    return f"the cloud costs more from the first hour on than {desktops_name} loses in worth and takes to run."


def _when_text(calculation: Calculation, first_result: RentOrBuyResult, last_result: RentOrBuyResult) -> str:
    earliest, latest = last_result.break_even or timedelta(0), first_result.break_even or timedelta(0)
    if calculation.rent.use.bound is Bound.UNDER:
        return f"after {days_text(latest)} at the earliest.{_below_text(first_result)}"
    if calculation.rent.use.bound is Bound.OVER:
        return f"after {days_text(latest)} at the latest."
    if first_result.costlier is not None and latest > first_result.costlier.since - DAY:
        return f"only as that is sold, after {days_text(latest)}."
    after = days_text(latest) if latest == earliest else f"{float(hours(earliest) / 24):,.0f} to {days_text(latest)}"
    return f"after {after}."


def _below_text(answer: RentOrBuyResult) -> str:
    if not answer.break_even_use:
        return ""
    return f" Used less than {percent_text(answer.break_even_use)} of the time, the cloud stays cheaper."


def _costlier_again_text(answers: Sequence[RentOrBuyResult]) -> str:
    """Return from when to when a replaced desktop is more expensive again; empty where it is not."""
    for result in answers:
        if result.costlier is not None:
            since, until = (
                None if at is None else -(-at // DAY) for at in (result.costlier.since, result.costlier.until)
            )
            end = " on" if until is None else f" to day {until:,}"
            at = f" at {percent_text(result.case.use)}" if len(answers) > 1 else ""
            lasts = f" A desktop lasts {years_text(result.case.desktop.life)}:"
            return f"{lasts} replaced, it is more expensive again from day {since:,}{end}{at}."
    return ""


def _otherwise_text(answer: RentOrBuyResult, currency: Currency | None, *, names_use: bool) -> str:
    """Return at what price, and at what utilization, the desktop would be cheaper."""
    if answer.break_even_price is None or answer.break_even_price > MAX_PRICE:
        return ""
    desktop = answer.case.desktop
    end = f" the desktop would cost less over its {years_text(desktop.life)}."
    at = f" at {percent_text(answer.case.use)}" if names_use else ""
    text = f" From {amount_text(answer.break_even_price, currency, 4)} an hour on{at}{end}"
    if answer.break_even_use is not None and answer.break_even_use > answer.case.use:
        text = f"{text[:-1]}, or with {usage_text(answer.break_even_use)}."
    return text


def difference_reason(answer: RentOrBuyResult, currency: Currency | None) -> str | None:
    """Return why published examples have another break-even than the curves.

    None where either never comes, where they have the same, and where what the desktop is worth is counted.
    """
    after = answer.comparison_time
    if after is None or answer.break_even is None or answer.flat is None:
        return None
    deducts_market_resale = (
        answer.case.desktop.depreciation is not Depreciation.NONE
    )  # they leave it out, and differ by that
    if deducts_market_resale or abs(answer.break_even - answer.flat) < DAY / 20:
        return None
    costs = costs_after(answer.case, after, answer.year)
    example_text = "A whole year's electricity charged on its first day, as published examples do"
    by_day = (
        ""
        if costs.owned.total == costs.flat
        else f", where by the day it is {amount_text(costs.owned.total, currency)}"
    )
    return (
        f"Paid day by day the curves cross after {days_text(answer.break_even, 2)}. {example_text}, makes it "
        f"{float(hours(answer.flat) / 24):,.1f} days: after {after.days:,} days {amount_text(costs.cloud, currency)} "
        f"against {amount_text(costs.flat, currency)}{by_day}."
    )


def assumptions(calculation: Calculation, currency: Currency | None) -> Iterator[str]:
    """Yield all assumptions, each as a sentence."""
    rent, desktop_gpu, desktop = calculation.rent, calculation.desktop_gpu, calculation.desktop
    yield from _memory_texts(calculation)
    yield _speed_text(calculation)
    if desktop.gpus != rent.gpus:
        yield f"Work spreads over GPUs without loss: {desktop.gpus} of a desktop, {rent.gpus} of the rented machine."
    if len(rent.matching_gpus) > 1 and rent.spec is not None:
        names = " or ".join(rent.matching_gpus)
        yield f"The GPU's name means {names}: its speed and memory are those of {rent.spec.name}."
    if desktop_gpu is None and rent.spec is not None:
        yield f"The memory and speed of {desktop.gpu} are not known here: whether the work fits was not checked."
    yield "The price stays, the machine is paid only while it is used, and disks and traffic are not in it."
    yield from _desktop_texts(desktop, currency)


def _memory_texts(calculation: Calculation) -> Iterator[str]:
    """Yield what does not fit into the desktop's memory: that of one GPU, else that of all GPUs of a machine."""
    rent, gpu, desktop = calculation.rent, calculation.desktop_gpu, calculation.desktop
    if gpu is None or rent.spec is None or rent.substitute_for is not None:
        return
    if gpu.memory_gib < rent.spec.memory_gib:
        yield (
            f"What needs more than {gpu.memory_gib:g} GiB does not fit {gpu.name}; {rent.spec.name} has "
            f"{rent.spec.memory_gib:g} GiB."
        )
    elif gpu.memory_gib * desktop.gpus < rent.spec.memory_gib * rent.gpus:
        yield (
            f"What is spread over all {rent.gpus} rented GPUs, with {rent.spec.memory_gib * rent.gpus:g} GiB, does not "
            f"fit one desktop beyond {gpu.memory_gib * desktop.gpus:g} GiB."
        )


def _desktop_texts(desktop: Desktop, currency: Currency | None) -> Iterator[str]:
    if desktop.depreciation is Depreciation.NONE:
        resale = f", and sold for {amount_text(desktop.resale, currency)} at the end of it" if desktop.resale else ""
        yield f"The desktop is paid on the first day and again every {years_text(desktop.life)}{resale}."
    else:
        used = (
            f"{percent_text(1 - USED_SHARE)} as soon as it is used, and then {percent_text(USED_LOSS)} of its worth a "
            "year"
        )
        loss = {
            Depreciation.STRAIGHT: "the same each day",
            Depreciation.MARKET: used,
        }.get(desktop.depreciation, f"{percent_text(desktop.yearly_loss)} of its worth a year")
        end = f"down to {amount_text(desktop.sold_for, currency)} after {years_text(desktop.life)}"
        counted = f"Of the desktop's price only what it loses is counted: {loss}, {end}."
        yield f"{counted} The rest is what it would sell for."
    if desktop.idle_power.watts:
        yield f"It stays on, and takes {float(desktop.idle_power.watts):g} W while it waits."
    else:
        yield "It is switched off while it waits."


def _speed_text(calculation: Calculation) -> str:
    if calculation.work is None:
        return "One GPU is counted as fast as the other."
    if (
        calculation.rent.spec is not None
        and calculation.desktop_gpu is not None
        and calculation.speed_ratio.basis is not RatioBasis.SAME
    ):
        return faster_text(calculation)
    return "The GPUs are the same."


def faster_text(calculation: Calculation) -> str:
    """Return how fast the desktop's GPU is compared with the rented one, and what the ratio is based on."""
    ratio = calculation.speed_ratio if calculation.known_ratio is None else calculation.known_ratio
    gpu = calculation.desktop.gpu if calculation.desktop_gpu is None else calculation.desktop_gpu.name
    rented_gpu = "the rented GPU" if calculation.rent.spec is None else calculation.rent.spec.name
    range_text = (
        "" if ratio.low == ratio.high else f" ({float(ratio.low):.2f} to {float(ratio.high):.2f} by other figures)"
    )
    return f"By {ratio.basis} an hour of {gpu} does {float(ratio.ratio):.2f} hours of {rented_gpu}{range_text}."
