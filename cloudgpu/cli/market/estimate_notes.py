"""The notes below the tables of `estimate`: assumptions, what marks mean, and what is missing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

from cloudgpu.cli.market.market import DERIVED_RULE, PARTS_RULE, SPOT_RULE, has_ec2_spot
from cloudgpu.cli.market.offer_text import (
    AZURE_SPOT,
    NO_SINGLE_OBSTACLE,
    RoundedAmountFormatter,
    has_total,
    legacy_notes,
    no_match_lines,
    offer_marks,
    short_type,
    speed_mark,
)
from cloudgpu.cli.render import paragraph, rate_text, wrapped
from cloudgpu.core.values.naming import first_few

if TYPE_CHECKING:
    from cloudgpu.views.documents.market.estimate import Estimate, EstimateDocument


def notes(document: EstimateDocument, format_usd: RoundedAmountFormatter) -> Iterator[str]:
    """Yield the notes below the tables, block by block."""
    estimates = document["estimates"]
    assumptions = (_dates_note(document), *document["marketplaces"], *document["assumptions"])
    paragraphs = (*assumptions, *_sustained_use_note(estimates, format_usd), *_range_note(estimates[0], format_usd))
    yield "\n".join(paragraph(text) for text in paragraphs)
    yield paragraph(document["free_hours"]) if document["free_hours"] else ""
    lines = (*_mark_notes(document), *_derived_notes(estimates), *(f"* {note}" for note in legacy_notes(estimates)))
    yield "\n".join(paragraph(line) for line in (*lines, *_left_out_notes(document)))
    yield "\n".join(
        paragraph(text) for text in (rate_text(document["currency"]), _fees_text(document, format_usd)) if text
    )


def short_table_notes(
    document: EstimateDocument, format_usd: RoundedAmountFormatter, estimates: Sequence[Estimate]
) -> str:
    """Return the notes to the short table: doubts, marks, what the name means, free hours, and fees."""
    lines = [
        *_doubtful_spot_note(estimates),
        _short_marks_text(estimates),
        *document["marketplaces"],
        *_derived_notes(estimates),
        *_matching_gpus_note(document),
        *_fixed_hours_note(document),
        *([document["free_hours"]] if document["free_hours"] else []),
    ]
    lines += [text for text in (rate_text(document["currency"]), _fees_text(document, format_usd)) if text]
    return "\n".join(paragraph(line) for line in lines if line)


def _fixed_hours_note(document: EstimateDocument) -> Iterator[str]:
    """Yield that fixed hours are no fixed work."""
    if document["request"]["hours"] is not None and len({estimate["gpu"] for estimate in document["estimates"]}) > 1:
        yield "The hours are the same on every GPU: a faster one does more in them."


def _doubtful_spot_note(estimates: Sequence[Estimate]) -> Iterator[str]:
    """Yield why some spot prices come last, each reason once."""
    reasons = dict.fromkeys(
        f"{estimate['provider']}: {estimate['uncertain']}" for estimate in estimates if estimate["uncertain"]
    )
    if reasons:
        yield f"Last: spot prices that may not hold ({', '.join(reasons)})."


def _short_marks_text(estimates: Sequence[Estimate]) -> str:
    all_marks = "".join(map(offer_marks, estimates))
    parts = [f"{mark} {meaning}" for mark, meaning in _MARK_MEANINGS.items() if mark in all_marks]
    parts += ["* hardly launched any more"] if any(estimate["legacy"] for estimate in estimates) else []
    return f"Marks: {', '.join(parts)}." if parts else ""


_MARK_MEANINGS = {
    "+": "not priced",
    "<": "at most",
    "~": "derived",
    "?": "unverified",
    "!": "old",
    "m": "less memory",
}


def price_sources(estimates: Sequence[Estimate]) -> str:
    """Return where the prices of these rows are from: of each machine, its disk and its address."""
    lines = []
    for estimate in estimates:
        price = estimate["price"]
        lines.append(
            f"{short_type(estimate)} ({estimate['provider']}): "
            f"{_source_text(price['source'], price['as_of'], price['basis'])}"
        )
        lines += [
            f"  {attached_cost['kind']}: "
            f"{_source_text(attached_cost['source'], attached_cost['as_of'], attached_cost['basis'])}"
            for attached_cost in estimate["attached_costs"]
            if attached_cost["source"]
        ]
    return "\n".join(wrapped(line, "", "    ") for line in dict.fromkeys(lines))


def _source_text(source: str, as_of: str | None, basis: str | None) -> str:
    return f"{source}; {as_of[:10] if as_of else 'undated'}, {basis}"


def _range_note(cheapest: Estimate, format_usd: RoundedAmountFormatter) -> Iterator[str]:
    """Yield the range of the first estimate, which the table leaves out if amounts are long."""
    low, high = cheapest["low"], cheapest["high"]
    if low is not None and high is not None and low != high:
        bounds_text = " and ".join(format_usd.with_code(bound["usd"]) for bound in (low, high))
        yield f"The first is between {bounds_text}."


def _dates_note(document: EstimateDocument) -> str:
    estimates = document["estimates"]
    days = sorted(estimate["price"]["as_of"][:10] for estimate in estimates)
    days_text = f"of {days[0]}" if days[0] == days[-1] else f"of {days[0]} to {days[-1]}"
    request = document["request"]
    region_text = f"in {request['region']}" if request["region"] else "where each is cheapest"
    market = "Spot" if request["market"] == "spot" else "On-demand"
    return (
        f"{market} list prices {days_text}, {region_text}{_attached_dates(estimates)}; -o json has the source of each. "
        "`up` shows what it will pay."
    )


def _attached_dates(estimates: Sequence[Estimate]) -> str:
    """Return of which days the prices of disks and addresses are."""
    days = sorted(
        attached_cost["as_of"][:10]
        for estimate in estimates
        for attached_cost in estimate["attached_costs"]
        if attached_cost["as_of"]
    )
    if not days:
        return ""
    return f"; of disks and addresses of {days[0]}" + (f" to {days[-1]}" if days[-1] != days[0] else "")


def _mark_notes(document: EstimateDocument) -> Iterator[str]:
    estimates = document["estimates"]
    all_marks = "".join(offer_marks(estimate) for estimate in estimates)
    if "+" in all_marks:
        yield f"+ {_unpriced_text(estimates)}"
    if "<" in all_marks:
        yield "< at most: a disk or address has no price there, and the most expensive one known of its kind is used."
    if "~" in all_marks:
        yield f"~ derived: {SPOT_RULE if has_ec2_spot(estimates) else DERIVED_RULE}."
    if "?" in all_marks or any(estimate["unverified"] or estimate["peak_unverified"] for estimate in estimates):
        yield "? unverified: from memory, in no source; after a GPU: its share, number, market or peak."
    if "!" in all_marks:
        yield f"! old: the machine's price is from more than {document['old_after_days']} days ago."
    basis_marks = {
        speed_mark(estimate): estimate["times_as_fast"]["basis"]
        for estimate in estimates
        if estimate["times_as_fast"] and speed_mark(estimate)
    }
    if basis_marks:
        message = ", ".join(f"{mark} {speed_mark}" for mark, speed_mark in sorted(basis_marks.items()))
        yield f"{message}: how fast it is at this work was not measured, and this replaces it."
    past_run = document["past_run"]
    if past_run is not None and any(not estimate["fits"] for estimate in estimates):
        yield (
            f"m less memory per GPU than {past_run['name']} had ({past_run['gpu_memory_gib']:g} GiB): whether "
            "the work fits is not known, so these come last."
        )
    if any(estimate["committed"] for estimate in estimates):
        yield "c committed: what is paid for each hour of the term."
    if any(estimate["provider"] == "azure" and estimate["market"] == "spot" for estimate in estimates):
        yield AZURE_SPOT


def _derived_notes(estimates: Sequence[Estimate]) -> Iterator[str]:
    """Yield how n1 prices are computed, and which disks have a derived price, and how much lower that may be."""
    if any(estimate["provider"] == "gcp" and estimate["price"]["basis"] == "derived" for estimate in estimates):
        yield PARTS_RULE
    spreads: dict[str, Decimal] = {}
    for estimate in estimates:
        for attached_cost in estimate["attached_costs"]:
            if attached_cost["basis"] == "derived" and attached_cost["usd"] is not None:
                usd, low_usd = Decimal(attached_cost["usd"]), Decimal(attached_cost["low_usd"] or attached_cost["usd"])
                name = f"{attached_cost['kind']} at {estimate['provider']}"
                spreads[name] = max(spreads.get(name, Decimal()), 1 - low_usd / usd)
    if spreads:
        spread_texts = [
            f"{name}{f' (may cost up to {largest_share:.0%} less)' if largest_share else ''}"
            for name, largest_share in spreads.items()
        ]
        yield f"Derived, not listed: {', '.join(spread_texts)}."


def _unpriced_text(estimates: Sequence[Estimate]) -> str:
    kinds = {
        f"{resource['part']} {resource['kind']} at {estimate['provider']}": None
        for estimate in estimates
        for resource in estimate["attached_costs"]
        if resource["usd"] is None
    }
    return f"not priced, and in no sum: {', '.join(kinds)}."


def _left_out_notes(document: EstimateDocument) -> Iterator[str]:
    yield from _matching_gpus_note(document)
    if document["withheld"]:
        yield f"Old types, hardly launched any more, with --all: {first_few(document['withheld'])}."
    reasons: dict[str, list[str]] = {}
    for exclusion in document["left_out"]:
        reasons.setdefault(exclusion["why"], []).append(exclusion["gpu"])
    for why, names in reasons.items():
        yield f"Left out: {', '.join(names)}: {why}."


def _matching_gpus_note(document: EstimateDocument) -> Iterator[str]:
    matching = document["matching_gpus"]
    if len(matching) > 1:
        yield f"{document['request']['gpu']} means {', '.join(matching[:-1])} or {matching[-1]}; each row says which."


def _sustained_use_note(estimates: Sequence[Estimate], format_usd: RoundedAmountFormatter) -> Iterator[str]:
    discounted = [estimate for estimate in estimates if estimate["sustained_use_usd"] is not None]
    if discounted:
        first_discounted = discounted[0]
        yield (
            f"Google takes something off N1 machines that run long in a month (sustained use; an estimate, in no sum): "
            f"off {short_type(first_discounted)} {format_usd.with_code(first_discounted['sustained_use_usd'])} a month."
        )


def _fees_text(document: EstimateDocument, format_usd: RoundedAmountFormatter) -> str:
    first_estimate, sentence = document["estimates"][0], document["fees"]
    if first_estimate["with_fees_usd"] is None:
        return str(sentence)
    period_text = "in all" if has_total(document) else "a month"
    return (
        f"The first: {format_usd.with_code(first_estimate['with_fees_usd'])} {period_text} "
        f"{sentence[0].lower()}{sentence[1:]}"
    )


def no_match_text(document: EstimateDocument) -> str:
    """Return why nothing fits, and what would."""
    lines = no_match_lines(
        (obstacle["requirement"], obstacle["types"], obstacle["usd_per_hour"]) for obstacle in document["without"]
    )
    lines += _left_out_notes(document)
    if document["precisions"]:
        lines.append(f"Known of these GPUs: --precision {' or '.join(document['precisions'])}.")
    if not document["without"] and not document["left_out"]:
        lines.append(NO_SINGLE_OBSTACLE)
    return "\n".join(paragraph(line) for line in lines)
