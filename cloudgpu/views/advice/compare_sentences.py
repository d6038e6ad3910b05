"""The comparison of the cloud with a desktop in sentences: both costs so far, and the break-even."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction
from typing import TYPE_CHECKING

from cloudgpu.core.advice.compare import Case, CaseCosts, History, OwnMachineWork
from cloudgpu.core.advice.desktop import Depreciation, Desktop, OwnershipCost
from cloudgpu.core.catalog.gpus import Workload
from cloudgpu.core.values.money import ZERO, Money, usd
from cloudgpu.core.values.naming import NUMBER_WORDS, counted
from cloudgpu.core.values.times import DAY

if TYPE_CHECKING:
    from cloudgpu.core.values.currency import Currency
    from cloudgpu.views.documents.parts import DesktopLine

HOUR_S = 3600


@dataclass(frozen=True, slots=True)
class CompareFacts:
    """What the sentences of a comparison are made of.

    `history` and `cases` are empty where nothing ran on a cloud. `since` and `until` are the requested period;
    `is_ongoing`: it is not over. `resale_value` is what the desktop could be sold for now, by `resale_depreciation`.
    `ledger_ahead` is when the ledger's last line was written, if this computer's clock is behind that.
    `uses_local_as_rented`: only local machines ran, and count as if they were a cloud's; `local_names` are those that
    do not count.
    `unpriced` are the names of what has no known price, `unknown_gpus` those of machines whose GPUs are not known.
    `desktop_memory` is the memory of the desktop's GPU in GiB.
    """

    now: datetime
    desktop: Desktop
    desktop_memory: float | None
    workload: Workload
    history: History | None
    cases: Mapping[Case, CaseCosts]
    own_machines: Sequence[OwnMachineWork]
    unpriced: Sequence[str]
    since: datetime | None
    until: datetime | None
    is_ongoing: bool
    resale_value: Money = ZERO
    resale_depreciation: Depreciation = Depreciation.STRAIGHT
    ledger_ahead: datetime | None = None
    uses_local_as_rented: bool = False
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
            return amount.text(_CENT_DIGITS if amount and abs(amount.dollars) < 1 else 2)
        extra_digits = 2 if amount and abs(self.currency.convert(amount)) < 1 else 0
        return f"{self.currency.text(amount, extra_digits)} {self.currency.code}"


_CENT_DIGITS = 4  # digits after the point, for amounts below a dollar
_MIN_UNKNOWN_S = 60  # shorter unknown times are not mentioned


def sentence(facts: CompareFacts, amounts: AmountFormat) -> str:
    """Return the comparison for people: what both cost so far, and the break-even."""
    if facts.history is None:
        return _no_usage_sentence(facts, amounts)
    return f"{_cost_so_far(facts, amounts)} {_break_even_sentence(facts, amounts)}".strip()


def _no_usage_sentence(facts: CompareFacts, amounts: AmountFormat) -> str:
    period = _period(facts, "before")
    if not facts.own_machines:
        when = f" {period}" if period else " yet"
        nothing_text = "By this computer's clock nothing" if facts.ledger_ahead else "Nothing"
        return f"{nothing_text} has run on a cloud{when}, so there is nothing to compare."
    return (
        f"Nothing has run on a cloud{f' {period}' if period else ''}. "
        f"{own_machines_sentence(facts.own_machines, amounts)}"
    )


def _period(facts: CompareFacts, until_word: str = "until") -> str:
    zone = facts.history.zone if facts.history else None
    period = (facts.since, None if facts.is_ongoing else facts.until)
    since, until = (end and f"{end.astimezone(zone):%Y-%m-%d}" for end in period)
    if since and until:
        return f"from {since} until {until}"
    return f"since {since}" if since else f"{until_word} {until}" if until else ""


def _cost_so_far(facts: CompareFacts, amounts: AmountFormat) -> str:
    costs, period = facts.expected, _period(facts)
    start = capitalized(period) if period else "So far"
    ownership, desktop = costs.owned, desktops_text(facts.desktop, costs.owned.number)
    owned = f"{desktop} doing the same work would have cost {amounts(ownership.total)}"
    purchase_text = amounts(facts.desktop.purchase.scaled(Fraction(ownership.number)))
    first_day = (
        f" ({purchase_text} on the first day)"
        if purchase_text != amounts(ownership.total)
        else ", all of it on the first day"
    )
    if facts.has_no_price:
        return (
            f"{start}, what the cloud has cost is not known: none of it has a price. {capitalized(owned)}{first_day}."
        )
    at_least = "at least " if facts.unpriced else ""
    if not costs.worked:
        owned = f"{desktop} would have cost {amounts(ownership.total)}"
        idle = f", for {hours_text(_billed_seconds(facts))} in which no GPU is known to have worked"
        return f"{start} the cloud has cost {at_least}{amounts(costs.cloud)}{idle}; {owned}{first_day}."
    return f"{start} the cloud has cost {at_least}{amounts(costs.cloud)}; {owned}{first_day}."


def _break_even_sentence(facts: CompareFacts, amounts: AmountFormat) -> str:
    costs = facts.expected
    if facts.has_no_price:
        return ""
    if costs.cloud_is_costlier:
        return _costlier_since_sentence(facts)
    if not facts.is_ongoing:
        return f"In that time the desktop was more expensive, by {amounts(costs.owned.total - costs.cloud)}."
    if costs.pace is None:
        return _early_sentence(facts, amounts)
    pace = pace_name(facts)
    early_case, late_case = facts.cases[Case.HIGH], facts.cases[Case.LOW]
    earliest = "now" if early_case.cloud_is_costlier else _day(facts, early_case.projected_break_even)
    if costs.projected_break_even is None:
        meeting_text = "they have met" if earliest == "now" else f"they meet on {earliest}"
        early_case_text = (
            "" if earliest == "never" else f"; taking all that is not known for the desktop, {meeting_text}"
        )
        return f"At {pace} they never meet: the cloud stays the cheaper one{early_case_text}."
    expected_day, latest = _day(facts, costs.projected_break_even), _day(facts, late_case.projected_break_even)
    range_text = "" if (earliest, latest) == (expected_day, expected_day) else f" (between {earliest} and {latest})"
    return f"At {pace} they meet on {expected_day}{range_text}.{_costlier_again_sentence(facts)}"


def _early_sentence(facts: CompareFacts, amounts: AmountFormat) -> str:
    """Return when a day of history will show a trend, and what the hours so far are worth."""
    history, cloud, billed_s = facts.history, facts.expected.cloud, round(_billed_seconds(facts))
    if history is None:
        return ""
    trend_at = (history.begin + DAY).astimezone(history.zone)
    advice = f"A trend needs a day of history, so compare again after {trend_at:%Y-%m-%d %H:%M %Z}"
    per_hour = cloud.scaled(Fraction(HOUR_S, billed_s)) if billed_s else ZERO
    if not per_hour or facts.unpriced:
        return f"{advice}."
    price = facts.desktop.purchase.scaled(Fraction(facts.expected.owned.number))
    return (
        f"{advice}; so far an hour came to {amounts(per_hour)}, and for the desktop's {amounts(price)} you would get "
        f"about {_rounded_to_two_digits(Fraction(price.nanos, per_hour.nanos)):,} such hours."
    )


def _rounded_to_two_digits(number: Fraction) -> int:
    """Return a number rounded to two significant digits: no more are certain from the hours so far."""
    return int(float(f"{float(number):.1e}"))


def _costlier_again_sentence(facts: CompareFacts) -> str:
    """Return that the desktop will be more expensive again once it is replaced; empty where it will not."""
    if facts.expected.desktop_costlier is None:
        return ""
    since, until = facts.expected.desktop_costlier
    duration = f"until {_day(facts, until)}" if until else "from then on"
    return f" Replaced on {_day(facts, since)}, the desktop is more expensive again {duration}."


def _costlier_since_sentence(facts: CompareFacts) -> str:
    """Return since when the cloud is more expensive, with the cases in which it is not yet."""
    costs, early_case, late_case = facts.expected, facts.cases[Case.HIGH], facts.cases[Case.LOW]
    since = _end_day(facts, costs.costlier_since)
    earliest, latest = (
        _end_day(facts, early_case.costlier_since),
        _end_day(facts, late_case.costlier_since) if late_case.cloud_is_costlier else "not yet",
    )
    range_text = "" if (earliest, latest) == (since, since) else f" (between {earliest} and {latest})"
    if latest == "not yet":
        range_text = f" (at the earliest since {earliest}; where all that is not known is for the cloud, not yet)"
    return f"The cloud has cost more than the desktop since {since}{range_text}."


def pace_name(facts: CompareFacts) -> str:
    """Return the name of the pace that a projection continues: `the pace of the last 30 days`."""
    history = facts.history
    days = 30 if history is None or history.elapsed >= 30 * DAY else history.elapsed // DAY
    return "the pace of the last day" if days == 1 else f"the pace of the last {days} days"


def _day(facts: CompareFacts, at: datetime | None) -> str:
    zone = facts.history.zone if facts.history else None
    return "never" if at is None else f"{at.astimezone(zone):%Y-%m-%d}"


def _end_day(facts: CompareFacts, at: datetime | None) -> str:
    """Return the day that ends at this time, or in which it lies."""
    return _day(facts, None if at is None else at - timedelta(microseconds=1))


def capitalized(text: str) -> str:
    """Return a text with a capital first letter."""
    return f"{text[:1].upper()}{text[1:]}"


def desktops_text(desktop: Desktop, number: int = 1) -> str:
    """Return `a desktop with one RTX 3090`, `three desktops with two RTX 3090 each`; 0: without a number."""
    cards = f"{count_text(desktop.gpus // desktop.computers)} {desktop.gpu}"
    number *= desktop.computers
    if number == 1:
        return f"a desktop with {cards}"
    return f"{count_text(number)} desktops with {cards} each" if number else f"desktops with {cards} each"


def count_text(number: int) -> str:
    """Return a small number as a word."""
    return NUMBER_WORDS[number] if number < len(NUMBER_WORDS) else f"{number:,}"


def hours_text(seconds: float) -> str:
    """Return `30.0 hours`, `12 minutes`."""
    if seconds < HOUR_S:
        minutes = round(seconds / 60)
        return counted(minutes, "minute") if minutes else "less than a minute"
    return f"{seconds / HOUR_S:,.1f} hour{'s'[: round(seconds / 360) != 10]}"  # noqa: PLR2004  (one hour)


def _billed_seconds(facts: CompareFacts) -> float:
    return sum(sum(machine.used_seconds) for machine in facts.history.machines) if facts.history else 0.0


def own_machines_sentence(own_work: Sequence[OwnMachineWork], amounts: AmountFormat) -> str:
    """Return what the user's own machines did, and what the same would have cost on a cloud."""
    seconds = sum(work.worked.total_seconds() for work in own_work)
    electricity_costs = [work.electricity for work in own_work if work.electricity is not None]
    unknown, subject = (
        sum(work.unknown.total_seconds() for work in own_work),
        f"Your own machine{'s'[: len(own_work) != 1]}",
    )
    if unknown >= _MIN_UNKNOWN_S and seconds < 1:
        return f"{subject} ran for {hours_text(unknown)} of which nobody knows whether they were work."
    text = f"{subject} worked for {hours_text(seconds)}"
    if electricity_costs:
        at_least = "" if len(electricity_costs) == len(own_work) else "at least "
        text += f", with {at_least}{amounts(sum(electricity_costs, ZERO))} of electricity"
    cloud_costs = [work.cloud for work in own_work if work.cloud is not None]
    if cloud_costs and any(cloud_costs):
        at_least = "" if len(cloud_costs) == len(own_work) else "at least "
        cloud_text = f"{at_least}{amounts(sum(cloud_costs, ZERO))}"
        text += f"; the same work would have cost {cloud_text} at the cheapest on-demand price"
    return f"{text}; of {hours_text(unknown)} nobody knows." if unknown >= _MIN_UNKNOWN_S else f"{text}."


def desktop_document(desktop: Desktop, cost: OwnershipCost, when: str) -> DesktopLine:
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
    amounts, desktops_name = AmountFormat(), desktops_text(desktop, cost.number)
    purchase_text, hint = amounts(desktop.purchase.scaled(Fraction(cost.number))), "cloudgpu compare says more"
    if not cost.worked:
        paid_first = "all of it" if purchase_text == amounts(cost.total) else f"{purchase_text} of it"
        message = f"{capitalized(desktops_name)} would have cost {amounts(cost.total)} {when}"
        return f"{message}, {paid_first} on the first day; {hint}."
    message = (
        f"If every billed hour was work, {desktops_name} doing the same would have cost {amounts(cost.total)} {when}"
    )
    return f"{message}, {purchase_text} of it on the first day; {hint}."
