"""Reads the rows of a FOCUS export, as AWS, Google Cloud, Azure and cloudgpu write them; versions 0.5 to 1.2.

Where theirs differ from the specification's text is in docs/focus.md, with sources.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from cloudgpu.core.values.naming import closest_match
from cloudgpu.errors import InvalidRequest

# Columns of an export, each with its names in other versions of the specification.
REQUIRED = {
    "BilledCost": (),
    "BillingCurrency": ("BilledCurrency",),
    "ChargeCategory": ("ChargeType",),
    "ChargePeriodStart": (),
    "ChargePeriodEnd": (),
    "ProviderName": ("Provider", "ServiceProviderName"),
    "ResourceId": ("ResourceID",),
}
OPTIONAL = {
    "Tags": (),
    "ChargeClass": (),
    "ServiceCategory": (),
    "ServiceName": (),
    "ChargeDescription": (),
    "ListCost": (),
    "PricingQuantity": (),
    "PricingUnit": (),
    "BillingAccountId": (),
    "SubAccountId": (),
}
_NULLS = ("", "NULL", "null", "None")
_TAG_PREFIX = re.compile(r"^(?:user[:_/]|label[:_/]|labels[./]|aws:)?(.*)$")
# An exponent has two digits at most: a longer one would be a number that fills the memory.
_NUMBER = re.compile(r"-?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,2})?")
_MAX_SHOWN_LENGTH = 40  # characters of a wrong value that an error repeats
_MAX_NUMBER_LENGTH = 60  # characters of a number; no bill is longer, and a longer one would take forever


@dataclass(frozen=True, slots=True)
class Record:
    """One row of an export. Amounts are in `currency`; times are aware UTC; what is null there is empty here.

    `tags` are only those of cloudgpu, without the prefix that a provider puts before them. `line` is its line number.
    `billed` is BilledCost, `category` ChargeCategory, `quantity` PricingQuantity in PricingUnits (`unit`).
    `list_cost`, `quantity`: None where they are null. `account` is what the row calls the account: the last part of it,
    in lower case. `is_correction`: it corrects a charge of an earlier bill, and has the period of that (ChargeClass).
    """

    line: int
    billed: Decimal
    currency: str
    category: str
    begin: datetime
    end: datetime
    provider: str
    resource: str
    tags: Mapping[str, str]
    service_category: str
    service: str
    description: str
    list_cost: Decimal | None
    quantity: Decimal | None
    unit: str
    account: str
    is_correction: bool


def records(lines: Iterable[tuple[int, Sequence[str]]], name: str) -> Iterator[Record]:
    """Yield the rows of an export whose lines are given with their numbers, the header first.

    `name` is what errors call the file. Raises InvalidRequest for a wrong header, a line that is cut short, and a
    value that is none of its column.
    """
    rows = iter(lines)
    line_number, header = next(rows, (1, ()))
    column_indexes = _column_indexes(header, name)
    has_rows = False
    for line_number, cells in rows:
        if not cells:
            continue
        if len(cells) != len(header):
            why = "it is cut short" if len(cells) < len(header) else "a comma or a quote is wrong"
            raise InvalidRequest(
                f"{name}, line {line_number} has {len(cells)} columns and the header {len(header)}: {why}.",
                field="FILE",
                value=f"line {line_number}",
                next="Download the complete file again.",
            )
        has_rows = True
        yield _record(_Line(name, line_number, cells, column_indexes))
    if not has_rows:
        raise InvalidRequest(
            f"{name} has a header and no rows.", field="FILE", value=name, next="Export a period with charges."
        )


def our_tags(text: str) -> dict[str, str]:
    """Return the tags of ours in a Tags column: an object, or a list of keys and values as BigQuery has it.

    AWS may write `user:` before a key, Google Cloud calls them labels: what stands before our names is left out.
    Raises ValueError for what is neither.
    """
    parsed: Any = json.loads(text) if text else {}
    pairs = parsed.items() if isinstance(parsed, dict) else [(tag["key"], tag["value"]) for tag in parsed]
    normalized = ((_TAG_PREFIX.sub(r"\1", str(key)).lower().replace("_", "-"), str(value)) for key, value in pairs)
    return {key: value for key, value in normalized if key.startswith("cloudgpu-")}


def provider_of(name: str) -> str:
    """Return our name of a provider, by the name that an export gives it."""
    lowercase_name = name.lower()
    provider_by_word = {"aws": "aws", "amazon": "aws", "google": "gcp", "microsoft": "azure", "azure": "azure"}
    for word, provider in provider_by_word.items():
        if word in lowercase_name:
            return provider
    return lowercase_name.removeprefix("cloudgpu ")


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of the file `name`, and the index of each column in it."""

    name: str
    number: int
    cells: Sequence[str]
    column_indexes: Mapping[str, int]

    def text(self, column: str) -> str:
        cell = self.cells[self.column_indexes[column]].strip() if column in self.column_indexes else ""
        return "" if cell in _NULLS else cell

    def amount(self, column: str) -> Decimal | None:
        cell = self.text(column)
        if not cell:
            return None
        try:
            if _NUMBER.fullmatch(cell) and len(cell) <= _MAX_NUMBER_LENGTH:
                return Decimal(cell)
        except InvalidOperation:
            pass
        raise self.fault(column, cell, "is not a number")

    def time(self, column: str) -> datetime:
        cell = self.text(column)
        try:
            moment = datetime.fromisoformat(cell.removesuffix(" UTC"))
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
        except (ValueError, OverflowError):
            raise self.fault(column, cell, "is not a time") from None

    def fault(self, column: str, value: str, problem: str) -> InvalidRequest:
        shown = value if len(value) <= _MAX_SHOWN_LENGTH else f"{value[:_MAX_SHOWN_LENGTH]}..."
        return InvalidRequest(
            f"{self.name}, line {self.number}: {column} {problem}: {shown!r}.",
            field=column,
            value=shown,
            next="Take the export as the cloud wrote it: spreadsheets change numbers and times.",
        )


def _record(line: _Line) -> Record:
    billed, category = line.amount("BilledCost"), line.text("ChargeCategory")
    if billed is None or not category:
        column = "BilledCost" if billed is None else "ChargeCategory"
        raise line.fault(column, "", "must not be empty")
    try:
        tags = our_tags(line.text("Tags"))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise line.fault("Tags", line.text("Tags"), "is not a JSON object") from None
    return Record(
        line=line.number,
        billed=billed,
        currency=line.text("BillingCurrency").upper(),
        category=category.capitalize(),  # Google Cloud's view writes `usage`
        begin=line.time("ChargePeriodStart"),
        end=line.time("ChargePeriodEnd"),
        provider=provider_of(line.text("ProviderName")),
        resource=line.text("ResourceId"),
        tags=tags,
        service_category=line.text("ServiceCategory"),
        service=line.text("ServiceName"),
        description=line.text("ChargeDescription"),
        list_cost=line.amount("ListCost"),
        quantity=line.amount("PricingQuantity"),
        unit=line.text("PricingUnit"),
        account=(line.text("SubAccountId") or line.text("BillingAccountId")).lower().rpartition("/")[2],
        is_correction=line.text("ChargeClass").lower() == "correction",
    )


def _column_indexes(header: Sequence[str], name: str) -> dict[str, int]:
    """Return the index of each column; raise InvalidRequest for a header that is none of FOCUS."""
    index_by_header = {column.strip(): index for index, column in enumerate(header)}
    indexes = {}
    for column, aliases in (REQUIRED | OPTIONAL).items():
        header_name = next((alias for alias in (column, *aliases) if alias in index_by_header), None)
        if header_name is not None:
            indexes[column] = index_by_header[header_name]
    missing = [column for column in REQUIRED if column not in indexes]
    if missing:
        raise _not_focus_error(missing, list(index_by_header), name)
    return indexes


def _not_focus_error(missing: Sequence[str], columns: Sequence[str], name: str) -> InvalidRequest:
    similar_column = closest_match(missing[0], columns)
    similar_text = (
        f" (it has {similar_column!r})" if similar_column and similar_column.lower() == missing[0].lower() else ""
    )
    message = f"has no column {missing[0]}{similar_text}" if columns and any(columns) else "is empty"
    if len(missing) == len(REQUIRED) and any(columns):
        message = "has not one column of FOCUS that is needed"
    return InvalidRequest(
        f"{name} {message}: it is not a FOCUS export.",
        field="FILE",
        value=", ".join(missing),
        next=f"It needs the columns {', '.join(REQUIRED)}; docs/focus.md says where each cloud writes such a file.",
    )
