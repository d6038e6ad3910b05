"""The comparison of the cloud with a desktop in sentences: both costs so far, and the break-even."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction
from typing import TYPE_CHECKING

from cloudgpu.core.advice.break_even import DAY
from cloudgpu.core.advice.compare import Case, CaseCosts, History, OwnMachineWork
from cloudgpu.core.advice.desktop import Depreciation, Desktop, OwnershipCost
from cloudgpu.core.catalog.gpus import Work
from cloudgpu.core.values.money import ZERO, Money, usd
from cloudgpu.core.values.naming import counted

if TYPE_CHECKING:
    from cloudgpu.core.values.currency import Currency
    from cloudgpu.views.documents.parts import DesktopLine

HOUR = 3600
_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")


@dataclass(frozen=True, slots=True)
class CompareFacts:
    """All that the words are made of.

    `history` and `cases` are empty where nothing ran on a cloud. `since` and `until` are what was asked for; `goes_on`:
    that period is not over. `worth` is what the desktop could be sold for by now, by `worth_by`. `ledger_ahead` is when
    the ledger's last line was written, where this computer's clock is before that. `only_local`: only local machines
    ran, and stand for a cloud's; `local_names` names local ones that do not. `desktop_memory` is its GPU's, in GiB.
    """

    now: datetime
    desktop: Desktop
    desktop_memory: float | None
    work: Work
    history: History | None
    cases: Mapping[Case, CaseCosts]
    own: Sequence[OwnMachineWork]
    unpriced: Sequence[str]
    since: datetime | None
    until: datetime | None
    goes_on: bool
    worth: Money = ZERO
    worth_by: Depreciation = Depreciation.STRAIGHT
    ledger_ahead: datetime | None = None
    only_local: bool = False
    local_names: Sequence[str] = ()
    unknown_gpus: Sequence[str] = ()

    @property
    def expected(self) -> CaseCosts:
        """The expected case."""
        return self.cases[Case.EXPECTED]

    @property
    def has_no_price(self) -> bool:
        """Whether nothing at all of what the cloud billed has a known price."""
        return bool(self.unpriced) and not self.cases[Case.HIGH].cloud


@dataclass(frozen=True, slots=True)
class AmountFormat:
    """Shows amounts: in dollars, or in a currency with its code."""

    currency: Currency | None = None

    def __call__(self, amount: Money) -> str:
        """Return an amount; one below 1 with two more digits."""
        if self.currency is None:
            return amount.text(_FINE if amount and abs(amount.dollars) < 1 else 2)
        more = 2 if amount and abs(self.currency.exact(amount)) < 1 else 0
        return f"{self.currency.text(amount, more)} {self.currency.code}"


_FINE = 4  # digits of cents
_SOME = 60  # seconds: of less nobody needs to know


def sentence(story: CompareFacts, amounts: AmountFormat) -> str:
    """Return what a person would say: what both cost so far, and when they meet."""
    if story.history is None:
        return _no_usage_sentence(story, amounts)
    return f"{_cost_so_far(story, amounts)} {_meeting(story, amounts)}".strip()


def _no_usage_sentence(story: CompareFacts, amounts: AmountFormat) -> str:
    period = _period(story, "before")
    if not story.own:
        when = f" {period}" if period else " yet"
        by = "By this computer's clock nothing" if story.ledger_ahead else "Nothing"
        return f"{by} has run on a cloud{when}, so there is nothing to compare."
    return f"Nothing has run on a cloud{f' {period}' if period else ''}. {own_sentence(story.own, amounts)}"


def _period(story: CompareFacts, before: str = "until") -> str:
    zone = story.history.zone if story.history else None
    ends = (story.since, None if story.goes_on else story.until)
    since, until = (end and f"{end.astimezone(zone):%Y-%m-%d}" for end in ends)
    if since and until:
        return f"from {since} until {until}"
    return f"since {since}" if since else f"{before} {until}" if until else ""


def _cost_so_far(story: CompareFacts, amounts: AmountFormat) -> str:
    side, period = story.expected, _period(story)
    start = capital(period) if period else "So far"
    cost = side.owned
    owned = f"{desktops(story.desktop, cost.number)} doing the same work would have cost {amounts(cost.total)}"
    first = amounts(story.desktop.purchase.scaled(Fraction(cost.number)))
    aside = f" ({first} on the first day)" if first != amounts(cost.total) else ", all of it on the first day"
    if story.has_no_price:
        return f"{start}, what the cloud has cost is not known: none of it has a price. {capital(owned)}{aside}."
    least = "at least " if story.unpriced else ""
    if not side.worked:
        owned = f"{desktops(story.desktop, cost.number)} would have cost {amounts(cost.total)}"
        idle = f", for {hours_text(_billed_hours(story))} in which no GPU is known to have worked"
        return f"{start} the cloud has cost {least}{amounts(side.cloud)}{idle}; {owned}{aside}."
    return f"{start} the cloud has cost {least}{amounts(side.cloud)}; {owned}{aside}."


def _meeting(story: CompareFacts, amounts: AmountFormat) -> str:
    side = story.expected
    if story.has_no_price:
        return ""
    if side.cloud_is_costlier:
        return _costlier_since_sentence(story)
    if not story.goes_on:
        return f"In that time the desktop was more expensive, by {amounts(side.owned.total - side.cloud)}."
    if side.pace is None:
        return "Less than a day of history does not show a trend."
    pace = pace_name(story)
    early, late = story.cases[Case.HIGH], story.cases[Case.LOW]
    soon = "now" if early.cloud_is_costlier else _day(story, early.projected_break_even)
    if side.projected_break_even is None:
        they = "they have met" if soon == "now" else f"they meet on {soon}"
        maybe = "" if soon == "never" else f"; taking all that is not known for the desktop, {they}"
        return f"At {pace} they never meet: the cloud stays the cheaper one{maybe}."
    found, last = _day(story, side.projected_break_even), _day(story, late.projected_break_even)
    between = "" if (soon, last) == (found, found) else f" (between {soon} and {last})"
    return f"At {pace} they meet on {found}{between}.{_rerun_sentence(story)}"


def _rerun_sentence(story: CompareFacts) -> str:
    """Return that the desktop, bought anew, is the dearer one once more, where it will be."""
    if story.expected.desktop_costlier is None:
        return ""
    since, until = story.expected.desktop_costlier
    long = f"until {_day(story, until)}" if until else "from then on"
    return f" Replaced on {_day(story, since)}, the desktop is more expensive again {long}."


def _costlier_since_sentence(story: CompareFacts) -> str:
    """Return since when the cloud is more expensive, with the cases in which it is not yet."""
    side, early, late = story.expected, story.cases[Case.HIGH], story.cases[Case.LOW]
    since = _end_day(story, side.costlier_since)
    first, last = (
        _end_day(story, early.costlier_since),
        _end_day(story, late.costlier_since) if late.cloud_is_costlier else "not yet",
    )
    between = "" if (first, last) == (since, since) else f" (between {first} and {last})"
    if last == "not yet":
        between = f" (at the earliest since {first}; where all that is not known is for the cloud, not yet)"
    return f"The cloud has cost more than the desktop since {since}{between}."


def pace_name(story: CompareFacts) -> str:
    """Return of how many days the pace is that a projection goes on with."""
    history = story.history
    days = 30 if history is None or history.elapsed >= 30 * DAY else history.elapsed // DAY
    return "the pace of the last day" if days == 1 else f"the pace of the last {days} days"


def _day(story: CompareFacts, at: datetime | None) -> str:
    zone = story.history.zone if story.history else None
    return "never" if at is None else f"{at.astimezone(zone):%Y-%m-%d}"


def _end_day(story: CompareFacts, at: datetime | None) -> str:
    """Return the day that ends at this time, or in which it lies."""
    return _day(story, None if at is None else at - timedelta(microseconds=1))


def capital(text: str) -> str:
    """Return a text as a sentence begins."""
    return f"{text[:1].upper()}{text[1:]}"


def desktops(desktop: Desktop, number: int) -> str:
    """Return `a desktop with one RTX 3090`, `three desktops with two RTX 3090 each`."""
    cards = f"{count(desktop.gpus)} {desktop.gpu}"
    return f"a desktop with {cards}" if number == 1 else f"{count(number)} desktops with {cards} each"


def count(number: int) -> str:
    """Return a small number as a word."""
    return _NUMBERS[number] if number < len(_NUMBERS) else f"{number:,}"


def hours_text(seconds: float) -> str:
    """Return `30.0 hours`, `12 minutes`."""
    if seconds < HOUR:
        minutes = round(seconds / 60)
        return counted(minutes, "minute") if minutes else "less than a minute"
    return f"{seconds / HOUR:,.1f} hour{'s'[: round(seconds / 360) != 10]}"  # noqa: PLR2004  (one hour)


def _billed_hours(story: CompareFacts) -> float:
    return sum(sum(machine.total) for machine in story.history.machines) if story.history else 0.0


def own_sentence(own: Sequence[OwnMachineWork], amounts: AmountFormat) -> str:
    """Return what the user's own machines did, and what the same would have cost on a cloud."""
    seconds = sum(work.worked.total_seconds() for work in own)
    power = [work.electricity for work in own if work.electricity is not None]
    unknown, who = sum(work.unknown.total_seconds() for work in own), f"Your own machine{'s'[: len(own) != 1]}"
    if unknown >= _SOME and seconds < 1:
        return f"{who} ran for {hours_text(unknown)} of which nobody knows whether they were work."
    text = f"{who} worked for {hours_text(seconds)}"
    if power:
        least = "" if len(power) == len(own) else "at least "
        text += f", with {least}{amounts(sum(power, ZERO))} of electricity"
    clouds = [work.cloud for work in own if work.cloud is not None]
    if clouds and any(clouds):
        least = "" if len(clouds) == len(own) else "at least "
        text += f"; the same work would have cost {least}{amounts(sum(clouds, ZERO))} at the cheapest on-demand price"
    return f"{text}; of {hours_text(unknown)} nobody knows." if unknown >= _SOME else f"{text}."


def desktop_value(desktop: Desktop, cost: OwnershipCost, when: str) -> DesktopLine:
    """Return what a desktop would have cost; `when` is "by now" or "by then"."""
    message = _would_have_cost(desktop, cost, when)
    return {
        "name": desktop.name,
        "gpu": desktop.gpu,
        "desktops": cost.number,
        "hours": f"{cost.worked / timedelta(hours=1):.4f}",
        "electricity_usd": usd(cost.electricity),
        "purchase_usd": usd(cost.purchase),
        "total_usd": usd(cost.total),
        "source": desktop.source,
        "as_of": desktop.as_of.isoformat(),
        "sentence": message,
    }


def _would_have_cost(desktop: Desktop, cost: OwnershipCost, when: str) -> str:
    amounts, which = AmountFormat(), desktops(desktop, cost.number)
    first, more = amounts(desktop.purchase.scaled(Fraction(cost.number))), "cloudgpu compare says more"
    if not cost.worked:
        paid = "all of it" if first == amounts(cost.total) else f"{first} of it"
        message = f"{capital(which)} would have cost {amounts(cost.total)} {when}"
        return f"{message}, {paid} on the first day; {more}."
    message = f"If every billed hour was work, {which} doing the same would have cost {amounts(cost.total)} {when}"
    return f"{message}, {first} of it on the first day; {more}."
