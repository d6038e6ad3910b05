"""`cloudgpu compare`: the cloud compared with an owned desktop, from the ledger, or from a price and a utilization."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cloudgpu.cli.common import Format, Output, Verbose, emit, open_session
from cloudgpu.cli.launch.options import OptionalText, text_option
from cloudgpu.cli.money import options
from cloudgpu.cli.money.calculated_text import calculated_text, desktops_text
from cloudgpu.errors import InvalidRequest

if TYPE_CHECKING:
    from cloudgpu.control.advice.compare_request import CompareRequest
    from cloudgpu.control.session.session import Session


# The parts of --help, the common options first.
GROUPS = {
    "Common options": (
        "--gpu", "--hours-per-day", "--years", "--desktop", "--since", "--until", "--chart", "--verbose", "--sources",
    ),
    "What is rented": ("--utilization", "--price", "--spot", "--work"),
    "The desktop": (
        "--desktops", "--purchase", "--life", "--resale", "--maintenance", "--depreciation", "--yearly-loss",
    ),
    "Its electricity": ("--tariff", "--watts", "--system-watts", "--idle-watts", "--pue"),
    "Money over time": ("--interest", "--price-drift", "--vat"),
    "Currency and days": ("--currency", "--rate", "--rate-date", "--tz"),
}  # fmt: skip


def command(
    *,
    gpu: Annotated[OptionalText, text_option("NAME[:COUNT]", "Calculator: the GPU that is rented, like v100.")] = None,
    price: Annotated[
        OptionalText, text_option("AMOUNT", "Calculator: the machine's price per hour; by default the catalogue's.")
    ] = None,
    spot: Annotated[
        bool, typer.Option("--spot", help="Calculator: the catalogue's spot price, not the on-demand one.")
    ] = False,
    utilization: Annotated[
        OptionalText,
        text_option("SHARE", "Calculator: 15% of the time, or personal, phd-desktop, phd-cluster, company-cluster."),
    ] = None,
    hours_per_day: Annotated[OptionalText, text_option("HOURS", "Calculator: the same as hours a day.")] = None,
    years: Annotated[
        OptionalText, text_option("YEARS", "Calculator: how many years; by default the desktop's life.")
    ] = None,
    work: options.Work = None,
    desktop: options.Desktop = None,
    desktops: Annotated[
        bool, typer.Option("--desktops", help="List the desktops that can be named, and no more.")
    ] = False,
    purchase: Annotated[
        OptionalText, text_option("AMOUNT", "The desktop's price: 2200, or '7500000 KRW' at a known rate.")
    ] = None,
    watts: Annotated[OptionalText, text_option("WATTS", "Watts of one of its cards at work.")] = None,
    system_watts: Annotated[OptionalText, text_option("WATTS", "Watts of the rest of it at work.")] = None,
    idle_watts: Annotated[OptionalText, text_option("WATTS", "Watts while it is idle; 0 if switched off.")] = None,
    tariff: Annotated[OptionalText, text_option("AMOUNT", "What a kilowatt-hour costs.")] = None,
    pue: Annotated[OptionalText, text_option("NUMBER", "Power with cooling, per watt of the desktop: 1 to 10.")] = None,
    maintenance: Annotated[OptionalText, text_option("AMOUNT", "Other costs of it per year.")] = None,
    resale: Annotated[OptionalText, text_option("AMOUNT", "Its resale price at the end of its life.")] = None,
    life: Annotated[OptionalText, text_option("YEARS", "Years until it is replaced.")] = None,
    depreciation: Annotated[
        OptionalText,
        text_option("WAY", "market (as used ones sell), none (as it is paid), straight-line or declining."),
    ] = None,
    yearly_loss: Annotated[
        OptionalText, text_option("SHARE", "With declining: how much value it loses a year, like 20%.")
    ] = None,
    interest: Annotated[
        OptionalText, text_option("SHARE", "The cost of capital a year, like 5%. [default: 0%]")
    ] = None,
    price_drift: Annotated[
        OptionalText, text_option("SHARE", "How cloud prices change a year, like -10%. [default: 0%]")
    ] = None,
    vat: Annotated[OptionalText, text_option("SHARE", "VAT on every purchase, like 19%. [default: 0%]")] = None,
    since: options.Since = None,
    until: options.Until = None,
    tz: options.Tz = None,
    currency: options.Currency = None,
    rate: options.Rate = None,
    rate_date: options.RateDate = None,
    verbose: Verbose = False,
    sources: options.Sources = False,
    chart: Annotated[
        bool,
        typer.Option("--chart", help="Draw what the cloud and the desktop have cost over the years, for the table."),
    ] = False,
    output: Output = Format.TEXT,
) -> None:
    """Compare the cloud with an owned desktop that does the same work.

    Without options it reads the ledger: what machines have cost, and what a desktop would have cost for their active
    hours. With --price, --utilization or --hours-per-day it is a calculator that reads no ledger. It shows when the
    desktop pays for itself, and above which use and price it is cheaper over its life.

    A desktop's figures have a source and a date (--desktops lists them); options replace single figures.
    """
    arguments = locals()  # the options alone: there is no other local variable yet
    from cloudgpu.control.advice.compare_request import CompareOptions, parse_compare

    if chart and output is not Format.TEXT:
        raise InvalidRequest(
            "--chart draws in the terminal, and -o json is given too.",
            field="--chart",
            value=None,
            next="Leave one of them out; json has the timeline.",
        )
    session = open_session()
    if desktops:
        _list_desktops(
            session, {name: arguments[name] for name in CompareOptions.__annotations__ if arguments[name]}, output
        )
        return
    request = parse_compare(session, **{name: arguments[name] for name in CompareOptions.__annotations__})
    if request.rented is None:
        _compare_from_ledger(session, request, output, verbose=verbose, sources=sources, chart=chart)
        return
    from cloudgpu.control.advice.rent_or_buy import build_rent_or_buy_document

    document = build_rent_or_buy_document(session, request, request.rented)
    emit(output, document, calculated_text(document, request.currency, verbose=verbose, sources=sources, chart=chart))


def _compare_from_ledger(
    session: Session, request: CompareRequest, output: Format, *, verbose: bool, sources: bool, chart: bool
) -> None:
    from cloudgpu.cli.money.compare_text import compare_text
    from cloudgpu.control.advice.compare import compare_with_desktop

    document = compare_with_desktop(session, request)
    text = compare_text(document, request.currency, request.zone, verbose=verbose, sources=sources, chart=chart)
    emit(output, document, text)


def _list_desktops(session: Session, typed_options: dict[str, object], output: Format) -> None:
    from cloudgpu.control.advice.desktop_choice import desktops_document

    for name, value in typed_options.items():
        option = f"--{name.replace('_', '-')}"
        raise InvalidRequest(
            f"--desktops lists all of them, and has no use for {option}.",
            field=option,
            value=str(value),
            next="Run: cloudgpu compare --desktops",
        )
    document = desktops_document(session)
    emit(output, document, desktops_text(document))
