"""The answers of `catalog` as text: tables of at most 80 columns, and under them sources and what marks mean."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from cloudgpu.cli.market.offer_text import amount_text
from cloudgpu.cli.render import cut, fitted, paragraph, table, wrapped
from cloudgpu.core.values.naming import counted

if TYPE_CHECKING:
    from cloudgpu.views.documents.market.catalog import (
        CatalogDiffDocument,
        CatalogDocument,
        CatalogItemDocument,
        CatalogPrice,
        CatalogProvider,
        CatalogRefreshDocument,
        PriceChange,
        RefreshedProvider,
    )

MAX_NAME_WIDTH = 18  # columns of a name in a table
MAX_ROWS = 40  # of a table; -o json has all
# What follows `$/` in a heading, by the unit of the price.
UNITS = {
    "usd_per_hour": "h",
    "usd_per_gb_month": "GB-month",
    "usd_per_gib_month": "GiB-month",
    "usd_per_disk_month": "disk-month",
    "usd_per_gb": "GB",
}


def overview_text(document: CatalogDocument) -> str:
    """Return a line for each provider, and which parts were refreshed when."""
    rows = [_summary_row(provider) for provider in document["providers"]]
    headings = ["PROVIDER", "TYPES", "PRICES", "OLD", "DERIVED", "UNVERIFIED", "NEWEST", "REFRESHED"]
    lines = [table(rows, headings, right=range(1, 6)), ""]
    for provider in document["providers"]:
        if provider["error"]:
            lines.append(paragraph(provider["error"]))
        if provider["held"]:
            lines.append(f"{provider['provider']}: {provider['held']} prices held back: cloudgpu catalog diff")
    lines.append(paragraph(f"Embedded figures were compiled on {document['compiled']}. OLD: more than 180 days."))
    return "\n".join(lines)


def _summary_row(provider: CatalogProvider) -> list[str]:
    refreshed_days = sorted(part["refreshed_at"][:10] for part in provider["refreshed"])
    return [
        provider["provider"],
        *(
            str(number)
            for number in (
                provider["types"],
                provider["prices"],
                provider["old"],
                provider["derived"],
                provider["unverified"],
            )
        ),
        provider["newest"][:10],
        refreshed_days[0] if refreshed_days else "never",
    ]


def shown_text(document: CatalogItemDocument) -> str:
    """Return every price of one item with its date, its basis and the number of its source."""
    headline = f"{document['item']} ({document['provider']})" + (
        f": legacy: {document['legacy']}" if document["legacy"] else ""
    )
    if not document["prices"]:
        return f"{paragraph(headline)}\nNo price is known there; that does not make it free."
    sources = list(dict.fromkeys(_source_text(price) for price in document["prices"]))
    units = list(dict.fromkeys(UNITS.get(price["unit"], price["unit"]) for price in document["prices"]))
    headings = ["REGION", "MARKET", f"$/{units[0]}" if len(units) == 1 else "$", "AS OF", "BASIS", "STATE", ""]
    rows = fitted([_price_row(price, sources) for price in sorted(document["prices"], key=_price_order)], headings, 0)
    lines = [paragraph(headline), "", table(rows, headings, right=(2,))]
    lines += ["", *(_marked_note(f"[{number}]", text) for number, text in enumerate(sources, 1))]
    if any(price["old"] for price in document["prices"]):
        lines.append(_marked_note("!", "old: from more than 180 days ago, or without a date."))
    if document["unverified"]:
        lines.append(_marked_note("?", f"unverified, in no source: {', '.join(document['unverified'])} of this type."))
    return "\n".join([*lines, *([paragraph(document["error"])] if document["error"] else [])])


def _price_order(price: CatalogPrice) -> tuple[str, str, str]:
    return price["region"], price["market"] or "", price["as_of"] or ""


def _price_row(price: CatalogPrice, sources: list[str]) -> list[str]:
    return [
        price["region"],
        (price["market"] or "-").replace("_", "-"),
        f"{amount_text(price['low_usd'])} to {amount_text(price['usd'])}"
        if price["low_usd"]
        else amount_text(price["usd"]),
        _date_text(price) + ("!" if price["old"] else ""),
        price["basis"],
        "" if price["state"] == "current" else price["state"],
        f"[{sources.index(_source_text(price)) + 1}]",
    ]


def _date_text(price: CatalogPrice) -> str:
    """Return the date as the source gives it where that is short, else the earliest day that it can mean."""
    dated = price["dated"] or "no date"
    return dated if len(dated) <= len("2026-11-20") else str(price["as_of"])[:10]


def _source_text(price: CatalogPrice) -> str:
    return f"{price['source']}; {price['check']}" if price["check"] else str(price["source"])


def difference_text(document: CatalogDiffDocument) -> str:
    """Return the changes, the largest first."""
    changes = sorted(document["changes"], key=lambda change: -max(change["factor"], 1 / change["factor"]))
    new_text = f"{document['new']} prices have no counterpart there."
    if not changes:
        return f"Nothing differs from {document['against']}. {new_text}"
    lines = [_changes_table(changes[:MAX_ROWS]), ""]
    if len(changes) > MAX_ROWS:
        lines.append(f"{len(changes) - MAX_ROWS} more changes: -o json has all.")
    count_text = f"{counted(len(changes), 'change')} against {document['against']}"
    lines.append(paragraph(f"{count_text}, {document['jumps']} by more than {document['factor']:g}. {new_text}"))
    return "\n".join([*lines, *_held_back_note(changes)])


def _changes_table(changes: Iterable[PriceChange]) -> str:
    headings = ["WHAT", "REGION", "MKT", "WAS", "AS OF", "NOW", "FACTOR"]
    rows = [
        [
            cut(change["item"].removeprefix("Standard_"), MAX_NAME_WIDTH),
            change["region"],
            {"on_demand": "od", "spot": "spot"}.get(change["market"] or "", "-"),
            amount_text(change["was"]["usd"]),
            change["was"]["as_of"][:10],
            amount_text(change["now"]["usd"]),
            f"x{change['factor']:.3g}" + ("" if change["accepted"] else "!"),
        ]
        for change in changes
    ]
    return table(fitted(rows, headings, 1), headings, right=(3, 5, 6))


def _held_back_note(changes: Iterable[PriceChange]) -> Iterator[str]:
    if any(not change["accepted"] for change in changes):
        message = (
            "changed too much and was not used; the old price remains. To use it: cloudgpu catalog refresh --accept"
        )
        yield _marked_note("!", message)


def refresh_text(document: CatalogRefreshDocument) -> str:
    """Return a line for each provider, and the prices that changed too much."""
    rows = [_refreshed_row(provider) for provider in document["providers"]]
    headings = ["PROVIDER", "PRICES", "CHANGED", "JUMPS", "REFUSED", "SILENT", "NOT NAMED"]
    lines = [table(rows, headings, right=range(1, 7))]
    jumps = [jump for provider in document["providers"] for jump in provider["jumps"]]
    if jumps:
        message = f"Moved by more than {document['factor']:g}:"
        lines += ["", message, _changes_table(jumps[:MAX_ROWS]), *_held_back_note(jumps)]
    if any(provider["unnamed"] for provider in document["providers"]):
        lines += ["", paragraph("NOT NAMED: on-demand prices that the answer did not contain; they keep their dates.")]
    return "\n".join(lines)


def _refreshed_row(provider: RefreshedProvider) -> list[str]:
    counted_lists = (provider["jumps"], provider["refused"], provider["unanswered"], provider["unnamed"])
    return [
        provider["provider"],
        str(provider["prices"]),
        str(provider["changed"]),
        *(str(len(changes)) for changes in counted_lists),
    ]


def _marked_note(mark: str, text: str) -> str:
    return wrapped(text, f"{mark} ", " " * (len(mark) + 1))
