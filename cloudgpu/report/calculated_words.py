"""What a person would say of a price, a use and a desktop: the sentence, why break-evens differ, what is assumed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING

from cloudgpu.core.calculated import MONTH, Bound, mark, round_days
from cloudgpu.core.desktop import YEAR, Depreciation
from cloudgpu.core.even import FURTHEST
from cloudgpu.core.speed import Rests
from cloudgpu.core.units import hours

if TYPE_CHECKING:
    from cloudgpu.core.calculated import Answer, Calculation
    from cloudgpu.core.currency import Currency
    from cloudgpu.core.desktop import Desktop
    from cloudgpu.core.money import Money

CENT = 10_000_000
_COUNTS = {1: "one", 2: "two", 3: "three", 4: "four"}
FEW = 60  # days; from here on months are said beside them


def shown(amount: Money, currency: Currency | None, places: int = 2) -> str:
    """Return an amount for people: `$2,311.20`, or `3,201,474 KRW`."""
    if currency is None:
        return amount.text(places)
    return f"{currency.text(amount, places - 2 if places > 2 else 0)} {currency.code}"  # noqa: PLR2004  (cents)


def an_hour(price: Money, currency: Currency | None) -> str:
    """Return a price: whole cents as such, others with four digits."""
    return shown(price, currency, 4 if price.nanos % CENT else 2)


def percent(share: Fraction) -> str:
    """Return `15%`, `2.5%`: no more digits than a share of the time is known to."""
    tenths = round(share * 1000)
    if share and not tenths:
        return "<0.1%"
    return f"{Decimal(tenths) / 10:f}%".replace(".0%", "%")


def much(share: Fraction) -> str:
    """Return `a use of more than 3% of the time`, above 1 `more than 1.4 machines at any time`."""
    if share > 1:
        return f"more than {float(share):.1f} machines at any time"
    return f"a use of more than {percent(share)} of the time"


def days(span: timedelta, places: int = 0) -> str:
    """Return `293 days (9.6 months)`."""
    number = float(hours(span) / 24)
    months = f" ({number / float(hours(MONTH) / 24):.1f} months)" if number >= FEW else ""
    return f"{number:,.{places}f} day{'s' if f'{number:.{places}f}' != '1' else ''}{months}"


def named(desktop: Desktop, number: int = 1) -> str:
    """Return `a desktop with one RTX 3090`, `2 desktops with two RTX 4090 each`."""
    cards = f"{_COUNTS.get(desktop.gpus, str(desktop.gpus))} {desktop.gpu}"
    return f"a desktop with {cards}" if number == 1 else f"{number} desktops with {cards} each"


def life(span: timedelta) -> str:
    """Return `4 years`."""
    number = float(hours(span) / hours(YEAR))
    return f"{number:g} year{'s' * (number != 1)}"


def sentence(found: Calculation, answers: Sequence[Answer], currency: Currency | None) -> str:
    """Return what a person would say of it."""
    price = an_hour(found.rent.per_hour, currency)
    first, last = answers[0], answers[-1]
    what = named(found.desktop, max(one.year.number for one in answers))
    if not last.question.use:
        return f"A cloud machine that is not used costs nothing, and {what} costs as it stands there: rent."
    use = f"used {_use(found)} of the time" if last.question.use <= 1 else f"{_machines(found)} at any time"
    begin = f"At {price} an hour, {use},"
    if last.break_even is None:
        would = _would(last, currency, several=len(answers) > 1)
        return f"{begin} the cloud stays cheaper than {what} for {life(FURTHEST)}: rent.{would}"
    if first.break_even is None:
        return (
            f"{begin} the cloud has cost as much as {what} after {days(last.break_even)} at the earliest, and never at "
            f"{percent(first.question.use)}."
        )
    if last.break_even <= MONTH / 720:
        return f"{begin} the cloud costs more than {what} from the first hour on, by what that loses: buy."
    when = _when(found, first.break_even, last.break_even)
    return f"{begin} the cloud has cost as much as {what} {when}: if you go on for longer, buy; if not, rent."


def _use(found: Calculation) -> str:
    shares = [percent(share) for share in found.rent.use.shares]
    before = {Bound.UNDER: "less than ", Bound.OVER: "more than "}.get(found.rent.use.bound, "")
    return before + " to ".join(shares)


def _machines(found: Calculation) -> str:
    return f"{float(found.rent.use.shares[-1]):g} machines"


def _when(found: Calculation, first: timedelta, last: timedelta) -> str:
    if found.rent.use.bound is Bound.UNDER:
        return f"after {days(first)} at the earliest"
    if found.rent.use.bound is Bound.OVER:
        return f"after {days(first)} at the latest"
    if first == last:
        return f"after {days(first)}"
    return f"after {float(hours(last) / 24):,.0f} to {days(first)}"


def _would(answer: Answer, currency: Currency | None, *, several: bool) -> str:
    """Return at what price, and at what use, it would be otherwise."""
    if answer.even_price is None:
        return ""
    desktop = answer.question.desktop
    end = f" the desktop would cost less over its {life(desktop.life)}."
    at = f" at {percent(answer.question.use)}" if several else ""
    text = f" From {shown(answer.even_price, currency, 4)} an hour on{at}{end}"
    if answer.even_use is not None and answer.even_use > answer.question.use:
        text = f"{text[:-1]}, or with {much(answer.even_use)}."
    return text


def why(answer: Answer, currency: Currency | None) -> str | None:
    """Return why published examples have another day than the curves; None where either never comes."""
    if answer.break_even is None or answer.flat is None:
        return None
    after = round_days(max(answer.break_even, answer.flat))
    one = mark(answer.question, after, answer.year)
    ways = "A whole year's electricity charged on its first day, as published examples do"
    return (
        f"Paid day by day the curves cross after {days(answer.break_even, 2)}. {ways}, makes it "
        f"{float(hours(answer.flat) / 24):,.1f} days: after {after.days:,} days {shown(one.cloud, currency)} against "
        f"{shown(one.flat, currency)}, where by the day it is {shown(one.owned.total, currency)}."
    )


def assumptions(found: Calculation, currency: Currency | None) -> list[str]:
    """Return what all of it rests on, each in a sentence."""
    return list(_assumptions(found, currency))


def _assumptions(found: Calculation, currency: Currency | None) -> Iterator[str]:
    yield _how_fast(found)
    rent, own, desktop = found.rent, found.own, found.desktop
    if len(rent.means) > 1 and rent.spec is not None:
        yield f"The GPU's name means {' or '.join(rent.means)}: its speed and memory are those of {rent.spec.name}."
    if own is not None and rent.spec is not None and own.memory_gib < rent.spec.memory_gib:
        yield (
            f"What needs more than {own.memory_gib:g} GiB does not fit {own.name}; {rent.spec.name} has "
            f"{rent.spec.memory_gib:g} GiB."
        )
    yield "The price stays, the machine is paid only while it is used, and disks and traffic are not in it."
    yield from _of_desktop(desktop, currency)


def _of_desktop(desktop: Desktop, currency: Currency | None) -> Iterator[str]:
    if desktop.depreciation is Depreciation.NONE:
        resale = f", and sold for {shown(desktop.resale, currency)} at the end of it" if desktop.resale else ""
        yield f"The desktop is paid on the first day and anew every {life(desktop.life)}{resale}."
    else:
        straight = desktop.depreciation is Depreciation.STRAIGHT
        way = "the same each day" if straight else f"{percent(desktop.yearly_loss)} of its worth a year"
        end = f"down to {shown(desktop.sold_for, currency)} after {life(desktop.life)}"
        yield f"Of the desktop's price only what it loses is counted: {way}, {end}."
    if desktop.idle_power.watts:
        yield f"It stays on, and takes {float(desktop.idle_power.watts):g} W while it waits."
    else:
        yield "It is switched off while it waits."


def _how_fast(found: Calculation) -> str:
    if found.work is None:
        return "One GPU is counted as fast as the other."
    if found.rent.spec is not None and found.own is not None and found.main.rests is not Rests.SAME:
        return faster_text(found)
    return "The GPUs are the same."


def faster_text(found: Calculation) -> str:
    """Return how fast the desktop's GPU is beside the rented one, and what that rests on."""
    one = found.main if found.beside is None else found.beside
    own = found.desktop.gpu if found.own is None else found.own.name
    other = "the rented GPU" if found.rent.spec is None else found.rent.spec.name
    between = "" if one.low == one.high else f" ({float(one.low):.2f} to {float(one.high):.2f} by other figures)"
    return f"By {one.rests} an hour of {own} does {float(one.ratio):.2f} hours of {other}{between}."
