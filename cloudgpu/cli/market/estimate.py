"""`cloudgpu estimate`: what machines would cost on every provider, side by side; needs no account."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, cast

import typer

from cloudgpu.cli.common import Format, Output, Verbose, emit, open_session
from cloudgpu.cli.launch.options import OptionalText, OptionalTexts, Trust, text_option
from cloudgpu.cli.money.options import Currency, Rate, RateDate, Sources

if TYPE_CHECKING:
    from cloudgpu.control.advice.estimate_request import EstimateOptions


# The parts of --help, the common options first.
GROUPS = {
    "Common options": (
        "--gpu",
        "--hours-per-day",
        "--days-per-week",
        "--hours",
        "--spot",
        "--provider",
        "--region",
        "--trust",
        "--all",
        "--verbose",
        "--sources",
    ),
    "Work that ends": ("--flops", "--precision", "--efficiency", "--like", "--work"),
    "Several machines as one": (
        "--nodes",
        "--params",
        "--trainable",
        "--tokens",
        "--network",
        "--spot-loss",
    ),
    "What is rented": ("--instance-type", "--number", "--disk", "--disk-type", "--address", "--committed"),
    "Currency": ("--currency", "--rate", "--rate-date"),
}


def command(
    *,
    gpu: Annotated[OptionalText, text_option("NAME[:COUNT]", "For example l4 or a100-80gb:8.")] = None,
    instance_type: Annotated[OptionalText, text_option("NAME", "An instance type, like g6.xlarge.")] = None,
    number: Annotated[str, text_option("N", "How many machines.")] = "1",
    spot: Annotated[bool, typer.Option("--spot/--on-demand", help="Which market to buy on.")] = False,
    provider: Annotated[
        OptionalText, text_option("KIND", "aws, gcp, azure, lambda, runpod or vast. (the first three)")
    ] = None,
    trust: Trust = None,
    region: Annotated[OptionalText, text_option("NAME", "Only this region, instead of the cheapest.")] = None,
    disk_type: Annotated[
        OptionalTexts,
        text_option("TYPE", "gp3, pd-ssd, standard-ssd, ...; repeat it for another cloud."),
    ] = None,
    disk: Annotated[str, text_option("GB", "The size of each machine's disk; 0 counts none.")] = "100",
    address: Annotated[str, text_option("KIND", "ephemeral (while it runs), static or none.")] = "ephemeral",
    committed: Annotated[
        OptionalText, text_option("TERM", "1y or 3y where known, or what you were quoted: 37%.")
    ] = None,
    hours_per_day: Annotated[OptionalText, text_option("H", "Hours of use per day. (24)")] = None,
    days_per_week: Annotated[OptionalText, text_option("D", "Days of use per week. (7)")] = None,
    hours: Annotated[OptionalText, text_option("H", "Hours of use in all, for work that ends.")] = None,
    flops: Annotated[OptionalText, text_option("N", "Operations of the work, like 3.1e20, instead of hours.")] = None,
    precision: Annotated[OptionalText, text_option("TYPE", "With --flops: fp32, fp16, bf16 or fp8. (fp16)")] = None,
    efficiency: Annotated[
        OptionalText, text_option("PART", "Share of the peak speed. (0.3, of 0.2 to 0.5; --nodes: 0.4)")
    ] = None,
    like: Annotated[
        OptionalText, text_option("NAME", "The work of this machine in the ledger, instead of hours.")
    ] = None,
    work: Annotated[OptionalText, text_option("KIND", "With --like: training or inference. (training)")] = None,
    nodes: Annotated[OptionalText, text_option("N", "Whether N machines train so much faster than one.")] = None,
    params: Annotated[OptionalText, text_option("N", "With --nodes: the model's parameters, like 7B.")] = None,
    trainable: Annotated[OptionalText, text_option("N", "How many of them are trained: 40M for LoRA. (all)")] = None,
    tokens: Annotated[OptionalText, text_option("N", "Tokens per GPU and step. (8192)")] = None,
    network: Annotated[
        OptionalText, text_option("GBIT", "What one machine sends, in Gbit/s, instead of its type's.")
    ] = None,
    spot_loss: Annotated[OptionalText, text_option("PART", "The chance that one is taken in an hour, like 5%.")] = None,
    all_: Annotated[
        bool, typer.Option("--all", "-a", help="Every type, including those that probably cannot be launched.")
    ] = False,
    currency: Currency = None,
    rate: Rate = None,
    rate_date: RateDate = None,
    verbose: Verbose = False,
    sources: Sources = False,
    output: Output = Format.TEXT,
) -> None:
    """Estimate what machines cost on every provider, cheapest first: machine, disk and address.

    For continuous use, it shows a day, a month and a year (--hours-per-day, --days-per-week). For work that ends, it
    shows the hours and the total cost: give --hours, or the work as --flops or as --like, a machine that did it before.
    Each row is the cheapest type of a GPU at a provider, in its cheapest region; --all shows every type.

    With --nodes and --params, it first says whether so many machines train faster than one, and what each result
    costs then. For machines of your own, add --gpu and --network.

    Prices are a dated list that comes with cloudgpu, or those of the last `catalog refresh`; they are not offers. -v
    shows how each sum is made, --sources where each price is from. If nothing fits, the exit code is still 0.
    """
    typed_options = locals()  # the options alone: there is no other local variable yet
    from cloudgpu.control.advice.estimate_request import EstimateOptions

    typed_options["all"] = all_
    _print_estimate(
        cast("EstimateOptions", {name: typed_options[name] for name in EstimateOptions.__annotations__}),
        output,
        verbose=verbose,
        sources=sources,
    )


def _print_estimate(options: EstimateOptions, output: Format, *, verbose: bool, sources: bool) -> None:
    from datetime import UTC, datetime

    from cloudgpu.cli.market.estimate_text import estimate_text
    from cloudgpu.control.advice.estimate import estimate_document, estimate_without_ledger
    from cloudgpu.control.advice.estimate_request import parse_estimate

    if options.get("like") is None and not _needs_history(options):
        document, request = estimate_without_ledger(os.environ, datetime.now(UTC), options)
    else:
        session = open_session()
        request = parse_estimate(session.settings, session.clock(), **options)
        document = estimate_document(session, request, session.ledger.machines() if _needs_history(options) else ())
    emit(
        output,
        document,
        estimate_text(document, request.currency, verbose=verbose, sources=sources, all_rows=request.one_row_per_type),
    )


def _needs_history(options: EstimateOptions) -> bool:
    """Say whether the ledger may know how often such machines are taken."""
    return options.get("nodes") is not None and options.get("spot_loss") is None and bool(options.get("spot"))
