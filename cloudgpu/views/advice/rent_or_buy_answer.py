"""The answer, rent or buy, for the requested years: both costs, the cheaper one, and since when it is.

The desktop is sold at the end of these years for what a used one of its age brings; `break_even_sentence` of the same
document does not count a sale.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from fractions import Fraction

from cloudgpu.core.advice.break_even import FIRST_HOUR, MAX_HORIZON
from cloudgpu.core.advice.desktop import USED_LOSS, USED_SHARE, Depreciation
from cloudgpu.core.advice.rent_or_buy import (
    Bound,
    Calculation,
    LifetimeCosts,
    RentOrBuyResult,
    evaluate_case,
    lifetime_costs,
)
from cloudgpu.core.values.currency import Currency
from cloudgpu.core.values.money import ZERO, Money
from cloudgpu.views.advice.compare_sentences import capitalized, count_text, desktops_text
from cloudgpu.views.advice.rent_or_buy_sentences import amount_text, days_text, percent_text, years_text

NO_CENTS_FROM = Money.usd(100)  # smaller amounts are shown with cents


@dataclass(frozen=True, slots=True)
class Choice:
    """One utilization: the costs of both over the years, and the break-even with and without a sale of the desktop.

    `result` is as requested, `sold` counts that the desktop is sold, `unsold` that it never is.
    """

    result: RentOrBuyResult
    lifetime: LifetimeCosts
    sold: RentOrBuyResult
    unsold: RentOrBuyResult


def choices(calculation: Calculation, answers: Sequence[RentOrBuyResult]) -> list[Choice]:
    """Return a choice for each utilization."""
    chosen = []
    for result in answers:
        sold_case = calculation.with_resale(result.case)
        unsold_desktop = replace(calculation.desktop, resale=ZERO, depreciation=Depreciation.NONE)
        unsold = evaluate_case(replace(result.case, desktop=unsold_desktop))
        chosen.append(
            Choice(result, lifetime_costs(sold_case, calculation.rent.horizon), evaluate_case(sold_case), unsold)
        )
    return chosen


def verdict(choices: Sequence[Choice]) -> str:
    """Return `buy` or `rent`; `either` where that depends on the utilization."""
    verdicts = {"buy" if choice.lifetime.desktop_is_cheaper else "rent" for choice in choices}
    return verdicts.pop() if len(verdicts) == 1 else "either"


def sentence(calculation: Calculation, choices: Sequence[Choice], currency: Currency | None) -> str:
    """Return the answer: the total of each over the years, who is cheaper, and by how much."""
    if not choices[-1].result.case.use:
        desktop_name = _desktop(calculation, choices)
        return (
            f"Rent: a machine that is not used costs nothing. {capitalized(desktop_name)} {_cost_verb(desktop_name)} "
            f"{amount(choices[-1].lifetime.costs.owned.total, currency)} over {_years(calculation)} all the same."
        )
    return (
        _choice_sentence(calculation, choices[0], currency)
        if len(choices) == 1
        else _both_costs(calculation, choices, currency)
    )


def crossing(calculation: Calculation, choices: Sequence[Choice]) -> str:
    """Return from when on the desktop is cheaper, sold when the work ends and unsold; empty where nothing is used."""
    if not choices[-1].result.case.use:
        return ""
    if len(choices) == 1:
        return " ".join([*_crossing(calculation, choices[0]), *_beyond_bound_texts(calculation, choices[0])])
    cheaper_since = [
        f"{_since_text(choice)} at {percent_text(choice.result.case.use)}"
        for choice in choices
        if choice.lifetime.desktop_is_cheaper
    ]
    return f"Sold when you stop, the desktop is cheaper {', and '.join(cheaper_since)}." if cheaper_since else ""


def remarks(calculation: Calculation) -> list[str]:
    """Return the notes on substitutes for the requested GPU or desktop, memory that does not fit, interest and VAT."""
    return [*_notes(calculation), *filter(None, [terms_sentence(calculation)])]


def amount(money: Money, currency: Currency | None) -> str:
    """Return an amount without its cents, where that says enough."""
    return amount_text(money, currency, 2 if abs(money.nanos) < NO_CENTS_FROM.nanos else 0)


def _choice_sentence(calculation: Calculation, choice: Choice, currency: Currency | None) -> str:
    costs, difference = choice.lifetime.costs, amount(choice.lifetime.difference, currency)
    years, desktop, rent = _years(calculation), _desktop(calculation, [choice]), _renting(calculation)
    cloud, owned = amount(costs.cloud, currency), amount(costs.owned.total, currency)
    if not choice.lifetime.difference:
        return f"Buy or rent: over {years} {desktop} and {rent} cost the same, {owned}."
    if choice.lifetime.desktop_is_cheaper:
        buy = f"Buy: over {years} {desktop} {_cost_verb(desktop)} {owned}."
        return f"{buy} {capitalized(rent)} costs {cloud}, {difference} more."
    return (
        f"Rent: over {years} {rent} costs {cloud}. {capitalized(desktop)} {_cost_verb(desktop)} {owned}, "
        f"{difference} more."
    )


def _cost_verb(desktop: str) -> str:
    return "costs" if desktop.startswith("a ") else "cost"


def _both_costs(calculation: Calculation, choices: Sequence[Choice], currency: Currency | None) -> str:
    verdicts = ["buy" if choice.lifetime.desktop_is_cheaper else "rent" for choice in choices]
    shares = [percent_text(choice.result.case.use) for choice in choices]
    lead = capitalized(verdicts[0])
    if verdicts[0] != verdicts[1]:
        lead = f"{capitalized(verdicts[0])} at {shares[0]} of the time, {verdicts[1]} at {shares[1]}"
    cloud = " to ".join(amount(choice.lifetime.costs.cloud, currency) for choice in choices)
    owned = " to ".join(amount(choice.lifetime.costs.owned.total, currency) for choice in choices)
    return (
        f"{lead}: over {_years(calculation)}, used {' to '.join(shares)} of the time, {_desktop(calculation, choices)} "
        f"{_cost_verb(_desktop(calculation, choices))} {owned}. Renting costs {cloud}."
    )


def _crossing(calculation: Calculation, choice: Choice) -> Iterator[str]:
    """Yield from when on the desktop is cheaper: sold when the work ends, and unsold."""
    has_both = calculation.deducts_market_resale and calculation.desktop.depreciation is Depreciation.NONE
    begin = "Sold when you stop, the desktop is" if has_both else "The desktop is"
    if choice.lifetime.desktop_is_cheaper:
        yield f"{begin} cheaper {_since_text(choice)}."
    elif choice.sold.break_even is None:
        yield f"{begin} never cheaper within {years_text(MAX_HORIZON)}."
    elif choice.sold.break_even > choice.lifetime.elapsed:
        yield f"{begin} cheaper only from {_day(choice.sold.break_even)} on."
    if not has_both:
        return
    unsold_break_even = choice.unsold.break_even
    if unsold_break_even is not None and unsold_break_even <= choice.lifetime.elapsed:
        yield f"Unsold, it has paid for itself after {days_text(unsold_break_even)}."
    else:
        yield f"Unsold, it has not paid for itself after {_years(calculation)}."


def _since_text(choice: Choice) -> str:
    since = choice.lifetime.cheaper_from
    return "from the first hour on" if since is None or since <= FIRST_HOUR else f"from {_day(since)} on"


def _day(duration: timedelta) -> str:
    text = days_text(duration)
    number, _, months = text.partition(" day")
    return f"day {number}{months.removeprefix('s')}"


def _beyond_bound_texts(calculation: Calculation, choice: Choice) -> Iterator[str]:
    """Yield what holds on the other side of a bound."""
    break_even_use, bound = choice.sold.break_even_use, calculation.rent.use.bound
    if calculation.rent.horizon != calculation.desktop.life or break_even_use is None:
        return
    if bound is Bound.UNDER and choice.lifetime.desktop_is_cheaper:
        yield f"Used less than {percent_text(break_even_use)} of the time, rent."
    if bound is Bound.OVER and not choice.lifetime.desktop_is_cheaper:
        yield f"Used more than {percent_text(break_even_use)} of the time, buy."


def _notes(calculation: Calculation) -> Iterator[str]:
    """Yield the notes on substitutes for the requested GPU or desktop, and on memory that does not fit."""
    rent, gpu, desktop = calculation.rent, calculation.desktop_gpu, calculation.desktop
    if rent.substitute_for is not None and rent.spec is not None:
        requested_gpu = rent.substitute_for
        yield (
            f"No cloud lists {with_article(requested_gpu.name)}: {with_article(rent.spec.name)} "
            f"({rent.spec.memory_gib:g} GiB) does its work, the hours counted by {calculation.speed_ratio.basis}."
        )
        if gpu is not None and gpu.memory_gib < requested_gpu.memory_gib:
            yield f"This holds if the work fits in {gpu.memory_gib:g} GiB."
    if gpu is None or rent.spec is None or rent.substitute_for is not None:
        return
    if calculation.matched_memory_gib is not None and desktop.computers > 1:
        memory = gpu.memory_gib * desktop.gpus
        yield (
            f"One {gpu.name} ({gpu.memory_gib:g} GiB) has {float(calculation.speed_ratio.ratio):.2f} of the speed of "
            f"{with_article(rent.spec.name)} ({rent.spec.memory_gib:g} GiB): {count_text(desktop.computers)} have "
            f"{memory:g} GiB.{' For one card with 48 GiB: --desktop a6000.' if rent.gpus == 1 else ''}"
        )
    elif calculation.matched_memory_gib is not None:
        yield (
            f"{capitalized(with_article(rent.spec.name))} has {rent.spec.memory_gib:g} GiB, so the desktop has a card "
            f"with {gpu.memory_gib:g} GiB."
        )
    elif gpu.memory_gib < rent.spec.memory_gib:
        yield (
            f"This holds if the work fits in {gpu.memory_gib:g} GiB: {with_article(rent.spec.name)} has "
            f"{rent.spec.memory_gib:g} GiB."
        )


def resale_sentence(calculation: Calculation, choices: Sequence[Choice], currency: Currency | None) -> str:
    """Return for how much the desktop is sold at the end of the years, and by which rule; empty where it is not."""
    worth = choices[-1].lifetime.costs.owned.worth
    if not worth:
        return ""
    desktop = calculation.desktop
    text = f"Sold after {_years(calculation)}, the desktop brings {amount(worth, currency)}"
    if desktop.depreciation is not Depreciation.NONE or not calculation.deducts_market_resale:
        return f"{text}."
    used = f"{percent_text(USED_SHARE)} of its price as soon as it is used"
    if desktop.resale_known or desktop.resale:
        end = f"{amount(desktop.resale, currency)} after {years_text(desktop.life)}"
        return f"{text}: on a straight line from {used} down to {end}."
    return f"{text}: {used}, and {percent_text(USED_LOSS)} less each year."


def terms_sentence(calculation: Calculation) -> str:
    """Return the notes on interest, price drift and VAT; empty if none was given."""
    terms = calculation.terms
    parts = [
        f"in today's money at a cost of capital of {_percent(terms.interest)} a year" if terms.interest else "",
        f"cloud prices change by {_percent(terms.drift)} a year" if terms.drift else "",
        f"with {_percent(terms.vat)} VAT on the cloud, the desktop, its electricity and maintenance"
        if terms.vat
        else "",
    ]
    text = "; ".join(filter(None, parts))
    return f"Counted: {text}." if text else ""


def _percent(share: Fraction) -> str:
    return f"{float(share) * 100:g}%"


def with_article(name: str) -> str:
    """Return a GPU's name with its article."""
    return f"{'an' if name[0] in 'AHLMRX' else 'a'} {name}"


def _desktop(calculation: Calculation, choices: Sequence[Choice]) -> str:
    return desktops_text(calculation.desktop, max(choice.result.year.number for choice in choices))


def _renting(calculation: Calculation) -> str:
    rent = calculation.rent
    machine_text = f"{rent.gpus}x {rent.spec.name}" if rent.spec is not None else "a machine"
    if rent.use.bound is not Bound.AT:
        return f"renting {machine_text} for {percent_text(rent.use.shares[-1])} of the time"
    if not rent.use.text.endswith("a day"):
        return f"renting {machine_text} for {rent.use.text} of the time"
    hours = float(rent.use.shares[-1] * 24)
    return f"renting {machine_text} for " + (f"{hours:.3g} hours a day" if rent.substitute_for else rent.use.text)


def _years(calculation: Calculation) -> str:
    return years_text(calculation.rent.horizon)
