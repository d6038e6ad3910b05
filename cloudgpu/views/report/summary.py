"""The summary of a report in sentences, the most important ones first; made from the report's document alone."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING

from cloudgpu.core.alerts.findings import whole_month
from cloudgpu.core.catalog.catalog import OLD_PRICE_AGE
from cloudgpu.core.model.machine import not_none
from cloudgpu.core.values.naming import counted, first_few
from cloudgpu.core.values.times import from_iso
from cloudgpu.views.report.formatting import Amounts, ZoneFormat, escape_invisible
from cloudgpu.views.report.svg import MONTHS

if TYPE_CHECKING:
    from cloudgpu.views.documents.money.report import ReportDocument

_UNDER_A_MINUTE = "less than a minute"
MAX_NAMES = 5  # names in a list
STALE_AFTER = timedelta(days=1)  # an older sync says little about the present


def summary(document: ReportDocument) -> list[str]:
    """Return the sentences."""
    amounts, zone_format = Amounts(document), ZoneFormat(document["tz"])
    sentences = [
        *_integrity_sentences(document),
        _spending_sentence(document, amounts, zone_format),
        *_missing_sentences(document),
        *_stale_sentences(document, zone_format),
        *filter(None, [document["comparison"].get("sentence")]),  # with a desktop
        *_burn_sentences(document, amounts),
        *_budget_sentences(document, amounts, zone_format),
        *_prepaid_sentences(document, amounts, zone_format),
        *_idle_sentences(document, amounts),
        *_savings_sentences(document, amounts),
        *_idle_cost_sentences(document, amounts),
        *_old_price_sentences(document),
    ]
    return [escape_invisible(sentence) for sentence in sentences]


def _integrity_sentences(document: ReportDocument) -> Iterator[str]:
    if document["about"]["integrity_problem"]:
        problem = document["about"]["integrity_problem"]
        yield f"Amounts may be incomplete: the ledger failed its integrity check. {problem}"


def _stale_sentences(document: ReportDocument, zone_format: ZoneFormat) -> Iterator[str]:
    synced_at, as_of = document["about"]["view_as_of"], document["as_of"]
    if synced_at is not None and from_iso(as_of) - from_iso(synced_at) >= STALE_AFTER:
        yield f"Not every machine was queried since {zone_format(synced_at)}: those count as they were then."


def _spending_sentence(document: ReportDocument, amounts: Amounts, zone_format: ZoneFormat) -> str:
    total, about = document["total"], document["about"]
    period_text = _period_text(document, zone_format)
    if not (about["machines"] or document["days"] or total["without_price"]):
        return (
            "Nothing has been spent yet: the ledger knows of no machine."
            if not period_text
            else f"Nothing was spent{period_text}."
        )
    period = period_text or (f" since {zone_format.day(about['since'])}" if about["since"] else "")
    runs_text, subject = _runs_and_subject(total["hours"], about["machines"], period)
    if total["usd"] is None:
        return f"{runs_text}; what that cost is not known, as nothing of it has a price."
    range_text, low, high = "", not_none(total["low_usd"]), not_none(total["high_usd"])
    if low != high:
        range_text = f" (between {_prose(amounts, low)} and {_prose(amounts, high)})"
    at_least = "at least " if total["without_price"] else ""
    return f"{runs_text}, and {subject} {at_least}{_prose(amounts, total['usd'])}{range_text}."


def _runs_and_subject(hours: str, machines: int, period_text: str) -> tuple[str, str]:
    """Return the first half of the sentence (how many machines ran, for how long) and its subject.

    Retained resources cost money even if no machine ran.
    """
    if not machines:
        return f"No machine ran{period_text}", "retained disks and images cost"
    machines_text = "1 machine" if machines == 1 else f"{machines:,} machines"
    return f"{machines_text} ran for {_hours(hours)}{period_text}", "all of it cost"


def _period_text(document: ReportDocument, zone_format: ZoneFormat) -> str:
    """Return the requested period as text, up to now at most; empty for all time."""
    begin = document["since"]
    since, until = (None if at is None else from_iso(at) for at in (begin, document["until"]))
    is_over = until is not None and until <= from_iso(document["as_of"])
    if begin is not None and whole_month(since, until, zone_format.zone):
        month = zone_format.date(begin)
        return f" in {MONTHS[month.month - 1]} {month.year}{'' if is_over else ' so far'}"
    since_text = f" from {zone_format.begin(begin)}" if begin else ""
    return f"{since_text} until {zone_format(document['until'])}" if is_over else since_text


def _missing_sentences(document: ReportDocument) -> Iterator[str]:
    number = document["total"]["without_price"]
    if number:
        names = document["unpriced"]
        have = "charge has no known price and is" if number == 1 else "charges have no known price and are"
        yield f"{number} {have} in no sum: {first_few(names, MAX_NAMES)}."


def _burn_sentences(document: ReportDocument, amounts: Amounts) -> Iterator[str]:
    burn, projected = document["burn"], document["projected"]
    unpriced_resources = sum(idle_resource["usd_per_month"] is None for idle_resource in document["idle_resources"])
    if burn["without_price"] > unpriced_resources:
        yield "Of what runs now, something has no known price."
    if not Decimal(burn["usd_per_hour"]):
        return
    projection_text = ""
    at_least = "at least " if burn["without_price"] else ""
    projected_usd = None if projected is None else projected["end_of_month"]["usd"]
    if projected_usd is not None:
        sum_at_least = "at least " if burn["without_price"] or document["total"]["without_price"] else ""
        projection_text = f"; at that rate the sum is {sum_at_least}{_prose(amounts, projected_usd)} at the month's end"
    yield f"Now it costs {at_least}{amounts.prose(burn['usd_per_hour'], 2)} an hour{projection_text}."


def _budget_sentences(document: ReportDocument, amounts: Amounts, zone_format: ZoneFormat) -> Iterator[str]:
    for budget in document["budgets"]:
        if Decimal(budget["remaining_usd"]) <= 0:
            yield f"The budget {budget['name']} of {_prose(amounts, budget['limit_usd'])} is used up."
        elif budget["exhausted_at"] is not None:
            yield (
                f"The budget {budget['name']} is empty on {zone_format.date(budget['exhausted_at'])} at this rate: "
                f"{_prose(amounts, budget['remaining_usd'])} of {_prose(amounts, budget['limit_usd'])} are left."
            )


def _prepaid_sentences(document: ReportDocument, amounts: Amounts, zone_format: ZoneFormat) -> Iterator[str]:
    for account in document["prepaid"]:
        end = ""
        if account["ends_at"] is not None:
            rate = amounts.prose(account["usd_per_hour"], 2)
            end = f"; at {rate} an hour it ends {zone_format(account['ends_at'])}, and its data is deleted then"
        remaining, as_of = _prose(amounts, account["left_usd"]), zone_format(account["as_of"])
        yield f"The credit of {account['account']} was {remaining} at {as_of}{end}."


def _idle_sentences(document: ReportDocument, amounts: Amounts) -> Iterator[str]:
    idle = document["idle"]
    unknown = Decimal(idle["unknown_hours"])
    if idle["usd"] is not None and Decimal(idle["usd"]):
        unknown_text = f"; of {_hours(idle['unknown_hours'])} nobody knows" if unknown >= 1 else ""
        at_most = f" (at most {_prose(amounts, not_none(idle['high_usd']))})" if idle["high_usd"] != idle["usd"] else ""
        hours = f"{_hours(idle['hours'])} in which nobody used a machine"
        yield f"Of what was spent, {_prose(amounts, idle['usd'])}{at_most} went into {hours}{unknown_text}."
    elif unknown >= 1 and Decimal(idle["high_usd"] or 0):
        yield f"Whether machines were used is not known for {_hours(idle['unknown_hours'])}."


def _savings_sentences(document: ReportDocument, amounts: Amounts) -> Iterator[str]:
    stops, spot = document["savings"]["stops"], document["savings"]["spot"]
    if stops["number"]:
        times = "once" if stops["number"] == 1 else f"{stops['number']} times"
        saved = "what that saved is not known"
        if stops["usd"] is not None:
            unpriced_text = f" ({stops['without_price']} without a known price)" if stops["without_price"] else ""
            saved = f"which saved up to {_prose(amounts, stops['usd'])}{unpriced_text}"
        yield f"Policies stopped machines {times}, {saved}."
    if spot["usd"] is not None and Decimal(spot["usd"]):
        less_or_more = "less" if Decimal(spot["usd"]) > 0 else "more"
        amount, on_demand = (
            _prose(amounts, spot["usd"].removeprefix("-")),
            _prose(amounts, not_none(spot["on_demand_usd"])),
        )
        yield f"Spot machines cost {amount} {less_or_more} than the same hours on demand ({on_demand})."


def _idle_cost_sentences(document: ReportDocument, amounts: Amounts) -> Iterator[str]:
    idle_resources = document["idle_resources"]
    if not idle_resources:
        return
    prices = [
        Decimal(resource["usd_per_month"]) for resource in idle_resources if resource["usd_per_month"] is not None
    ]
    resources = counted(len(idle_resources), "resource")
    amount = f" {_prose(amounts, f'{sum(prices):f}')} a month" if prices else ""
    unpriced_text = (
        f" ({len(idle_resources) - len(prices)} without a known price)" if len(prices) < len(idle_resources) else ""
    )
    costs = "costs" if len(idle_resources) == 1 else "cost"
    yield f"{resources} without a running machine {costs}{amount or ' money'}{unpriced_text}."


def _prose(amounts: Amounts, usd: str) -> str:
    """Return an amount for a sentence: small ones with two more digits."""
    return amounts.prose(usd, 0 if abs(Decimal(usd)) >= 1 else 2)


def _hours(text: str) -> str:
    """Return hours for a sentence: less than one hour in minutes."""
    hours = Decimal(text)
    if hours >= 1:
        return f"{hours:,.1f} hours"
    minutes = round(hours * 60)
    return _UNDER_A_MINUTE if not minutes else f"{minutes} minutes" if minutes > 1 else "a minute"


def _old_price_sentences(document: ReportDocument) -> Iterator[str]:
    for price in document["prices"]:
        if price["old"] * 2 > price["items"]:
            yield (
                f"Most listed prices of {price['provider']} are dated more than {OLD_PRICE_AGE.days} days ago, "
                f"the newest {price['newest']}: cloudgpu catalog refresh --provider {price['provider']}"
            )
