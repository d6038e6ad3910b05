"""Gives the answer of `cost` as plain values and as CSV, with exact amounts and quantities as decimal text.

Groups add up to the total. There are also ranges, projections and the balances of prepaid accounts. Other
programs read the decimal text in files.
"""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from fractions import Fraction
from io import StringIO
from typing import TYPE_CHECKING

from cloudgpu.core.billing.charges import bound_money, money, rounded_to_sum
from cloudgpu.core.billing.cost_groups import CALENDAR, Costs, Grouping
from cloudgpu.core.billing.forecast import BurnPart
from cloudgpu.core.billing.rules import PARTS_PER_NANO
from cloudgpu.core.budgets.credit import CreditReading, credit_left, hourly_spend_now, time_left
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.values.money import NANOS_PER_USD, Money, hours_text, usd
from cloudgpu.core.values.times import from_iso, iso

if TYPE_CHECKING:
    from cloudgpu.core.billing.cost_groups import CostQuery, CostTotals
    from cloudgpu.core.billing.forecast import BurnByPart, RemainingCost
    from cloudgpu.core.values.currency import Currency
    from cloudgpu.views.documents.money.budgets import CreditDocument
    from cloudgpu.views.documents.money.cost import (
        BurnRate,
        CostDocument,
        CostGroup,
        CostSum,
        GroupName,
        LostCost,
        Projection as ProjectionDocument,
    )

CSV_COLUMNS = (
    "group", "name", "hours", "usd", "low_usd", "high_usd", "on_demand_usd", "savings_usd", "without_price", "marks",
    "amount", "currency", "per_usd", "rate_as_of", "since", "until", "as_of", "tz",
)  # fmt: skip
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet runs text that begins so: OWASP, CSV injection


def group_names(
    keys: Iterable[str], machines: Iterable[Machine], query: CostQuery, labels: Mapping[str, str] | None = None
) -> dict[str, GroupName]:
    """Return the name of each group by its key, and a machine's provider and state; reads the machines once.

    `labels` are the names of jobs, by group key.
    """
    by_id = {machine.id: machine for machine in machines} if query.by is Grouping.INSTANCE else {}
    return {key: _group_name(key, by_id.get(key), query, (labels or {}).get(key, key)) for key in keys}


def _group_name(key: str, machine: Machine | None, query: CostQuery, label: str) -> GroupName:
    name = period_name(key, query) if query.by in CALENDAR else (machine and machine.name) or label
    return {
        "name": name,
        "provider": None if machine is None else machine.provider,
        "state": None if machine is None else machine.state,
    }


def groups_document(
    costs: Costs, names: Mapping[str, GroupName], by: Grouping, currency: Currency | None
) -> list[CostGroup]:
    """Return the groups with their sums; `names` is from `group_names`.

    Amounts are rounded so that the groups add up to the total to the last digit: each is the difference of two
    rounded sums, so it differs from its own sum by less than a nano-dollar.
    """
    amounts = rounded_to_sum(totals.amount for totals in costs.groups.values())
    on_demand = rounded_to_sum(totals.list_cost for totals in costs.groups.values())
    savings = rounded_to_sum(totals.list_cost - totals.cost_of_runs_with_list_price for totals in costs.groups.values())
    groups = zip(costs.groups.items(), amounts, on_demand, savings, strict=True)
    return [{"group": key, **names[key], **_sums(totals, rounded, by, currency)} for (key, totals), *rounded in groups]


def total_document(totals: CostTotals, by: Grouping, currency: Currency | None) -> CostSum:
    """Return the total of all groups, without names."""
    rounded = [
        money(totals.amount),
        money(totals.list_cost),
        money(totals.list_cost - totals.cost_of_runs_with_list_price),
    ]
    return _sums(totals, rounded, by, currency)


def _sums(totals: CostTotals, rounded: Sequence[Money], by: Grouping, currency: Currency | None) -> CostSum:
    amount, on_demand, savings = rounded
    has_list_cost = totals.list_cost > 0 or totals.cost_of_runs_with_list_price > 0
    is_unpriced = totals.is_unpriced
    return {
        "hours": hours_text(totals.all_billed_us if by is Grouping.RESOURCE else totals.billed_us),
        "usd": None if is_unpriced else usd(amount),
        "low_usd": None if is_unpriced else usd(bound_money(totals.low, totals.amount, amount)),
        "high_usd": None if is_unpriced else usd(bound_money(totals.high, totals.amount, amount)),
        "amount": None if currency is None or is_unpriced else f"{currency.convert(amount):f}",
        "on_demand_usd": usd(on_demand) if has_list_cost else None,
        "savings_usd": usd(savings) if has_list_cost else None,
        "without_on_demand": totals.runs_without_list_price,
        "without_price": totals.without_price,
        "marks": totals.price_marks,
        "reasons": sorted(totals.reasons, key=totals.reasons.__getitem__, reverse=True),
    }


def lost_document(sums: Sequence[int]) -> LostCost:
    """Return what runs that were interrupted, or launches that failed, have cost."""
    low, amount, high, billed_us, count = sums
    return {
        "low_usd": usd(money(low)),
        "usd": usd(money(amount)),
        "high_usd": usd(money(high)),
        "hours": hours_text(billed_us),
        "number": count,
    }


def burn_document(burn: BurnByPart) -> BurnRate:
    """Return the burn rate: USD per hour, in all and by part."""
    parts = {part: usd(money(amount)) for part, amount in burn.by_part.items()}
    return {
        "usd_per_hour": usd(money(burn.total)),
        "machines_usd_per_hour": parts[BurnPart.MACHINES],
        "stopped_usd_per_hour": parts[BurnPart.STOPPED],
        "retained_usd_per_hour": parts[BurnPart.UNATTACHED],
        "without_price": burn.without_price,
    }


def projection_document(totals: CostTotals, remaining: RemainingCost, at: datetime | None) -> ProjectionDocument:
    """Return a projected total: the cost so far and the remaining cost; null where nothing of both has a price."""
    is_unpriced = totals.is_unpriced and not remaining.high
    return {
        "at": None if at is None else iso(at),
        "more_usd": None if is_unpriced else usd(money(remaining.amount)),
        "low_usd": None if is_unpriced else usd(money(totals.low + remaining.low)),
        "usd": None if is_unpriced else usd(money(totals.amount + remaining.amount)),
        "high_usd": None if is_unpriced else usd(money(totals.high + remaining.high)),
        "endless": remaining.without_end,
    }


def with_fees(totals: CostTotals, factor: Fraction) -> str | None:
    """Return the total times `factor` (1 and the fees), as decimal text in USD; None where nothing has a price."""
    return None if totals.is_unpriced else usd(Money(round(Fraction(totals.amount, PARTS_PER_NANO) * factor)))


def period_name(key: str, query: CostQuery) -> str:
    """Return how a period is called: its first day in the zone, or its month."""
    begin = from_iso(key).astimezone(query.zone)
    return f"{begin:%Y-%m}" if query.by is Grouping.MONTH else f"{begin:%Y-%m-%d}"


def to_csv(document: CostDocument) -> str:
    """Return the groups as CSV with a header: decimal points, times in UTC, no total, no formula.

    A text that a spreadsheet would take for a formula begins with an apostrophe.
    """
    buffer = StringIO()
    writer = csv.writer(buffer, lineterminator="\r\n")  # as RFC 4180 has it
    writer.writerow(CSV_COLUMNS)
    writer.writerows(_csv_rows(document))
    return buffer.getvalue()


def _csv_rows(document: CostDocument) -> Iterator[list[str]]:
    currency = document["currency"] or {"code": "USD", "per_usd": "1", "as_of": ""}
    currency_columns = {"currency": currency["code"], "per_usd": currency["per_usd"], "rate_as_of": currency["as_of"]}
    dates = {"since": document["since"], "until": document["until"], "as_of": document["as_of"], "tz": document["tz"]}
    for group in document["groups"]:
        amount = group["usd"] if document["currency"] is None else group["amount"]
        values: Mapping[str, object] = {**group, **currency_columns, **dates, "amount": amount}
        yield [_cell(name, values[name]) for name in CSV_COLUMNS]


def _cell(name: str, value: object) -> str:
    text = "" if value is None else str(value)
    is_number = name.endswith("usd") or name in ("hours", "amount", "without_price")
    return f"'{text}" if not is_number and text.startswith(FORMULA_STARTS) else text


QUANTITY_DIGITS = 15  # decimal places of quantities: at 1000 dollars a unit, the rest is worth less than a nano-dollar


def decimal_text(value: Fraction | Money | int) -> str:
    """Return plain decimal text, always with a point and never with an exponent; quantities to 15 places."""
    exact = Fraction(value.nanos, NANOS_PER_USD) if isinstance(value, Money) else Fraction(value)
    scaled = round(abs(exact) * 10**QUANTITY_DIGITS)
    integer_part, decimals = divmod(scaled, 10**QUANTITY_DIGITS)
    return f"{'-' if exact < 0 and scaled else ''}{integer_part}.{f'{decimals:0{QUANTITY_DIGITS}d}'.rstrip('0') or '0'}"


def focus_time(moment: datetime) -> str:
    """Return a time as FOCUS writes it, `YYYY-MM-DDTHH:mm:ssZ`: fractions of a second are left out."""
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}" if moment.year > 999 else moment.isoformat()  # noqa: PLR2004


def credit_document(reading: CreditReading, hourly_cost: Money, now: datetime) -> CreditDocument:
    """Return the balance of a prepaid account, and when it runs out if every hour costs `hourly_cost`.

    Since the balance was read, the higher of `hourly_cost` and the hourly cost at that time is assumed.
    """
    balance, credit = credit_left(reading.credit, max(reading.hourly, hourly_cost), now), reading.credit
    duration = time_left(balance, hourly_cost)
    return {
        "account": reading.account,
        "provider": reading.provider,
        "left_usd": usd(credit.remaining),
        "usd_per_hour": usd(hourly_cost),
        "as_of": iso(credit.as_of),
        "ends_at": None if duration is None else iso(now + duration),
        "page": credit.payment_page,
    }


def credits_document(
    readings: Iterable[CreditReading], machines: Collection[Machine], now: datetime
) -> list[CreditDocument]:
    """Return the balance of each prepaid account, and when it runs out with what runs there now."""
    return [credit_document(reading, hourly_spend_now(reading, machines), now) for reading in readings]
