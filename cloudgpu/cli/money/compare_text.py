"""A comparison from the ledger as text for 80 columns."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Literal

from cloudgpu.cli.money.calculated_text import more_text
from cloudgpu.cli.render import AmountFormatter, clipped, paragraph, table, wrapped
from cloudgpu.cli.terminal import columns
from cloudgpu.core.values.times import from_iso

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import tzinfo

    from cloudgpu.core.values.currency import Currency
    from cloudgpu.views.documents.money.compare import (
        CompareDocument,
        OwnedCases,
        OwnMachine,
        RentalAlternative,
        ScaledGpu,
    )

CaseName = Literal["low", "expected", "high"]
CASES: dict[CaseName, str] = {"low": "FOR THE CLOUD", "expected": "EXPECTED", "high": "FOR THE DESKTOP"}
SHORT_LABELS = ("the cloud", "the desktop", "desktops", "used of its time", "break-even")  # without -v
NAME_WIDTH = 16  # characters of a machine's name


def compare_text(
    document: CompareDocument,
    currency: Currency | None,
    zone: tzinfo,
    *,
    verbose: bool = True,
    sources: bool = False,
    chart: bool = False,
) -> str:
    """Return the sentence and both costs; with `verbose` all assumptions, with `sources` the desktop's source.

    With `chart` both costs by day are drawn.
    """
    format_usd = AmountFormatter(currency)
    blocks = [paragraph(document["sentence"])]
    if chart and document["curve"]:
        blocks.append(_cost_chart(document))
    if document["owned"]:
        blocks.append(_cases_table(document, document["owned"], format_usd, zone, verbose=verbose))
        blocks += [_hours_text(document, format_usd), _speeds_table(document)] if verbose else []
    blocks.append(_own_machines_text(document, format_usd))
    blocks.append(
        "\n".join(wrapped(assumption, "- ", "  ") for assumption in document["assumptions"])
        if verbose
        else "\n".join(paragraph(caution) for caution in document["cautions"])
    )
    if currency is not None:
        blocks.append(paragraph(f"{currency}, for every amount."))
    if sources:
        desktop = document["desktop"]
        blocks.append(paragraph(f"Where {desktop['name']} is from: {desktop['source']}; as of {desktop['as_of']}."))
    shown_blocks = [block for block in blocks if block]
    return "\n\n".join(shown_blocks) + (more_text(verbose=verbose, sources=sources) if len(shown_blocks) > 1 else "")


def _cost_chart(document: CompareDocument) -> str:
    """Return both costs by day as lines, in US dollars; no line for a cloud whose cost is not known."""
    from cloudgpu.cli.money.chart import line_chart

    curve = document["curve"]
    dates = [date.fromisoformat(point["day"]) for point in curve]
    days = [float((day - dates[0]).days + 1) for day in dates]  # not one each: a long curve leaves some out
    series = {
        "cloud": [
            (day, float(usd)) for day, point in zip(days, curve, strict=True) if (usd := point["cloud_usd"]) is not None
        ],
        "desktop": [(day, float(point["desktop_usd"])) for day, point in zip(days, curve, strict=True)],
    }
    series = {name: points for name, points in series.items() if points}
    return f"{line_chart(series, columns())}\nUS dollars by day, {curve[0]['day']} to {curve[-1]['day']}"


def _cases_table(
    document: CompareDocument, owned: OwnedCases, format_usd: AmountFormatter, zone: tzinfo, *, verbose: bool
) -> str:
    lines = list(_cost_lines(document, owned, format_usd, zone))
    lines = lines if verbose else [line for line in lines if line[0] in SHORT_LABELS]
    rows = [[label, *(cell_of_case(case) for case in CASES)] for label, cell_of_case in lines]
    code = format_usd.code.strip()
    if all(len(set(row[1:])) == 1 for row in rows):
        return table([row[:2] for row in rows], [code, "EXPECTED"], right=[1])
    return table(rows, [code, *CASES.values()], right=[1, 2, 3])


def _cost_lines(
    document: CompareDocument, owned: OwnedCases, format_usd: AmountFormatter, zone: tzinfo
) -> Iterator[tuple[str, Callable[[CaseName], str]]]:
    cloud, break_even = document["cloud"], document["break_even"]
    cloud_usd = dict(zip(CASES, (cloud["low_usd"], cloud["usd"], cloud["high_usd"]), strict=True))
    unpriced_mark = "+" if cloud["unpriced"] and cloud["usd"] is not None else ""
    yield "the cloud", lambda case: f"{format_usd(cloud_usd[case])}{unpriced_mark}"
    yield "the desktop", lambda case: format_usd(owned[case]["total_usd"])
    yield "  bought", lambda case: format_usd(owned[case]["purchase_usd"])
    yield "  electricity", lambda case: format_usd(owned[case]["electricity_usd"])
    if Decimal(owned["low"]["maintenance_usd"]):
        yield "  maintenance", lambda case: format_usd(owned[case]["maintenance_usd"])
    if any(Decimal(owned[case]["worth_usd"]) for case in CASES):
        yield "  still worth", lambda case: f"-{format_usd(owned[case]['worth_usd'])}"
    if any(owned[case]["desktops"] > 1 for case in CASES):
        yield "desktops", lambda case: f"{owned[case]['desktops']:,}"
    yield "hours of its work", lambda case: f"{Decimal(owned[case]['hours']):,.2f}"
    yield "used of its time", lambda case: f"{owned[case]['utilization_percent']:g}%"
    yield "break-even use", lambda case: _percent_text(break_even["utilization_percent"][case])
    yield "break-even", lambda case: _break_even_day(document, case, zone)


def _percent_text(percent: float | None) -> str:
    return "-" if percent is None else f"{percent:g}%"


def _break_even_day(document: CompareDocument, case: CaseName, zone: tzinfo) -> str:
    """Return the day of the break-even, past or projected; `-` without a pace to project from."""
    break_even, pace = document["break_even"], document["pace"]
    passed_at, projected_at = (cases[case] for cases in (break_even["cloud_costs_more_since"], break_even["projected"]))
    if projected_at is not None:
        return f"{from_iso(projected_at).astimezone(zone):%Y-%m-%d}"
    if passed_at is not None:
        return f"{(from_iso(passed_at) - timedelta(microseconds=1)).astimezone(zone):%Y-%m-%d}"
    return "-" if pace is None or pace[case] is None else "never"


def _hours_text(document: CompareDocument, format_usd: AmountFormatter) -> str:
    cloud, break_even = document["cloud"], document["break_even"]
    hours_by_use = (
        (cloud["gpu_hours"], "with a busy GPU"),
        (cloud["used_hours"], "otherwise in use"),
        (cloud["idle_hours"], "idle"),
        (cloud["unknown_hours"], "not known"),
    )
    hours_texts = [f"{Decimal(hours):,.1f} {use}" for hours, use in hours_by_use if Decimal(hours)]
    notes = [f"Machines were billed for {Decimal(cloud['billed_hours']):,.1f} hours: {', '.join(hours_texts)}."]
    if break_even["paid_usd_per_hour"] is not None:
        notes.append(
            f"What an hour of this desktop does came to {format_usd.with_code(break_even['paid_usd_per_hour'])} on the "
            f"cloud. Used as much as so far, the desktop is the cheaper one over its life above "
            f"{format_usd.with_code(break_even['price_usd_per_hour'])}."
        )
    return "\n".join(paragraph(note) for note in notes)


def _speeds_table(document: CompareDocument) -> str:
    rows = [
        [
            speed["gpu"],
            f"{Decimal(speed['hours']):,.1f}",
            _ratio_text(speed),
            speed["basis"],
            {True: "", False: "larger memory", None: ""}[speed["fits"]],
        ]
        for speed in document["speeds"]
    ]
    return table(rows, ["GPU", "HOURS", "DESKTOP'S SPEED", "BY", ""], right=[1, 2]) if rows else ""


def _ratio_text(gpu: ScaledGpu) -> str:
    """Return how many hours of this GPU an hour of the desktop's GPU replaces."""
    if gpu["low"] == gpu["high"]:
        return f"{gpu['ratio']:.2f}x"
    return f"{gpu['ratio']:.2f}x ({gpu['low']:.2f}x-{gpu['high']:.2f}x)"


def _own_machines_text(document: CompareDocument, format_usd: AmountFormatter) -> str:
    if not document["own_machines"]:
        return ""
    rows = [
        [
            clipped(machine["name"], NAME_WIDTH),
            machine["gpu"] or "no GPU",
            f"{Decimal(machine['hours']):,.1f}",
            "?" if machine["kwh"] is None else f"{Decimal(machine['kwh']):,.2f}",
            format_usd(machine["electricity_usd"]) + ("^" if machine["assumed"] else ""),
            format_usd(machine["cloud_usd"]),
        ]
        for machine in document["own_machines"]
    ]
    notes = [table(rows, ["YOUR OWN", "GPU", "HOURS", "KWH", "ELECTRICITY", "ON A CLOUD"], right=range(2, 6))]
    notes += [
        paragraph(_offer_text(machine, offer, format_usd))
        for machine in document["own_machines"]
        if (offer := machine["offer"])
    ]
    sentence = document["own_machines_sentence"]
    if sentence is not None and sentence != document["sentence"] and document["owned"]:
        notes.append(paragraph(sentence))
    if document["paid_usd"] is not None and document["owned"]:
        at_least = "at least " if document["cloud"]["unpriced"] else ""
        paid_text = f"{at_least}{format_usd.with_code(document['paid_usd'])}"
        notes.append(paragraph(f"Paid in all, the cloud and your own electricity: {paid_text}."))
    return "\n".join(notes)


def _offer_text(machine: OwnMachine, offer: RentalAlternative, format_usd: AmountFormatter) -> str:
    price_per_hour = f"{format_usd.with_code(offer['usd_per_gpu_hour'])} an hour of one {offer['gpu']}"
    place_text = f"{offer['provider']} {offer['instance_type']} in {offer['region']}"
    price_text = f"price of {offer['price']['as_of'][:10]}, {offer['price']['basis']}"
    ratio_text = (
        ""
        if offer["gpu"] == machine["gpu"] or offer["ratio"] == 1
        else f", of whose hours {offer['ratio']:.2f} do one of these"
    )
    return f"{machine['name']} on a cloud: {price_per_hour} ({place_text}; {price_text}){ratio_text}."
