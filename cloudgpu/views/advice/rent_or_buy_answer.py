"""Answers rent or buy for the requested years: both costs, the cheaper one, and from when on it is.

The desktop is sold at the end of these years for what a used one of its age brings; `break_even_sentence` of the same
document counts it as it is paid.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

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
from cloudgpu.views.advice.compare_sentences import capital, count
from cloudgpu.views.advice.rent_or_buy_sentences import amount_text, days, desktop_text, percent, years_text

CENTS = Money.usd(100)  # below it amounts are shown with cents


@dataclass(frozen=True, slots=True)
class Choice:
    """One use: what either costs over the years, from when on the desktop is cheaper, and when it is paid off unsold.

    `later` is from when on it is cheaper where that is not within the years; None for never.
    """

    answer: RentOrBuyResult
    over: LifetimeCosts
    later: RentOrBuyResult
    unsold: RentOrBuyResult


def choices(calculation: Calculation, answers: Sequence[RentOrBuyResult]) -> list[Choice]:
    """Return what is chosen for each use."""
    chosen = []
    for result in answers:
        sold = calculation.with_resale(result.case)
        kept = replace(calculation.desktop, resale=ZERO, depreciation=Depreciation.NONE)
        unsold = evaluate_case(replace(result.case, desktop=kept))
        chosen.append(Choice(result, lifetime_costs(sold, calculation.rent.horizon), evaluate_case(sold), unsold))
    return chosen


def verdict(choices: Sequence[Choice]) -> str:
    """Return `buy` or `rent`, and `either` where that depends on how much it is used."""
    verdicts = {"buy" if choice.over.desktop_is_cheaper else "rent" for choice in choices}
    return verdicts.pop() if len(verdicts) == 1 else "either"


def sentence(calculation: Calculation, choices: Sequence[Choice], currency: Currency | None) -> str:
    """Return the answer: the total of each over the years, who is cheaper, and by how much."""
    if not choices[-1].answer.case.use:
        desktop = _desktop(calculation, choices)
        return (
            f"Rent: a machine that is not used costs nothing. {capital(desktop)} {_costs(desktop)} "
            f"{amount(choices[-1].over.costs.owned.total, currency)} over {_years(calculation)} all the same."
        )
    return (
        _choice_sentence(calculation, choices[0], currency)
        if len(choices) == 1
        else _both_costs(calculation, choices, currency)
    )


def crossing(calculation: Calculation, choices: Sequence[Choice]) -> str:
    """Return from when on the desktop is cheaper, sold when the work ends and unsold; empty where nothing is used."""
    if not choices[-1].answer.case.use:
        return ""
    if len(choices) == 1:
        return " ".join([*_crossing(calculation, choices[0]), *_beyond_bound_texts(calculation, choices[0])])
    since = [f"{_since_text(one)} at {percent(one.answer.case.use)}" for one in choices if one.over.desktop_is_cheaper]
    return f"Sold when you stop, the desktop is cheaper {', and '.join(since)}." if since else ""


def remarks(calculation: Calculation) -> list[str]:
    """Return the notes on substitutes for the requested GPU or desktop, memory that does not fit, interest and VAT."""
    return [*_notes(calculation), *filter(None, [terms_sentence(calculation)])]


def amount(money: Money, currency: Currency | None) -> str:
    """Return an amount without its cents, where that says enough."""
    return amount_text(money, currency, 2 if abs(money.nanos) < CENTS.nanos else 0)


def _choice_sentence(calculation: Calculation, choice: Choice, currency: Currency | None) -> str:
    mark, more = choice.over.costs, amount(choice.over.difference, currency)
    years, desktop, rent = _years(calculation), _desktop(calculation, [choice]), _renting(calculation)
    cloud, owned = amount(mark.cloud, currency), amount(mark.owned.total, currency)
    if not choice.over.difference:
        return f"Buy or rent: over {years} {desktop} and {rent} cost the same, {owned}."
    if choice.over.desktop_is_cheaper:
        return f"Buy: over {years} {desktop} {_costs(desktop)} {owned}. {capital(rent)} costs {cloud}, {more} more."
    return f"Rent: over {years} {rent} costs {cloud}. {capital(desktop)} {_costs(desktop)} {owned}, {more} more."


def _costs(desktop: str) -> str:
    return "costs" if desktop.startswith("a ") else "cost"


def _both_costs(calculation: Calculation, choices: Sequence[Choice], currency: Currency | None) -> str:
    ways = ["buy" if choice.over.desktop_is_cheaper else "rent" for choice in choices]
    uses = [percent(choice.answer.case.use) for choice in choices]
    lead = capital(ways[0])
    if ways[0] != ways[1]:
        lead = f"{capital(ways[0])} at {uses[0]} of the time, {ways[1]} at {uses[1]}"
    cloud = " to ".join(amount(choice.over.costs.cloud, currency) for choice in choices)
    owned = " to ".join(amount(choice.over.costs.owned.total, currency) for choice in choices)
    return (
        f"{lead}: over {_years(calculation)}, used {' to '.join(uses)} of the time, {_desktop(calculation, choices)} "
        f"{_costs(_desktop(calculation, choices))} {owned}. Renting costs {cloud}."
    )


def _crossing(calculation: Calculation, choice: Choice) -> Iterator[str]:
    """Yield from when on the desktop is cheaper: sold when the work ends, and unsold."""
    both = calculation.counts_resale and calculation.desktop.depreciation is Depreciation.NONE
    begin = "Sold when you stop, the desktop is" if both else "The desktop is"
    if choice.over.desktop_is_cheaper:
        yield f"{begin} cheaper {_since_text(choice)}."
    elif choice.later.break_even is None:
        yield f"{begin} never cheaper within {years_text(MAX_HORIZON)}."
    elif choice.later.break_even > choice.over.elapsed:
        yield f"{begin} cheaper only from {_day(choice.later.break_even)} on."
    if not both:
        return
    kept = choice.unsold.break_even
    if kept is not None and kept <= choice.over.elapsed:
        yield f"Unsold, it has paid for itself after {days(kept)}."
    else:
        yield f"Unsold, it has not paid for itself after {_years(calculation)}."


def _since_text(choice: Choice) -> str:
    since = choice.over.cheaper_from
    return "from the first hour on" if since is None or since <= FIRST_HOUR else f"from {_day(since)} on"


def _day(span: object) -> str:
    text = days(span)  # type: ignore[arg-type]
    number, _, months = text.partition(" day")
    return f"day {number}{months.removeprefix('s')}"


def _beyond_bound_texts(calculation: Calculation, choice: Choice) -> Iterator[str]:
    """Yield what holds on the other side of a bound."""
    even, bound = choice.later.break_even_use, calculation.rent.use.bound
    if calculation.rent.horizon != calculation.desktop.life or even is None:
        return
    if bound is Bound.UNDER and choice.over.desktop_is_cheaper:
        yield f"Used less than {percent(even)} of the time, rent."
    if bound is Bound.OVER and not choice.over.desktop_is_cheaper:
        yield f"Used more than {percent(even)} of the time, buy."


def _notes(calculation: Calculation) -> Iterator[str]:
    """Yield the notes on substitutes for the requested GPU or desktop, and on memory that does not fit."""
    rent, gpu, desktop = calculation.rent, calculation.desktop_gpu, calculation.desktop
    if rent.substitute_for is not None and rent.spec is not None:
        wanted = rent.substitute_for
        yield (
            f"No cloud lists {an(wanted.name)}: {an(rent.spec.name)} ({rent.spec.memory_gib:g} GiB) does its work, "
            f"the hours counted by {calculation.speed_ratio.basis}."
        )
        if gpu is not None and gpu.memory_gib < wanted.memory_gib:
            yield f"This holds if the work fits in {gpu.memory_gib:g} GiB."
    if gpu is None or rent.spec is None or rent.substitute_for is not None:
        return
    if calculation.matched_memory_gib is not None and desktop.boxes > 1:
        memory = gpu.memory_gib * desktop.gpus
        yield (
            f"One {gpu.name} ({gpu.memory_gib:g} GiB) has {float(calculation.speed_ratio.ratio):.2f} of the speed of "
            f"{an(rent.spec.name)} ({rent.spec.memory_gib:g} GiB): {count(desktop.boxes)} have {memory:g} GiB."
            f"{' For one card with 48 GiB: --desktop a6000.' if rent.gpus == 1 else ''}"
        )
    elif calculation.matched_memory_gib is not None:
        yield (
            f"{capital(an(rent.spec.name))} has {rent.spec.memory_gib:g} GiB, so the desktop has a card with "
            f"{gpu.memory_gib:g} GiB."
        )
    elif gpu.memory_gib < rent.spec.memory_gib:
        yield (
            f"This holds if the work fits in {gpu.memory_gib:g} GiB: {an(rent.spec.name)} has "
            f"{rent.spec.memory_gib:g} GiB."
        )


def resale_sentence(calculation: Calculation, choices: Sequence[Choice], currency: Currency | None) -> str:
    """Return for how much the desktop is sold at the end of the years, and by which rule; empty where it is not."""
    worth = choices[-1].over.costs.owned.worth
    if not worth:
        return ""
    desktop = calculation.desktop
    text = f"Sold after {_years(calculation)}, the desktop brings {amount(worth, currency)}"
    if desktop.depreciation is not Depreciation.NONE or not calculation.counts_resale:
        return f"{text}."
    used = f"{percent(USED_SHARE)} of its price as soon as it is used"
    if desktop.resale_known or desktop.resale:
        end = f"{amount(desktop.resale, currency)} after {years_text(desktop.life)}"
        return f"{text}: on a straight line from {used} down to {end}."
    return f"{text}: {used}, and {percent(USED_LOSS)} less each year."


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


def _percent(share: object) -> str:
    return f"{float(share) * 100:g}%"  # type: ignore[arg-type]


def an(name: str) -> str:
    """Return a GPU's name with its article."""
    return f"{'an' if name[0] in 'AHLMRX' else 'a'} {name}"


def _desktop(calculation: Calculation, choices: Sequence[Choice]) -> str:
    return desktop_text(calculation.desktop, max(choice.answer.year.number for choice in choices))


def _renting(calculation: Calculation) -> str:
    rent = calculation.rent
    what = f"{rent.gpus}x {rent.spec.name}" if rent.spec is not None else "a machine"
    if rent.use.bound is not Bound.AT:
        return f"renting {what} for {percent(rent.use.shares[-1])} of the time"
    if not rent.use.text.endswith("a day"):
        return f"renting {what} for {rent.use.text} of the time"
    hours = float(rent.use.shares[-1] * 24)
    return f"renting {what} for " + (f"{hours:.3g} hours a day" if rent.substitute_for else rent.use.text)


def _years(calculation: Calculation) -> str:
    return years_text(calculation.rent.horizon)
