"""Lines of the bill as plain rows of our own, for spreadsheets and programs."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, TextIO

from cloudgpu.core.billing.line_items import LineItem
from cloudgpu.core.billing.rules import PARTS_PER_NANO
from cloudgpu.core.values.money import NANOS_PER_USD, Money, usd
from cloudgpu.core.values.times import iso
from cloudgpu.views.cost import FORMULA_STARTS, decimal
from cloudgpu.views.exports.focus import provider_resource_id

COLUMNS = (
    "begin end id name resource resource_id what provider account region zone market owner project job seconds units "
    "per usd_per_unit usd low_usd high_usd on_demand_usd estimate price_source price_basis price_as_of reasons"
).split()


def charge_document(item: LineItem) -> dict[str, Any]:
    """Return one line of the bill: times in UTC, money as decimal text in USD, null for what is not known.

    `usd` is null where no price is known. `job` is the id of the job that the machine was for, `shared` or `idle`.
    `units` is what `usd_per_unit` is for, `per` hour, month or gb. `reasons` say why the amount lies between `low_usd`
    and `high_usd`.
    """
    machine, usage, price = item.machine, item.charge.usage, item.segment
    value = {
        name: getattr(machine, name) or None for name in "id name provider account region zone owner project".split()
    }
    value |= {
        "job": item.job or None,
        "begin": iso(item.begin),
        "end": iso(item.end),
        "seconds": item.charge.billed_us / 1_000_000,
    }
    value |= {"resource": str(usage.resource), "resource_id": provider_resource_id(usage) or None, "what": usage.what}
    value |= {"market": usage.market, "units": decimal(item.units), "per": str(usage.per), "estimate": item.estimate}
    value |= {"usd_per_unit": price and usd(Money(price.nanos)), "usd": price and usd(item.amount)}
    value |= {"low_usd": price and usd(item.low), "high_usd": price and usd(item.high)}
    value |= {"on_demand_usd": _on_demand(item), "reasons": list(item.charge.reasons)}
    value |= {f"price_{name}": price and getattr(price, name) for name in ("source", "basis", "as_of")}
    return {name: value[name] for name in COLUMNS}


def write_csv(file: TextIO, columns: Sequence[str], rows: Iterable[Mapping[str, str]]) -> None:
    """Write a header and rows as CSV (RFC 4180, but lines end with a mere newline)."""
    writer = csv.DictWriter(file, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)


def plain_cells(values: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, str]]:
    """Yield values as CSV cells: null is empty, and a text that a spreadsheet would run has an apostrophe before it."""
    for value in values:
        yield {name: _cell(content) for name, content in value.items()}


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    text = "; ".join(value) if isinstance(value, list) else str(value)
    return f"'{text}" if text.startswith(FORMULA_STARTS) and not _is_number(text) else text


def _is_number(text: str) -> bool:
    return text.removeprefix("-").replace(".", "", 1).isdecimal()


def _on_demand(item: LineItem) -> str | None:
    exact = item.charge.list_cost
    return None if exact is None else decimal(Fraction(exact, PARTS_PER_NANO * NANOS_PER_USD))
