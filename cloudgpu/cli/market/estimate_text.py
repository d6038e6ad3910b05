"""The answer of `estimate` as text for 80 columns: the cheapest, the parts of its cost, the assumptions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Literal

from cloudgpu.cli.market.estimate_notes import no_match_text, notes, price_sources, short_table_notes
from cloudgpu.cli.market.offer_text import (
    RoundedAmountFormatter,
    attached_cost_mark,
    basis_mark,
    gpu_count_text,
    has_total,
    is_doubtful,
    offer_marks,
    short_type,
    speed_mark,
)
from cloudgpu.cli.money.calculated_text import more_text
from cloudgpu.cli.render import MAX_TABLE_WIDTH, cut, paragraph, table, wrapped
from cloudgpu.core.clusters.scaling import GangLoss, figure, gang_sentence
from cloudgpu.core.model.machine import not_none
from cloudgpu.core.values.money import Money

if TYPE_CHECKING:
    from cloudgpu.core.values.currency import Currency
    from cloudgpu.views.documents.market.estimate import Estimate, EstimateDocument, NodesDocument, NodesSpeedUp


Columns = list[tuple[str, list[str]]]  # the heading and the cells of each column
PeriodName = Literal["day", "month", "year", "low", "expected", "high"]
_MIN_CUT_WIDTHS = {2: 11, 1: 16}  # columns that may be cut (location, type), and the characters that they keep at least
MAIN_NUMBER_COLUMN = 1  # the column of numbers that is never left out
SHORT_ROWS = 6  # of the short table
PARTS_ROWS = 12  # of the table of parts
TWO_DIGITS_BELOW = 100  # hours; from here on they are shown without decimals


def estimate_text(
    document: EstimateDocument,
    currency: Currency | None,
    *,
    verbose: bool = True,
    sources: bool = False,
    all_rows: bool = False,
) -> str:
    """Return the answer and the table of costs; with `verbose` its assumptions, with `sources` its sources.

    `all_rows`: no row is left out.
    """
    if not document["estimates"]:
        return (
            no_match_text(document)
            if document["nodes"] is None
            else own_nodes_text(document["nodes"], no_match_text(document))
        )
    format_usd = RoundedAmountFormatter(currency)
    estimates = document["estimates"] if verbose or all_rows else document["estimates"][:SHORT_ROWS]
    detail_blocks = (
        [_parts_table(document, format_usd), *notes(document, format_usd)]
        if verbose
        else [short_table_notes(document, format_usd, estimates)]
    )
    nodes_document = document["nodes"]
    blocks = [
        ""
        if nodes_document is None
        else paragraph(nodes_answer(nodes_document, spot=document["request"]["market"] == "spot")),
        paragraph(_answer_text(document, format_usd)),
        _costs_table(document, estimates, format_usd),
        *(
            []
            if nodes_document is None
            else nodes_blocks(nodes_document, len(estimates), verbose=verbose, sources=sources)
        ),
        *detail_blocks,
    ]
    blocks += [price_sources(estimates)] if sources else []
    return "\n\n".join(block for block in blocks if block) + more_text(verbose=verbose, sources=sources)


def _answer_text(document: EstimateDocument, format_usd: RoundedAmountFormatter) -> str:
    """Return what is cheapest, where, and what it costs."""
    cheapest, request = document["estimates"][0], document["request"]
    count_text = f"{request['number']:,} machines with " if request["number"] > 1 else ""
    machines_text = (
        f"{count_text}{gpu_count_text(cheapest)} {cheapest['gpu']} ({short_type(cheapest)}, "
        f"{cheapest['provider']} {cheapest['region']})"
    )
    lead_text = "Cheapest" if len(document["estimates"]) > 1 else "Cost"
    spot_text = " spot" if request["market"] == "spot" else ""
    doubt_text = f", if that price still holds: {cheapest['uncertain']}" if cheapest["uncertain"] else ""
    if cheapest["expected"] is not None:
        hours = _hours_text(cheapest["expected"]["hours"])
        return (
            f"{lead_text}{spot_text}: {machines_text}, {_amount_text(cheapest, 'expected', format_usd)} in all for "
            f"{hours} hours{doubt_text}."
        )
    year, day = _amount_text(cheapest, "year", format_usd), _amount_text(cheapest, "day", format_usd)
    return (
        f"{lead_text}{spot_text}: {machines_text}, {_amount_text(cheapest, 'month', format_usd)} a month, {day} a "
        f"day, {year} a year{doubt_text}."
    )


def _amount_text(estimate: Estimate, period: PeriodName, format_usd: RoundedAmountFormatter) -> str:
    at_least = "at least " if estimate["unpriced"] else ""
    return f"{at_least}{format_usd.with_code(not_none(estimate[period])['usd'])}"


def _costs_table(document: EstimateDocument, estimates: Sequence[Estimate], format_usd: RoundedAmountFormatter) -> str:
    machine_count = document["request"]["number"]
    number_columns = (
        _work_columns(estimates, format_usd) if has_total(document) else _time_columns(estimates, format_usd)
    )
    hidden_count = len(document["estimates"]) - len(estimates)
    text = _fitted_table(
        ["GPU", "TYPE", "WHERE"], [_offer_cells(estimate) for estimate in estimates], number_columns, _MIN_CUT_WIDTHS
    )
    text += f"\n... and {hidden_count} more with -v." if hidden_count else ""
    return f"{machine_count:,} machines, together:\n{text}" if machine_count > 1 else text


def _time_columns(estimates: Sequence[Estimate], format_usd: RoundedAmountFormatter) -> Columns:
    return [
        ("DAY", _amount_texts(estimates, "day", format_usd)),
        (
            f"MONTH{format_usd.code}",
            _marked_texts(_amount_texts(estimates, "month", format_usd), map(offer_marks, estimates)),
        ),
        ("YEAR", _amount_texts(estimates, "year", format_usd)),
    ]


def _work_columns(estimates: Sequence[Estimate], format_usd: RoundedAmountFormatter) -> Columns:
    columns = [
        (
            "HOURS",
            _marked_texts(
                [_hours_text(not_none(estimate["expected"])["hours"]) for estimate in estimates],
                map(speed_mark, estimates),
            ),
        ),
        (
            f"COST{format_usd.code}",
            _marked_texts(_amount_texts(estimates, "expected", format_usd), map(offer_marks, estimates)),
        ),
    ]
    if any(estimate["low"] != estimate["high"] for estimate in estimates):
        bounds = zip(
            _amount_texts(estimates, "low", format_usd), _amount_texts(estimates, "high", format_usd), strict=True
        )
        columns.append(("BETWEEN", [f"{low}-{high}" for low, high in bounds]))
    return columns


def _hours_text(text: str) -> str:
    hours = Decimal(text)
    return f"{hours:,.2f}" if hours < TWO_DIGITS_BELOW else f"{hours:,.0f}"


def _offer_cells(estimate: Estimate) -> list[str]:
    gpu = estimate["gpu"] + ("?" if estimate["unverified"] or estimate["peak_unverified"] else "")
    return [
        f"{gpu_count_text(estimate)} {gpu}",
        f"{short_type(estimate)}{'*' * is_doubtful(estimate)}",
        f"{estimate['provider']} {estimate['region']}",
    ]


def _amount_texts(estimates: Sequence[Estimate], period: PeriodName, format_usd: RoundedAmountFormatter) -> list[str]:
    return [format_usd(not_none(estimate[period])["usd"]) for estimate in estimates]


def _marked_texts(amounts: Sequence[str], suffixes: Iterable[str]) -> list[str]:
    """Return amounts with their marks behind the last digit, so that the digits are under one another."""
    marks_list = list(suffixes)
    width = max(map(len, marks_list))
    return [f"{amount}{mark.ljust(width)}" for amount, mark in zip(amounts, marks_list, strict=True)]


def _parts_table(document: EstimateDocument, format_usd: RoundedAmountFormatter) -> str:
    """Return of what the first rows are made up, with the marks of each price: the parts add up to the sum."""
    estimates = document["estimates"][:PARTS_ROWS]
    period: PeriodName = "expected" if has_total(document) else "month"
    number_columns = [
        (
            f"{format_usd.code.strip() or '$'}/H",
            _marked_texts(
                [_hourly_text(estimate, format_usd) for estimate in estimates],
                [("c" if estimate["committed"] else "") + basis_mark(estimate) for estimate in estimates],
            ),
        ),
        ("MACHINE", [format_usd(not_none(estimate[period])["machine_usd"]) for estimate in estimates]),
        *((part.upper(), _part_texts(estimates, period, part, format_usd)) for part in ("disk", "address")),
        ("IN ALL" if has_total(document) else "A MONTH", _amount_texts(estimates, period, format_usd)),
    ]
    hidden_count = len(document["estimates"]) - len(estimates)
    text = _fitted_table(
        ["OF WHICH", "AT"],
        [[short_type(estimate), estimate["provider"]] for estimate in estimates],
        number_columns,
        {0: _MIN_CUT_WIDTHS[1]},
    )
    return text + (f"\n... and {hidden_count} more: -o json has the parts of all." if hidden_count else "")


def _hourly_text(estimate: Estimate, format_usd: RoundedAmountFormatter) -> str:
    amount = Money.usd(Decimal(estimate["paid_usd_per_hour"]))
    return amount.text(4)[1:] if format_usd.currency is None else format_usd.currency.text(amount, 2)


def _part_texts(
    estimates: Sequence[Estimate], period: PeriodName, part: str, format_usd: RoundedAmountFormatter
) -> list[str]:
    period_costs = [not_none(estimate[period]) for estimate in estimates]
    usd_texts = [cost["disk_usd"] if part == "disk" else cost["address_usd"] for cost in period_costs]
    marks_list = [
        "".join(
            dict.fromkeys(
                "".join(
                    attached_cost_mark(attached_cost)
                    for attached_cost in estimate["attached_costs"]
                    if attached_cost["part"] == part
                )
            )
        )
        for estimate in estimates
    ]
    return _marked_texts(
        ["-" if text == "0" else format_usd(text) for text in usd_texts],
        (marks.replace("+", "") for marks in marks_list),
    )


def _fitted_table(
    headers: list[str], rows: list[list[str]], number_columns: Columns, min_widths: dict[int, int]
) -> str:
    """Return the table with texts cut, and numbers left out, so that it is not too wide.

    `min_widths` are the columns of text that may be cut, with the characters that each keeps at least; the first of
    them is cut last.
    """
    widths = [max(len(row[column]) for row in [headers, *rows]) for column in range(len(headers))]
    column_widths = [min(width, min_widths.get(column, width)) for column, width in enumerate(widths)]
    while sum(column_widths) > _text_width(headers, number_columns) and len(number_columns) > 1:
        number_columns = (
            [number_columns[MAIN_NUMBER_COLUMN]]
            if len(number_columns) == MAIN_NUMBER_COLUMN + 1
            else number_columns[:-1]
        )
    spare_width = max(0, _text_width(headers, number_columns) - sum(column_widths))
    for column in min_widths:
        added_width = min(spare_width, widths[column] - column_widths[column])
        column_widths[column], spare_width = column_widths[column] + added_width, spare_width - added_width
    cut_rows = [[cut(text, width) for text, width in zip(row, column_widths, strict=True)] for row in rows]
    cells = [
        [*row, *values]
        for row, values in zip(cut_rows, zip(*(cells for _, cells in number_columns), strict=True), strict=True)
    ]
    number_headings = [_aligned_heading(heading, values) for heading, values in number_columns]
    return table(cells, [*headers, *number_headings], right=range(len(headers), len(headers) + len(number_columns)))


def _text_width(headers: list[str], number_columns: Columns) -> int:
    """Return how many characters the numbers leave to the texts."""
    return (
        MAX_TABLE_WIDTH
        - sum(max(map(len, (heading, *cells))) + 2 for heading, cells in number_columns)
        - 2 * (len(headers) - 1)
    )


def _aligned_heading(heading: str, values: Sequence[str]) -> str:
    """Return a heading that ends over the last digit, before the marks."""
    return heading + " " * min(len(value) - len(value.rstrip(" m+<~?!cbwtfp")) for value in values)


# Of the table of several machines as one, without its first column.
HEADINGS = ("GBIT/S", "SPEED-UP", "NO OVERLAP", "COST", "HIDDEN AT", "VERDICT")
UNKNOWN = "-"


def nodes_answer(document: NodesDocument, *, spot: bool) -> str:
    """Return how fast the machines of the first row are together, and how likely one of them is lost."""
    first_row = document["worth"][0]
    return " ".join((first_row["says"], *([_loss_text(document, first_row)] if spot else [])))


def nodes_blocks(document: NodesDocument, row_count: int, *, verbose: bool, sources: bool) -> Iterator[str]:
    """Yield the table of the first `row_count` rows with notes and, with `verbose`, seconds and assumptions."""
    speed_ups = document["worth"][:row_count]
    yield _nodes_table(document, speed_ups)
    yield "\n".join(paragraph(note) for note in _nodes_notes(document, speed_ups))
    if verbose:
        yield _step_seconds_table(speed_ups)
        yield "\n".join(paragraph(assumption) for assumption in document["assumptions"])
    if sources:
        lines = (
            f"{_type_name(speed_up)}: {speed_up['network_source']}"
            for speed_up in speed_ups
            if speed_up["network_source"]
        )
        yield "\n".join(wrapped(line, "", "    ") for line in dict.fromkeys(lines))


def own_nodes_text(document: NodesDocument, no_match_text: str) -> str:
    """Return the answer for GPUs that nobody rents out; without a GPU, only `no_match_text`."""
    if not document["worth"]:
        return no_match_text
    text = "\n".join(paragraph(f"{speed_up['gpu']}: {speed_up['says']}") for speed_up in document["worth"])
    price_note = paragraph(
        "No price: nobody in the catalogue rents it out. COST is that of each result, as times one machine's."
    )
    speed_ups = [speed_up for speed_up in document["worth"] if speed_up["verdict"]]
    tables = [_nodes_table(document, speed_ups), _step_seconds_table(speed_ups)] if speed_ups else []
    return "\n\n".join(
        (text, *tables, "\n".join(paragraph(assumption) for assumption in document["assumptions"]), price_note)
    )


def _nodes_table(document: NodesDocument, rows: Sequence[NodesSpeedUp]) -> str:
    column_count = len(HEADINGS)
    return table(
        [_node_cells(speed_up) for speed_up in rows],
        [f"{document['nodes']} MACHINES", *HEADINGS],
        right=range(1, column_count),
    )


def _node_cells(speed_up: NodesSpeedUp) -> list[str]:
    gbit_per_s = speed_up["network_gbit_per_s"]
    figures = (
        speed_up["speed_up"],
        speed_up["speed_up_without_overlap"],
        speed_up["cost_factor"],
        speed_up["overlap_gbit_per_s"],
    )
    return [
        _type_name(speed_up),
        UNKNOWN if gbit_per_s is None else f"{gbit_per_s:g}",
        *(UNKNOWN if number is None else figure(number) for number in figures),
        speed_up["verdict"] or "not known",
    ]


def _step_seconds_table(speed_ups: Sequence[NodesSpeedUp]) -> str:
    """Return how long a step computes and sends, for each type where that is known."""
    seconds_by_type = [(_type_name(speed_up), speed_up["compute_s"], speed_up["traffic_s"]) for speed_up in speed_ups]
    cells = [
        [name, f"{figure(compute_s)} s", f"{figure(traffic_s)} s"]
        for name, compute_s, traffic_s in seconds_by_type
        if compute_s and traffic_s
    ]
    return table(cells, ["A STEP OF", "COMPUTES", "SENDS"], right=(1, 2)) if cells else ""


def _type_name(speed_up: NodesSpeedUp) -> str:
    return (speed_up["instance_type"] or speed_up["gpu"]).removeprefix("Standard_")


def _nodes_notes(document: NodesDocument, speed_ups: Sequence[NodesSpeedUp]) -> Iterator[str]:
    yield (
        "SPEED-UP and COST (of each result): as times one machine. HIDDEN AT: Gbit/s from which on computing hides the "
        f"traffic. Poor: below 0.8 times {document['nodes']}."
    )
    unlisted = [_type_name(speed_up) for speed_up in speed_ups if speed_up["network_gbit_per_s"] is None]
    if unlisted:
        yield f"The network of {', '.join(dict.fromkeys(unlisted))} is in no list. Give it: --network 10 (Gbit/s)."
    bursts = [
        f"{_type_name(speed_up)} {speed_up['network_up_to_gbit_per_s']:g}"
        for speed_up in speed_ups
        if speed_up["network_up_to_gbit_per_s"]
    ]
    if bursts:
        yield f"Counted with the Gbit/s that last; for a while they are up to: {', '.join(bursts)}."
    for speed_up in speed_ups:
        if speed_up["network_note"]:
            yield f"{_type_name(speed_up)}, {speed_up['network_fabric']}: {speed_up['network_note']}."
    different_losses = (
        speed_up for speed_up in speed_ups[1:] if speed_up["spot_loss"] not in (None, speed_ups[0]["spot_loss"])
    )
    yield from (f"{_type_name(speed_up)}: {_loss_text(document, speed_up)}" for speed_up in different_losses)


def _loss_text(document: NodesDocument, speed_up: NodesSpeedUp) -> str:
    loss = speed_up["spot_loss"]
    if loss is None:
        return (
            f"Any loss restarts all {document['nodes']}: how often they are taken is in no list, nor in your ledger. "
            "Give the chance of an hour: --spot-loss 5%"
        )
    loss_range = (loss["one_loss_low"], loss["one_loss_high"])
    return gang_sentence(GangLoss(document["nodes"], loss["per"], loss_range, loss["source"]))
