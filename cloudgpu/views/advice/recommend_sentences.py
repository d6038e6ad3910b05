"""A recommendation in one sentence or two, and the dated sources of its figures.

The figures are those of GPUs, prices and the desktop.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import date, timedelta
from fractions import Fraction

from cloudgpu.core.advice.desktop_build import BreakEven, Build, PriceKind, Verdict
from cloudgpu.core.advice.recommend import FittingOffer
from cloudgpu.core.advice.recommendation import Recommendation
from cloudgpu.core.advice.workloads import Source, SourceQuality
from cloudgpu.core.catalog.catalog import GpuSpec, SpeedBasis
from cloudgpu.core.model.offers import Basis
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.naming import counted

_QUALITIES = {Basis.LISTED: SourceQuality.PUBLISHED, Basis.DERIVED: SourceQuality.DERIVED}
_DATE = re.compile(r"(\d{4})[-.](\d{2})(?:-(\d{2}))?")
_UNDATED = date(2025, 12, 1)  # the date of the catalogue's GPU specifications, for a source text without a date


def memory_sources(specs: Iterable[GpuSpec]) -> tuple[Source, ...]:
    """Return the sources of these GPUs' memory sizes."""
    return tuple(_spec_source(spec) for spec in specs)


def speed_source(machine: FittingOffer) -> Source | None:
    """Return the source of a machine's speed; None where no speed is known."""
    if machine.speed is None:
        return None
    if machine.speed.basis is SpeedBasis.MEASURED:
        return _dated_source(machine.spec.source.rpartition("; ")[2], SourceQuality.DERIVED)
    return _spec_source(machine.spec)


def rent_source(machine: FittingOffer) -> Source:
    """Return the source of a machine's price."""
    listed = machine.offer.listed.price
    name = f"price of {machine.offer.type.name}: {listed.source}"
    return Source(name, listed.as_of.date(), _QUALITIES.get(listed.basis, SourceQuality.UNVERIFIED))


def purchase_sources(answer: Recommendation, build: Build) -> Iterator[Source]:
    """Yield the sources of a desktop's figures: the price of its cards, of the rest, and its power."""
    if build.spec.card_prices is not None:
        price_kind = build.price_kind
        price_name = (
            "list price"
            if price_kind is PriceKind.LAUNCH
            else f"{price_kind} price".replace("yours price", "your price")
        )
        table = "as you gave it" if price_kind is PriceKind.YOURS else f"a public table of cards, {build.dated}"
        name = f"{price_name} of an {build.spec.name}: {table}"
        yield Source(name, build.spec.card_prices.as_of.date(), SourceQuality.PUBLISHED)
    yield answer.workload_data.figures.base_machine_usd.source
    base = answer.base
    yield Source(
        f"power of the rest and tariff: desktop {base.name}, {base.source}", base.as_of, SourceQuality.PUBLISHED
    )


def _spec_source(spec: GpuSpec) -> Source:
    return _dated_source(f"{spec.name}: {spec.source.partition('; ')[0]}", SourceQuality.PUBLISHED)


def _dated_source(text: str, quality: SourceQuality) -> Source:
    match = _DATE.search(text)
    as_of = _UNDATED if match is None else date(int(match[1]), int(match[2]), int(match[3] or 1))
    return Source(text, as_of, quality)


PROVIDER_NAMES = {
    "aws": "AWS",
    "gcp": "Google",
    "azure": "Azure",
    "lambda": "Lambda",
    "runpod": "RunPod",
    "vast": "vast.ai",
}
_TWO_DIGITS_FROM = Money.usd(10)  # an hour; from here on two decimals


def sentence(answer: Recommendation) -> str:
    """Return the answer in one sentence or two, as a person would say it."""
    machine, build = answer.machine, answer.build
    if machine is None:
        return f"{_no_machine(answer)} " + (f"{_buy_text(build)}." if build else _no_desktop(answer))
    if build is None:
        return f"Rent {rented_text(machine)}{_monthly(answer)}. {_no_desktop(answer)}"
    if answer.verdict is Verdict.BUY and answer.break_even:
        return f"{_buy_text(build)}{_more_desktops(answer.break_even)}. {_buy_reason(machine, answer.break_even)}"
    if answer.verdict is Verdict.RENT and answer.break_even:
        return f"Rent {rented_text(machine)}{_monthly(answer)}. {_rent_reason(build, answer.break_even)}"
    return (
        f"Rent {rented_text(machine)}, or {_uncapitalized(_buy_text(build))}{_cheaper_from(build, answer.break_even)}."
    )


def rented_text(machine: FittingOffer) -> str:
    """Return a machine with its price and place, for people."""
    listed, gpu = machine.offer.listed, machine.offer.type.gpu
    gpus_text = f"{Fraction(gpu.share).limit_denominator(8)} of an" if gpu.share < 1 else f"{gpu.count}x"
    spot = " spot" if str(listed.market) == "spot" else ""
    provider = PROVIDER_NAMES.get(machine.offer.type.provider, machine.offer.type.provider)
    return (
        f"{gpus_text} {gpu.name} ({gpu.memory_gib:g} GiB{' each' if gpu.count > 1 else ''}) on {provider}{spot} at "
        f"{hourly_text(machine.price)} an hour ({machine.offer.type.name}, {listed.region})"
    )


def hourly_text(price: Money) -> str:
    """Return a price per hour for people."""
    return price.text(2 if price >= _TWO_DIGITS_FROM else 4)


def _monthly(answer: Recommendation) -> str:
    hours, machine = answer.limits.hours, answer.machine
    if hours is None or machine is None:
        return ""
    return f": {monthly_cost(machine, hours).text(0)} a month at {number_text(hours)} hours a week, and its disk"


def monthly_cost(machine: FittingOffer, hours: Fraction) -> Money:
    """Return what a machine costs in a twelfth of a year, used for so many hours a week."""
    return machine.price.scaled(hours * 365 / 7 / 12)


def _buy_text(build: Build) -> str:
    each = " each" if build.cards > 1 else ""
    about = "at least" if build.cards > 1 else "about"
    price = build.desktop.purchase.text(0)
    return f"Buy {_cards(build)} ({build.price.text(0)}{each}) for a desktop of {about} {price}"


def _cards(build: Build) -> str:
    price_word = "" if build.price_kind in (PriceKind.LAUNCH, PriceKind.YOURS) else f"{build.price_kind} "
    return (
        f"{_article(price_word or build.spec.name) if build.cards == 1 else build.cards} {price_word}{build.spec.name}"
    )


def _article(word: str) -> str:
    return "an" if word[0] in "AHLMR" else "a"


def _uncapitalized(text: str) -> str:
    return text[:1].lower() + text[1:]


def _more_desktops(break_even: BreakEven) -> str:
    return "" if break_even.desktops == 1 else f", and {break_even.desktops} such desktops, as one does not do so much"


def _buy_reason(machine: FittingOffer, break_even: BreakEven) -> str:
    subject = "it costs" if break_even.desktops == 1 else "they cost"
    if break_even.over_life is None or break_even.hours is None:
        return f"{subject[:1].upper()}{subject[1:]} less than renting {rented_text(machine)}."
    pace = f"At {number_text(break_even.hours)} hours a week over {_lifetime_text(break_even.over_life.elapsed)}"
    desktop_cost, rent_cost = (
        cost.text(0) for cost in (break_even.over_life.costs.owned.total, break_even.over_life.costs.cloud)
    )
    text = f"{pace} {subject} {desktop_cost}. Renting {rented_text(machine)} costs {rent_cost}."
    return f"{text} {_payback(break_even)}{_costlier_again_text(break_even)}"


def _payback(break_even: BreakEven) -> str:
    """Return when the desktop has paid for itself where it is never sold."""
    subject = "it has" if break_even.desktops == 1 else "they have"
    if break_even.after is None:
        return f"Unsold, {subject} never paid for {'itself' if break_even.desktops == 1 else 'themselves'}."
    itself = "itself" if break_even.desktops == 1 else "themselves"
    return f"Unsold, {subject} paid for {itself} after {duration_text(break_even.after)}{_range_text(break_even)}."


def _lifetime_text(duration: timedelta) -> str:
    years = number_text(Fraction(duration // timedelta(days=1), 365))
    return f"{years} year{'s' * (years != '1')}"


def _costlier_again_text(break_even: BreakEven) -> str:
    if break_even.costlier is None:
        return ""
    until = (
        "from then on"
        if break_even.costlier.until is None
        else f"until {duration_text(break_even.costlier.until)} are over"
    )
    return f" Replaced after {duration_text(break_even.costlier.since)}, it is more expensive again {until}."


def _rent_reason(build: Build, break_even: BreakEven) -> str:
    desktop = f"A desktop with {_cards(build)} ({build.desktop.purchase.text(0)})"
    if break_even.over_life is None:
        return f"{desktop} costs more at that pace."
    desktop_cost, rent_cost = (
        cost.text(0) for cost in (break_even.over_life.costs.owned.total, break_even.over_life.costs.cloud)
    )
    life = _lifetime_text(break_even.over_life.elapsed)
    return f"Over {life} that is {rent_cost}. {desktop} costs {desktop_cost} with its electricity, sold at the end."


def _range_text(break_even: BreakEven) -> str:
    earliest, latest = duration_text(break_even.soonest), duration_text(break_even.latest)
    return "" if earliest == latest else f" (between {earliest} and {latest}, by the speed of both)"


def duration_text(duration: timedelta | None) -> str:
    """Return a duration for people: in days, from two months on in months; `never` for None."""
    if duration is None:
        return "never"
    days = duration / timedelta(days=1)
    return counted(round(days), "day") if days < 60 else f"{days / 365 * 12:.0f} months"  # noqa: PLR2004


def _cheaper_from(build: Build, break_even: BreakEven | None) -> str:
    if break_even is None or break_even.hours is not None:
        return ""
    years = number_text(Fraction(build.desktop.life // timedelta(days=1), 365))
    if break_even.weekly_hours is None:
        return f": over {years} years the desktop is never the cheaper one"
    hours = number_text(break_even.weekly_hours)
    return f": for {hours} hours a week or more over {years} years, the desktop is the cheaper one"


def _no_machine(answer: Recommendation) -> str:
    cards = answer.need.cards
    per_gpu = gib_text(answer.need.memory.total if cards is None else answer.need.memory.gib_per_gpu(cards))
    holds_it = f"has {cards} GPU{'s that hold' if cards != 1 else ' that holds'} it" if cards else "holds it"
    holds = f"{holds_it} ({per_gpu} of GPU memory{' each' if (cards or 1) > 1 else ''} for {answer.kind.title})"
    if not answer.hidden_types:
        return f"No machine of the catalogue {holds}."
    outside = f"{'is' if answer.hidden_types == 1 else 'are'} {counted(answer.hidden_types, 'type')}"
    return f"No machine within the bounds that you set {holds}; without them there {outside}."


def _no_desktop(answer: Recommendation) -> str:
    if answer.over_budget:
        cheapest = min(answer.over_budget, key=lambda build: build.desktop.purchase)
        return (
            f"No desktop that holds it is within the budget: the cheapest, with {_cards(cheapest)}, costs about "
            f"{cheapest.desktop.purchase.text(0)}."
        )
    max_cards = answer.workload_data.figures.most_cards.value
    return f"No desktop of up to {max_cards} cards with a known price holds it."


def gib_text(value: Fraction) -> str:
    """Return an amount of memory for people."""
    return f"{float(value):,.1f} GiB"


def number_text(value: Fraction) -> str:
    """Return a number for people: with one digit after the point where it is not whole."""
    return f"{float(value):,.1f}".removesuffix(".0")
