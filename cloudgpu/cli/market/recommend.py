"""`cloudgpu recommend`: which GPU for a kind of work, to rent or to buy, and why."""

from __future__ import annotations

from typing import Annotated

import typer

from cloudgpu.cli.common import Format, Output, Verbose, emit, open_session
from cloudgpu.cli.launch import options
from cloudgpu.cli.money.options import Currency, Rate, RateDate, Sources


def command(
    work: Annotated[
        str | None,
        typer.Argument(
            metavar="[WORK]",
            help="kaggle, prototyping, vision, transformers, research, image-generation, video, "
            "reinforcement-learning, fine-tuning or inference.",
        ),
    ] = None,
    *,
    parameters: Annotated[
        str | None, typer.Option(metavar="N", help="The model's size: 7b, 350m. For fine-tuning and inference.")
    ] = None,
    method: Annotated[
        str | None, typer.Option(metavar="HOW", help="full, lora or qlora: which part of the model is trained.")
    ] = None,
    precision: Annotated[
        str | None, typer.Option(metavar="TYPE", help="fp32, fp16, bf16, int8 or int4: the format of the weights.")
    ] = None,
    memory: Annotated[
        str | None, typer.Option(metavar="GIB", help="The memory it takes, instead of the estimate.")
    ] = None,
    cards: Annotated[
        str | None, typer.Option(metavar="N", help="Use this many GPUs, instead of as few as can hold it.")
    ] = None,
    hours_per_week: Annotated[
        str | None, typer.Option(metavar="H", help="Hours of use per week; decides between renting and buying.")
    ] = None,
    max_price: Annotated[str | None, typer.Option(metavar="USD", help="The most to pay per hour of renting.")] = None,
    budget: Annotated[str | None, typer.Option(metavar="AMOUNT", help="The most to pay for a desktop at once.")] = None,
    tariff: Annotated[
        str | None,
        typer.Option(metavar="AMOUNT", help="What a kWh costs: 0.30, or '0.35 EUR'. Default: the desktop's tariff."),
    ] = None,
    card_price: Annotated[
        list[str] | None,
        typer.Option(metavar="CARD=AMOUNT", help="What a card costs you, like 3090=650; repeat it for another."),
    ] = None,
    provider: Annotated[
        str | None, typer.Option(metavar="KIND", help="Rent at aws, gcp, azure, lambda, runpod or vast.")
    ] = None,
    region: Annotated[str | None, typer.Option(metavar="NAME", help="Rent in this region.")] = None,
    trust: options.Trust = None,
    spot: Annotated[bool, typer.Option("--spot/--on-demand", help="Which market to rent on.")] = False,
    currency: Currency = None,
    rate: Rate = None,
    rate_date: RateDate = None,
    verbose: Verbose = False,
    sources: Sources = False,
    output: Output = Format.TEXT,
) -> None:
    """Recommend a GPU for a kind of work: to rent, or to buy for a desktop.

    The work decides how much memory it takes, the memory decides which GPUs can hold it, and of those the one that does
    most per dollar comes first. It also shows from how many hours a week a desktop is cheaper. -v shows every step,
    --sources what each is based on. Prices are from the dated catalogue; no cloud is queried.
    """
    asked = locals()  # before anything else is one
    from cloudgpu.cli.market.recommend_text import text
    from cloudgpu.control.advice.recommend import recommendation_document
    from cloudgpu.control.advice.recommend_request import RecommendOptions

    value = recommendation_document(
        open_session(), work, **{name: asked[name] for name in RecommendOptions.__annotations__}
    )
    emit(output, value, text(value, verbose=verbose, sources=sources))
