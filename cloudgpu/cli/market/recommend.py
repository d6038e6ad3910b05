"""`cloudgpu recommend`: which GPU for a kind of work, to rent or to buy, and why."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from cloudgpu.cli.common import Format, Output, Verbose, emit, open_session
from cloudgpu.cli.launch import options
from cloudgpu.cli.market.offer_text import (
    SPEED_BASIS_MARKS,
    amount_text,
    basis_mark,
    gpu_count_text,
    short_type,
    work_per_dollar_text,
)
from cloudgpu.cli.money.calculated_text import more_text
from cloudgpu.cli.money.options import Currency, Rate, RateDate, Sources
from cloudgpu.cli.render import cut, dollars, paragraph, table, wrapped
from cloudgpu.views.advice.recommend_sentences import duration_text

if TYPE_CHECKING:
    from cloudgpu.views.documents.market.recommend import (
        DesktopBreakEven,
        RecommendDocument,
        RentableMachine,
        Source,
        Step,
    )


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
    params: Annotated[
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
    gpus: Annotated[
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
    trust: options.Trust = None,  # whose computers are accepted at least
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
    arguments = locals()  # the options alone: there is no other local variable yet
    from cloudgpu.control.advice.recommend import recommendation_document
    from cloudgpu.control.advice.recommend_request import RecommendOptions

    document = recommendation_document(
        open_session(), work, **{name: arguments[name] for name in RecommendOptions.__annotations__}
    )
    emit(output, document, recommendation_text(document, verbose=verbose, sources=sources))


LOCATION_WIDTH = 22
ORDER_NOTE = "Listed by work per dollar, the fewest GPUs first."
SHORT_ROWS = 3  # machines and desktops of the short answer


def recommendation_text(document: RecommendDocument, *, verbose: bool, sources: bool = False) -> str:
    """Return the answer with the first machines and desktops; with `verbose` every step, with `sources` its sources."""
    blocks = [paragraph(document["sentence"])]
    if not verbose:
        lines = [*document["warnings"], *(document["notes"][:1] if document["currency"] else [])]
        blocks += ["\n".join(paragraph(line) for line in lines)] if lines else []
    if document["machines"]:
        blocks.append(_machines_text(document) if verbose else _few_machines_text(document))
    if document["desktops"]:
        blocks.append(_desktops_text(document, verbose=verbose))
    if verbose or sources:
        blocks += [
            _step_text(number, step, with_text=verbose, sources=sources)
            for number, step in enumerate(document["steps"], 1)
        ]
    if verbose:
        blocks += [paragraph(note) for note in document["notes"]]
    free_tier_hours = document["free_hours"]
    last_lines = [ORDER_NOTE] if not verbose and max(len(document["machines"]), len(document["desktops"])) > 1 else []
    last_lines += [paragraph(free_tier_hours["sentence"])] if free_tier_hours is not None and not verbose else []
    last_lines += [more_line] if (more_line := more_text(verbose=verbose, sources=sources).strip()) else []
    return (
        "\n\n".join(blocks)
        + ("\n\n" if len(blocks) == 1 and last_lines else "\n" if last_lines else "")
        + "\n".join(last_lines)
    )


def _few_machines_text(document: RecommendDocument) -> str:
    rows = [_machine_row(machine)[:-1] for machine in document["machines"][:SHORT_ROWS]]
    marks = _price_marks_text(document["machines"][:SHORT_ROWS])
    table_text = table(rows, ["RENT", "GIB", "TYPE", "WHERE", "$/H"], right=(1, 4))
    return f"{table_text}\n{paragraph(f'{marks}.')}" if marks else table_text


def _machines_text(document: RecommendDocument) -> str:
    rows = [_machine_row(machine) for machine in document["machines"]]
    table_text = table(rows, ["RENT", "GIB", "TYPE", "WHERE", "$/H", "WORK/$"], right=(1, 4, 5))
    return f"{table_text}\n{_marks_text(document['machines'])}"


def _machine_row(machine: RentableMachine) -> list[str]:
    return [
        f"{gpu_count_text(machine)} {machine['gpu']}",
        f"{machine['gpu_memory_gib']:g}",
        short_type(machine),
        cut(f"{machine['provider']} {machine['region']}", LOCATION_WIDTH),
        amount_text(machine["price"]["usd_per_hour"]) + (basis_mark(machine) or " "),
        work_per_dollar_text(machine),
    ]


def _marks_text(machines: list[RentableMachine]) -> str:
    lines = ["WORK/$: hours of an H100's work that a dollar buys"]
    speed_bases = {machine["speed"]["basis"] for machine in machines if machine["speed"]}
    lines += [f"{mark}: by {basis}, not measured" for basis, mark in SPEED_BASIS_MARKS.items() if basis in speed_bases]
    if any(machine["speed"] is None for machine in machines):
        lines.append("? in its place: not known")
    price_marks = _price_marks_text(machines)
    return paragraph("; ".join([*lines, price_marks] if price_marks else lines) + ".")


def _price_marks_text(machines: list[RentableMachine]) -> str:
    marks = {basis_mark(machine) for machine in machines}
    meanings = {"~": "a derived price", "?": "an unverified price", "!": "an old price"}
    return "; ".join(f"{mark}: {meaning}" for mark, meaning in meanings.items() if mark in marks)


def _desktops_text(document: RecommendDocument, *, verbose: bool = True) -> str:
    rows = [
        [
            f"{desktop['cards']}x {desktop['gpu']}",
            desktop["paid"],  # which price the card has: used, new, at its launch or yours
            dollars(desktop["card_usd"], 0),
            dollars(desktop["desktop_usd"], 0),
            f"{desktop['watts']:,.0f}",
            _weekly_text(desktop["break_even"]),
            _break_even_text(desktop["break_even"], document),
        ]
        for desktop in (document["desktops"] if verbose else document["desktops"][:SHORT_ROWS])
    ]
    headings = ["BUY", "CARD", "EACH", "DESKTOP", "WATTS", "FROM H/WEEK", "PAID OFF"]
    # PAID OFF needs the hours and a machine to rent, FROM H/WEEK only the machine.
    left_out_count = 2 if not document["machines"] else int(document["hours_per_week"] is None)
    column_count = len(headings) - left_out_count
    desktops_table = table([row[:column_count] for row in rows], headings[:column_count], right=range(2, column_count))
    note = "FROM H/WEEK: for so many hours a week of the first machine or more, the desktop is cheaper over its life."
    return f"{desktops_table}\n{paragraph(note)}" if document["machines"] and verbose else desktops_table


def _weekly_text(break_even: DesktopBreakEven | None) -> str:
    if break_even is None:
        return "?"
    return "never" if break_even["from_hours_per_week"] is None else f"{break_even['from_hours_per_week']:.1f}"


def _break_even_text(break_even: DesktopBreakEven | None, document: RecommendDocument) -> str:
    if document["hours_per_week"] is None:
        return ""
    if break_even is None:
        return "?"
    days = break_even["after_days"]
    return duration_text(None if days is None else timedelta(days=days))


def _step_text(number: int, step: Step, *, with_text: bool, sources: bool) -> str:
    lines = [f"{number}. {step['title']}", *([_indented(step["text"])] if with_text else [])]
    return "\n".join([*lines, *(_source_lines(step["sources"]) if sources else [])])


def _source_lines(sources: list[Source]) -> Iterator[str]:
    for source in sources:
        yield _indented(f"[{source['text']}; {source['as_of']}, {source['basis']}]")


def _indented(text: str) -> str:
    return wrapped(text, "   ", "   ")
