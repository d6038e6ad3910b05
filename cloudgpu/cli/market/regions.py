"""`cloudgpu regions`: where an account may launch, what a GPU costs there now, and how far it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cloudgpu.cli.common import Format, Output, emit, exit_if_unanswered, open_session, provider_option
from cloudgpu.cli.launch import options
from cloudgpu.cli.render import dollars, paragraph, table

if TYPE_CHECKING:
    from cloudgpu.control.catalog.regions import RegionsQuery
    from cloudgpu.views.documents.market.market import RegionsDocument


def command(
    *,
    provider: Annotated[
        str | None, provider_option("Whose regions: aws, azure, gcp, lambda, runpod, vast or a plug-in.")
    ] = None,
    account: Annotated[
        str | None, typer.Option(metavar="NAME", help="An account of the provider in config.toml.")
    ] = None,
    gpu: Annotated[
        str | None, typer.Option(metavar="NAME[:COUNT]", help="What it costs there, like v100 or a100:8.")
    ] = None,
    spot: Annotated[bool, typer.Option("--spot/--on-demand", help="Which market to buy on.")] = False,
    ping: Annotated[bool, typer.Option("--ping", help="Time a TCP connection to each region's endpoint.")] = False,
    trust: options.Trust = None,
    sort: Annotated[str | None, typer.Option(metavar="WHAT", help="Sort by price, ping or name.")] = None,
    output: Output = Format.TEXT,
) -> None:
    """List the regions of an account: what a GPU costs in each, and how far away each is.

    The price is that of the cheapest machine with the GPU that the provider launches there now. Spot prices are live;
    on-demand prices of AWS, Google Cloud and Azure are from the dated catalogue. On Lambda, RunPod and vast.ai all
    prices are live, and without an answer the catalogue's. A region is a data centre on RunPod, and on vast.ai a
    country in which hosts offer something now. Exit code 8 if a region did not answer: it is named.
    """
    from cloudgpu.control.catalog.regions import parse_query, regions_document

    query = parse_query(gpu=gpu, spot=spot, ping=ping, sort=sort, trust=trust)
    document = regions_document(open_session(), query, account=account, provider=provider)
    emit(output, document, _regions_text(document, query))
    exit_if_unanswered(document["unanswered"], "{}: no answer: {}".format)


def _regions_text(document: RegionsDocument, query: RegionsQuery) -> str:
    from cloudgpu.control.catalog.regions import price_sources

    sold_regions = [region for region in document["regions"] if query.gpu is None or region["price"]]
    unsold_regions = [region["region"] for region in document["regions"] if region not in sold_regions]
    columns = [("REGION", [region["region"] for region in sold_regions])]
    if query.needs_pings:
        columns.append(
            ("PING", ["-" if region["ping_ms"] is None else f"{region['ping_ms']:.0f}" for region in sold_regions])
        )
    if query.gpu:
        columns += [
            ("$/H", [dollars(region["price"] and region["price"]["usd_per_hour"], 4) for region in sold_regions]),
            ("TYPE", [region["instance_type"] or "" for region in sold_regions]),
            ("ZONE", [region["zone"] or "" for region in sold_regions]),
        ]
    headings = [heading for heading, _ in columns]
    cells = [[column[number] for _, column in columns] for number in range(len(sold_regions))]
    right = [number for number, heading in enumerate(headings) if heading in ("PING", "$/H")]
    market = document["market"].replace("_", "-")
    notes = [
        f"{market} prices of {query.gpu}: {'; '.join(price_sources(sold_regions))}."
        if query.gpu and sold_regions
        else "",
        f"Not sold there now: {', '.join(unsold_regions)}." if unsold_regions else "",
        _prices_note(document),
        "One address answers for all of these regions: PING says nothing of how far each is."
        if query.needs_pings and document["one_address"]
        else "",
        "PING is the median of three TCP connections, in ms; - did not answer." if query.needs_pings else "",
    ]
    lines = [paragraph(note) for note in notes if note]
    return "\n".join([table(cells, headings, right=right), *([""] if lines else []), *lines])


def _prices_note(document: RegionsDocument) -> str:
    """Return a note if prices are those of a marketplace, or from the catalogue instead of the provider."""
    from cloudgpu.core.catalog.catalog import MARKETPLACES

    if not any(region["price"] for region in document["regions"]):
        return ""
    is_marketplace, has_live_prices = document["provider"] in MARKETPLACES, document["live"]
    catalogue_text = (
        "" if has_live_prices else "These prices are the dated catalogue's, which does not know what is in stock. "
    )
    if not is_marketplace:
        return catalogue_text.rstrip()
    price_text = (
        "the lowest of this moment, without disk and traffic"
        if has_live_prices
        else "medians of the market on those days"
    )
    return f"{catalogue_text}Hosts there ask what they like: these are {price_text}, and change within hours."
