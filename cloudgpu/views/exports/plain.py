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
from cloudgpu.views.cost import FORMULA_STARTS, decimal_text
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
    machine, usage, price = item.machine, item.charge.usage, item.price_interval
    document = {
        name: getattr(machine, name) or None for name in "id name provider account region zone owner project".split()
    }
    document |= {
        "job": item.job or None,
        "begin": iso(item.begin),
        "end": iso(item.end),
        "seconds": item.charge.billed_us / 1_000_000,
    }
    document |= {
        "resource": str(usage.resource),
        "resource_id": provider_resource_id(usage) or None,
        "what": usage.what,
    }
    document |= {
        "market": usage.market,
        "units": decimal_text(item.units),
        "per": str(usage.per),
        "estimate": item.is_estimate,
    }
    document |= {"usd_per_unit": price and usd(Money(price.nanos)), "usd": price and usd(item.amount)}
    document |= {"low_usd": price and usd(item.low), "high_usd": price and usd(item.high)}
    document |= {"on_demand_usd": _on_demand(item), "reasons": list(item.charge.reasons)}
    document |= {f"price_{name}": price and getattr(price, name) for name in ("source", "basis", "as_of")}
    return {name: document[name] for name in COLUMNS}


def write_csv(file: TextIO, columns: Sequence[str], rows: Iterable[Mapping[str, str]]) -> None:
    """Write a header and rows as CSV (RFC 4180, but lines end with a mere newline)."""
    writer = csv.DictWriter(file, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)


def plain_cells(documents: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, str]]:
    """Yield documents as CSV cells: null is empty; a text that a spreadsheet would run has an apostrophe before it."""
    for document in documents:
        yield {name: _cell(content) for name, content in document.items()}


def _cell(content: Any) -> str:
    if content is None:
        return ""
    if isinstance(content, bool):
        return "true" if content else "false"
    text = "; ".join(content) if isinstance(content, list) else str(content)
    return f"'{text}" if text.startswith(FORMULA_STARTS) and not _is_number(text) else text


def _is_number(text: str) -> bool:
    return text.removeprefix("-").replace(".", "", 1).isdecimal()


def _on_demand(item: LineItem) -> str | None:
    list_cost = item.charge.list_cost
    return None if list_cost is None else decimal_text(Fraction(list_cost, PARTS_PER_NANO * NANOS_PER_USD))
