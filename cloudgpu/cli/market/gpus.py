"""`cloudgpu gpus`: what can be bought, from the embedded catalogue; asks no cloud and needs no account."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from typing import Annotated

import typer

from cloudgpu.cli import progress
from cloudgpu.cli.common import Format, Output, Verbose, colour_for, emit
from cloudgpu.cli.launch import options
from cloudgpu.cli.terminal import paged
from cloudgpu.control.catalog.market import Order, gpus_document, parse_filters, use_refreshed_prices


def command(
    *,
    gpu: Annotated[str | None, typer.Option(metavar="NAME[:COUNT]", help="For example v100 or a100-80gb:8.")] = None,
    min_memory: Annotated[str | None, typer.Option(metavar="GIB", help="The least memory per GPU.")] = None,
    max_price: Annotated[str | None, typer.Option(metavar="USD", help="The most to pay per hour.")] = None,
    provider: Annotated[
        str | None, typer.Option(metavar="KIND", help="aws, gcp, azure, lambda, runpod or vast. (the first three)")
    ] = None,
    region: Annotated[
        str | None, typer.Option(metavar="NAME", help="Prices in this region, instead of each type's cheapest.")
    ] = None,
    spot: Annotated[bool, typer.Option("--spot/--on-demand", help="Which market to buy on.")] = False,
    trust: options.Trust = None,
    sort: Annotated[Order, typer.Option(help="What to sort by.")] = Order.PRICE,
    all_: Annotated[bool, typer.Option("--all", "-a", help="Include types that probably cannot be launched.")] = False,
    verbose: Verbose = False,
    output: Output = Format.TEXT,
) -> None:
    """List the GPU machines that can be bought, each in its cheapest region, the cheapest first.

    The prices are a dated list that comes with cloudgpu, not an offer: `up` shows the price before it launches. Marks
    show which are old, derived or unverified; -v explains each.

    WORK/$ is training work per dollar. If a GPU's training speed was not measured, the figure it is estimated from is
    named. If nothing fits, the exit code is still 0. A list longer than the terminal is shown in your pager (PAGER, or
    less).
    """
    from cloudgpu.cli.market.market import offers_text

    use_refreshed_prices(os.environ)
    filters = parse_filters(gpu, min_memory, max_price, provider, region, spot=spot, with_legacy=all_, trust=trust)
    document = gpus_document(filters, sort, datetime.now(UTC))
    text = offers_text(
        document, requested_gpu=gpu, region=region, by_speed=sort is Order.SPEED_PER_DOLLAR, verbose=verbose
    )
    progress.end()  # the terminal is the pager's
    if output is not Format.TEXT or not paged(colour_for(text.rstrip("\n"), sys.stdout)):
        emit(output, document, text)
