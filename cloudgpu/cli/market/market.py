"""The answer of `gpus` as text: the first offer, a table of at most 80 columns, and what its marks mean."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from cloudgpu.cli.market.offer_text import (
    AZURE_SPOT,
    NO_SINGLE_OBSTACLE,
    SPEED_BASIS_MARKS,
    amount_text,
    basis_mark,
    gpu_count_text,
    is_doubtful,
    legacy_notes,
    no_match_lines,
    short_type,
    work_per_dollar_text,
)
from cloudgpu.cli.render import fitted, paragraph, price_briefly, table, wrapped
from cloudgpu.core.values.naming import first_few

if TYPE_CHECKING:
    from cloudgpu.views.documents.market.catalog import GpuOffer, GpusDocument
    from cloudgpu.views.documents.market.estimate import Estimate


LOCATION_COLUMN = 3  # is cut when the table is too wide
EC2_SPOT_ERROR = "off by -22% to +80%"  # of this list's prices, compared with EC2's
SPOT_RULE = f"EC2 spot is the list price less the published savings of June 2025, {EC2_SPOT_ERROR} where observed"
DERIVED_RULE = "computed from other prices"
PARTS_RULE = "Some of Google's prices are sums: of the list prices of the machine and of its GPUs."


def offers_text(
    document: GpusDocument,
    *,
    requested_gpu: str | None,
    region: str | None,
    by_speed: bool = False,
    verbose: bool = False,
) -> str:
    """Return the first offer, what the list contains, the table, and what its marks mean: `verbose`, one by one.

    `requested_gpu` is the GPU as it was typed, `region` the only one, if any.
    """
    offers = document["offers"]
    if not offers:
        obstacles = [
            (obstacle["requirement"], obstacle["types"], obstacle["from"]["usd_per_hour"])
            for obstacle in document["without"]
        ]
        return "\n".join([*no_match_lines(obstacles), *([] if obstacles else [NO_SINGLE_OBSTACLE])])
    headings = ["GPU", "GIB", "TYPE", "WHERE", "$/H", "WORK/$"]
    rows = fitted([_offer_row(offer) for offer in offers], headings, LOCATION_COLUMN)
    marks = (
        [*_price_mark_notes(offers, document), *_speed_mark_notes(offers)]
        if verbose
        else [_marks_briefly(offers, document)]
    )
    notes = [_matching_gpus_text(document["matching_gpus"], requested_gpu), *marks, *_azure_spot_note(offers)]
    notes += map(paragraph, document["marketplaces"])
    notes += [
        *(_marked_note("*", legacy_note) for legacy_note in legacy_notes(offers)),
        *_withheld_note(document["withheld"]),
        *_left_out_note(document["left_out"]),
    ]
    answer = _answer_text(document, region, by_speed=by_speed)
    return "\n".join([answer, "", table(rows, headings, right=(1, 4, 5)), "", *filter(None, notes)])


def _answer_text(document: GpusDocument, region: str | None, *, by_speed: bool) -> str:
    """Return the first offer with its price, and what the list contains."""
    offers = document["offers"]
    first_offer, offer_count = offers[0], len(offers)
    is_best = by_speed and first_offer["h100_hours_per_dollar"] is not None
    lead_text = "Most work for a dollar" if is_best else "Cheapest"
    place_text = f"{first_offer['provider']} {first_offer['instance_type']} in {first_offer['region']}"
    best_text = paragraph(
        f"{lead_text}: {gpu_count_text(first_offer)} {first_offer['gpu']}, {place_text}, "
        f"{price_briefly(first_offer['price'])}."
    )
    scope_text = f"One of {offer_count} machine types" if offer_count > 1 else "The only machine type that fits"
    return f"{best_text}\n{paragraph(f'{scope_text}, {_dates_text(document, region)}.')}"


def _marks_briefly(offers: Sequence[GpuOffer], document: GpusDocument) -> str:
    """Return what the marks mean in a few words each; the error of derived spot prices is always included."""
    marks = {basis_mark(offer) for offer in offers}
    has_unverified = "?" in marks or any(offer["unverified"] or offer["speed"] is None for offer in offers)
    speed_bases = {offer["speed"]["basis"] for offer in offers if offer["speed"]}
    basis_marks = ", ".join(mark for basis, mark in SPEED_BASIS_MARKS.items() if basis in speed_bases)
    mark_texts = [
        f"~ derived{f' (EC2 spot was {EC2_SPOT_ERROR} where observed)' * has_ec2_spot(offers)}" if "~" in marks else "",
        "? unverified, or not known" if has_unverified else "",
        f"! older than {document['old_after_days']} days" if "!" in marks else "",
        "some of Google's prices are sums of machine and GPUs" if _has_parts(offers) else "",
        f"{basis_marks}: its speed was not measured" if basis_marks else "",
    ]
    message = "; ".join([*filter(None, mark_texts), "WORK/$: hours of an H100's training for a dollar"])
    return paragraph(f"{message}. -v says more.")


def has_ec2_spot(offers: Sequence[GpuOffer] | Sequence[Estimate]) -> bool:
    """Say whether the price of a spot machine of EC2 is among these."""
    return any(offer["provider"] == "aws" and offer["market"] == "spot" for offer in offers)


def _has_parts(offers: Sequence[GpuOffer]) -> bool:
    """Say whether a price is the sum of Google's list prices of a machine and its GPUs."""
    return any(offer["provider"] == "gcp" and offer["price"]["basis"] == "derived" for offer in offers)


def _offer_row(offer: GpuOffer) -> list[str]:
    return [
        f"{gpu_count_text(offer)} {offer['gpu']}" + ("?" if offer["unverified"] else ""),
        f"{offer['gpu_memory_gib']:g}",
        short_type(offer) + ("*" if is_doubtful(offer) else ""),
        f"{offer['provider']} {offer['region']}",
        amount_text(offer["price"]["usd_per_hour"]) + (basis_mark(offer) or " "),
        work_per_dollar_text(offer),
    ]


def _matching_gpus_text(matching: list[str], requested_gpu: str | None) -> str:
    if len(matching) < 2:  # noqa: PLR2004  (one is what was asked for)
        return ""
    model = (requested_gpu or "").partition(":")[0]
    return paragraph(f"{model} means {', '.join(matching[:-1])} or {matching[-1]}; each row says which.")


def _dates_text(document: GpusDocument, region: str | None) -> str:
    days = sorted(offer["price"]["as_of"][:10] for offer in document["offers"])
    days_text = f"of {days[0]}" if days[0] == days[-1] else f"of {days[0]} to {days[-1]}"
    region_text = f"in {region}" if region else "each in its cheapest region"
    market = "spot" if document["offers"][0]["market"] == "spot" else "on-demand"
    return f"{region_text}, at {market} list prices {days_text}, in USD; `up` shows what it will pay"


def _price_mark_notes(offers: list[GpuOffer], document: GpusDocument) -> Iterator[str]:
    marks = {basis_mark(offer) for offer in offers}
    if "~" in marks:
        yield _marked_note("~", f"derived: {SPOT_RULE if has_ec2_spot(offers) else DERIVED_RULE}.")
    if "?" in marks or any(offer["unverified"] for offer in offers):
        yield _marked_note(
            "?", "unverified: from memory, in no source; after a GPU: its share, its number or its market."
        )
    if "!" in marks:
        yield _marked_note("!", f"old: the price is from more than {document['old_after_days']} days ago.")
    if _has_parts(offers):
        yield paragraph(PARTS_RULE)


def _azure_spot_note(offers: Sequence[GpuOffer]) -> Iterator[str]:
    if any(offer["provider"] == "azure" and offer["market"] == "spot" for offer in offers):
        yield paragraph(AZURE_SPOT)


def _speed_mark_notes(offers: list[GpuOffer]) -> Iterator[str]:
    yield _marked_note("WORK/$", "hours of one H100 SXM's training that a dollar buys; GPUs added up.")
    speed_bases = {offer["speed"]["basis"] for offer in offers if offer["speed"]}
    for basis, mark in SPEED_BASIS_MARKS.items():
        if basis in speed_bases:
            yield _marked_note(mark, f"training speed not measured: {basis} against an H100's replaces it.")
    if any(offer["speed"] is None for offer in offers):
        yield _marked_note("?", "under WORK/$: nothing is known of this GPU's speed.")


def _withheld_note(names: list[str]) -> Iterator[str]:
    if names:
        yield paragraph(
            f"Old types, hardly launched any more, with --all: {first_few(names)}. up finds them where they are."
        )


def _left_out_note(names: Iterable[str]) -> Iterator[str]:
    shown_names = [name.removeprefix("Standard_") for name in names]
    if shown_names:
        yield paragraph(f"Priced but not listed, for want of their size: {first_few(shown_names)}; -o json says why.")


def _marked_note(mark: str, text: str) -> str:
    return wrapped(text, f"{mark}  ", " " * (len(mark) + 2))
