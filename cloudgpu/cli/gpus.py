"""`cloudgpu gpus`: what can be bought, from the embedded catalogue; asks no cloud and needs no account."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from cloudgpu.cli.common import Format, Output, emit
from cloudgpu.control.market import Filters, Order, market_value
from cloudgpu.control.wishes import gpu_wish, memory_wish, price_wish
from cloudgpu.core.facts import Market
from cloudgpu.errors import InvalidRequest


def command(
    *,
    gpu: Annotated[str | None, typer.Option(metavar="NAME[:COUNT]", help="For example v100 or a100-80gb:8.")] = None,
    min_memory: Annotated[str | None, typer.Option(metavar="GIB", help="The least memory per GPU.")] = None,
    max_price: Annotated[str | None, typer.Option(metavar="USD", help="The most to pay per hour.")] = None,
    provider: Annotated[str | None, typer.Option(metavar="KIND", help="aws, gcp or azure.")] = None,
    region: Annotated[
        str | None, typer.Option(metavar="NAME", help="Prices in this region, not in each type's cheapest.")
    ] = None,
    spot: Annotated[bool, typer.Option("--spot/--on-demand", help="On which market to buy.")] = False,
    sort: Annotated[Order, typer.Option(help="What stands first.")] = Order.PRICE,
    all_: Annotated[bool, typer.Option("--all", "-a", help="Also types that can probably not be launched.")] = False,
    output: Output = Format.TEXT,
) -> None:
    """List the GPU machines that can be bought, each at its cheapest region.

    The prices are a dated list that comes with cloudgpu, not an offer: `up` shows the price before it launches.
    The table says which are old, derived or recalled. WORK/$ is training work per dollar; where a GPU's training
    speed was not measured, the stand-in is named beside the figure. Nothing that fits is no error (exit code 0).
    """
    from cloudgpu.cli.market import offers_text

    model, count = gpu_wish(gpu)
    filters = Filters(
        gpu=model,
        gpu_count=count,
        min_memory_gib=memory_wish(min_memory),
        max_price=price_wish(max_price),
        provider=_provider(provider),
        region=region,
        market=Market.SPOT if spot else Market.ON_DEMAND,
        legacy=all_,
    )
    value = market_value(filters, sort, datetime.now(UTC))
    emit(output, value, offers_text(value, asked=gpu, region=region))


def _provider(name: str | None) -> str | None:
    if name in ("local", "ssh"):
        raise InvalidRequest(
            f"The catalogue lists what clouds sell; {name} is a machine that is there already.",
            field="--provider",
            value=name,
            next=f"Run: cloudgpu up --provider {name} --dry-run",
        )
    return name
