"""The answer of `estimate` as text for 80 columns: who is cheapest, of what that is made up, what it rests on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Literal

from cloudgpu.cli.market.estimate_nodes import nodes_answer, nodes_blocks, own_nodes
from cloudgpu.cli.market.estimate_notes import brief, notes, nothing, price_sources
from cloudgpu.cli.market.offer_text import Rounded, count, finite, is_doubtful, mark, marks, rests, short, trust
from cloudgpu.cli.money.calculated_text import more_text
from cloudgpu.cli.render import WIDTH, cut, paragraph, table
from cloudgpu.core.model.machine import not_none
from cloudgpu.core.values.money import Money

if TYPE_CHECKING:
    from cloudgpu.core.values.currency import Currency
    from cloudgpu.views.documents.market.estimate import Estimate, EstimateDocument

Columns = list[tuple[str, list[str]]]
SpanName = Literal["day", "month", "year", "low", "expected", "high"]
_CUTS = {2: 11, 1: 16}  # the place and the type, and the characters that they are left at least
MAIN = 1  # the column of numbers that stays to the last
FIRST = 6  # rows of the short table
PARTS = 12  # rows of which the parts are shown
FEW = 100  # hours: below it with two digits


def estimate_text(
    document: EstimateDocument,
    currency: Currency | None,
    *,
    verbose: bool = True,
    sources: bool = False,
    every: bool = False,
) -> str:
    """Return the answer and the table of costs; `verbose` with what they rest on, `sources` with those.

    `every`: no row is left out.
    """
    if not document["estimates"]:
        return nothing(document) if document["nodes"] is None else own_nodes(document["nodes"], nothing(document))
    shown = Rounded(currency)
    estimates = document["estimates"] if verbose or every else document["estimates"][:FIRST]
    more = [_parts(document, shown), *notes(document, shown)] if verbose else [brief(document, shown, estimates)]
    of_nodes = document["nodes"]
    blocks = [
        "" if of_nodes is None else paragraph(nodes_answer(of_nodes, spot=document["request"]["market"] == "spot")),
        paragraph(_answer(document, shown)),
        _costs(document, estimates, shown),
        *([] if of_nodes is None else nodes_blocks(of_nodes, len(estimates), verbose=verbose, sources=sources)),
        *more,
    ]
    blocks += [price_sources(estimates)] if sources else []
    return "\n\n".join(block for block in blocks if block) + more_text(verbose=verbose, sources=sources)


def _answer(document: EstimateDocument, shown: Rounded) -> str:
    """Return what is cheapest, where, and what it costs."""
    one, request = document["estimates"][0], document["request"]
    many = f"{request['number']:,} machines with " if request["number"] > 1 else ""
    what = f"{many}{count(one)} {one['gpu']} ({short(one)}, {one['provider']} {one['region']})"
    lead = "Cheapest" if len(document["estimates"]) > 1 else "Cost"
    spot = " spot" if request["market"] == "spot" else ""
    doubt = f", if that price still holds: {one['uncertain']}" if one["uncertain"] else ""
    if one["expected"] is not None:
        hours = _hours(one["expected"]["hours"])
        return f"{lead}{spot}: {what}, {_amount(one, 'expected', shown)} in all for {hours} hours{doubt}."
    year, day = _amount(one, "year", shown), _amount(one, "day", shown)
    return f"{lead}{spot}: {what}, {_amount(one, 'month', shown)} a month, {day} a day, {year} a year{doubt}."


def _amount(one: Estimate, name: SpanName, shown: Rounded) -> str:
    least = "at least " if one["unpriced"] else ""
    return f"{least}{shown.with_code(not_none(one[name])['usd'])}"


def _costs(document: EstimateDocument, found: Sequence[Estimate], shown: Rounded) -> str:
    many = document["request"]["number"]
    numbers = _of_work(found, shown) if finite(document) else _of_time(found, shown)
    left = len(document["estimates"]) - len(found)
    text = _fitted(["GPU", "TYPE", "WHERE"], [_offer(one) for one in found], numbers, _CUTS)
    text += f"\n... and {left} more with -v." if left else ""
    return f"{many:,} machines, together:\n{text}" if many > 1 else text


def _of_time(found: Sequence[Estimate], shown: Rounded) -> Columns:
    return [
        ("DAY", _plain(found, "day", shown)),
        (f"MONTH{shown.code}", _marked(_plain(found, "month", shown), map(marks, found))),
        ("YEAR", _plain(found, "year", shown)),
    ]


def _of_work(found: Sequence[Estimate], shown: Rounded) -> Columns:
    columns = [
        ("HOURS", _marked([_hours(not_none(one["expected"])["hours"]) for one in found], map(rests, found))),
        (f"COST{shown.code}", _marked(_plain(found, "expected", shown), map(marks, found))),
    ]
    if any(one["low"] != one["high"] for one in found):
        ends = zip(_plain(found, "low", shown), _plain(found, "high", shown), strict=True)
        columns.append(("BETWEEN", [f"{low}-{high}" for low, high in ends]))
    return columns


def _hours(text: str) -> str:
    hours = Decimal(text)
    return f"{hours:,.2f}" if hours < FEW else f"{hours:,.0f}"


def _offer(one: Estimate) -> list[str]:
    gpu = one["gpu"] + ("?" if one["recalled"] or one["peak_recalled"] else "")
    return [f"{count(one)} {gpu}", f"{short(one)}{'*' * is_doubtful(one)}", f"{one['provider']} {one['region']}"]


def _plain(found: Sequence[Estimate], name: SpanName, shown: Rounded) -> list[str]:
    return [shown(not_none(one[name])["usd"]) for one in found]


def _marked(amounts: Sequence[str], suffixes: Iterable[str]) -> list[str]:
    """Return amounts with their marks behind the last digit, so that the digits are under one another."""
    each = list(suffixes)
    width = max(map(len, each))
    return [f"{amount}{mark.ljust(width)}" for amount, mark in zip(amounts, each, strict=True)]


def _parts(document: EstimateDocument, shown: Rounded) -> str:
    """Return of what the first rows are made up, with the marks of each price: the parts add up to the sum."""
    found = document["estimates"][:PARTS]
    name: SpanName = "expected" if finite(document) else "month"
    numbers = [
        (f"{shown.code.strip() or '$'}/H", _marked([_hourly(one, shown) for one in found], map(_price_marks, found))),
        ("MACHINE", [shown(not_none(one[name])["machine_usd"]) for one in found]),
        *((part.upper(), _part(found, name, part, shown)) for part in ("disk", "address")),
        ("IN ALL" if finite(document) else "A MONTH", _plain(found, name, shown)),
    ]
    more = len(document["estimates"]) - len(found)
    text = _fitted(["OF WHICH", "AT"], [[short(one), one["provider"]] for one in found], numbers, {0: _CUTS[1]})
    return text + (f"\n... and {more} more: -o json has the parts of all." if more else "")


def _price_marks(one: Estimate) -> str:
    return ("c" if one["committed"] else "") + trust(one)


def _hourly(one: Estimate, shown: Rounded) -> str:
    amount = Money.usd(Decimal(one["paid_usd_per_hour"]))
    return amount.text(4)[1:] if shown.currency is None else shown.currency.text(amount, 2)


def _part(found: Sequence[Estimate], name: SpanName, part: str, shown: Rounded) -> list[str]:
    spans = [not_none(one[name]) for one in found]
    texts = [one["disk_usd"] if part == "disk" else one["address_usd"] for one in spans]
    each = [
        "".join(dict.fromkeys("".join(mark(it) for it in one["attached_costs"] if it["part"] == part))) for one in found
    ]
    return _marked(["-" if text == "0" else shown(text) for text in texts], (one.replace("+", "") for one in each))


def _fitted(heads: list[str], rows: list[list[str]], numbers: Columns, cuts: dict[int, int]) -> str:
    """Return the table with texts cut, and numbers left out, as far as it would be too wide.

    `cuts` are the columns of text that may be cut, each with the characters that it is left at least; the first of
    them is cut last.
    """
    widths = [max(len(row[at]) for row in [heads, *rows]) for at in range(len(heads))]
    least = [min(width, cuts.get(at, width)) for at, width in enumerate(widths)]
    while sum(least) > _room(heads, numbers) and len(numbers) > 1:
        numbers = [numbers[MAIN]] if len(numbers) == MAIN + 1 else numbers[:-1]
    spare = max(0, _room(heads, numbers) - sum(least))
    for at in cuts:
        more = min(spare, widths[at] - least[at])
        least[at], spare = least[at] + more, spare - more
    short = [[cut(text, room) for text, room in zip(row, least, strict=True)] for row in rows]
    cells = [[*row, *values] for row, values in zip(short, zip(*(one for _, one in numbers), strict=True), strict=True)]
    names = [_over(head, values) for head, values in numbers]
    return table(cells, [*heads, *names], right=range(len(heads), len(heads) + len(numbers)))


def _room(heads: list[str], numbers: Columns) -> int:
    """Return how many characters the numbers leave to the texts."""
    return WIDTH - sum(max(map(len, (head, *cells))) + 2 for head, cells in numbers) - 2 * (len(heads) - 1)


def _over(head: str, values: Sequence[str]) -> str:
    """Return a heading that ends over the last digit, before the marks."""
    return head + " " * min(len(one) - len(one.rstrip(" m+<~?!cbwtfp")) for one in values)
