"""What `estimate --nodes` says of several machines as one: the verdict first, then a table, then what it rests on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from cloudgpu.cli.render import paragraph, table, wrapped
from cloudgpu.core.clusters.scaling import GangLoss, figure, gang_sentence

if TYPE_CHECKING:
    from cloudgpu.views.documents.market.nodes import NodesDocument, NodesWorth

HEADINGS = ("GBIT/S", "SPEED-UP", "NO OVERLAP", "COST", "HIDDEN AT", "VERDICT")
UNKNOWN = "-"


def nodes_answer(document: NodesDocument, *, spot: bool) -> str:
    """Return what the machines of the first row are worth together, and how likely a gang of them is lost."""
    first = document["worth"][0]
    return " ".join((first["says"], *([_chance(document, first)] if spot else [])))


def nodes_blocks(document: NodesDocument, rows: int, *, verbose: bool, sources: bool) -> Iterator[str]:
    """Yield the table of so many rows, what it means, and, `verbose`, seconds and what they rest on."""
    shown = document["worth"][:rows]
    yield _table(document, shown)
    yield "\n".join(paragraph(note) for note in _notes(document, shown))
    if verbose:
        yield _seconds(shown)
        yield "\n".join(paragraph(assumption) for assumption in document["assumptions"])
    if sources:
        lines = (f"{_name(one)}: {one['network_source']}" for one in shown if one["network_source"])
        yield "\n".join(wrapped(one, "", "    ") for one in dict.fromkeys(lines))


def own_nodes(document: NodesDocument, nothing: str) -> str:
    """Return the answer for machines that nobody rents out; where no GPU was named, only what `nothing` says."""
    if not document["worth"]:
        return nothing
    text = "\n".join(paragraph(f"{one['gpu']}: {one['says']}") for one in document["worth"])
    price = paragraph(
        "No price: nobody in the catalogue rents it out. COST is that of each result, as times one machine's."
    )
    worths = [one for one in document["worth"] if one["verdict"]]
    tables = [_table(document, worths), _seconds(worths)] if worths else []
    return "\n\n".join((text, *tables, "\n".join(paragraph(one) for one in document["assumptions"]), price))


def _table(document: NodesDocument, rows: Sequence[NodesWorth]) -> str:
    last = len(HEADINGS)
    return table([_cells(worth) for worth in rows], [f"{document['nodes']} MACHINES", *HEADINGS], right=range(1, last))


def _cells(worth: NodesWorth) -> list[str]:
    gbit = worth["network_gbit_per_s"]
    figures = (worth["speed_up"], worth["speed_up_without_overlap"], worth["cost_factor"], worth["hiding_gbit_per_s"])
    return [
        _name(worth),
        UNKNOWN if gbit is None else f"{gbit:g}",
        *(UNKNOWN if number is None else figure(number) for number in figures),
        worth["verdict"] or "not known",
    ]


def _seconds(worths: Sequence[NodesWorth]) -> str:
    """Return how long a step computes and sends, of each type of which that is known."""
    pairs = [(_name(worth), worth["compute_s"], worth["traffic_s"]) for worth in worths]
    cells = [[name, f"{figure(work)} s", f"{figure(sent)} s"] for name, work, sent in pairs if work and sent]
    return table(cells, ["A STEP OF", "COMPUTES", "SENDS"], right=(1, 2)) if cells else ""


def _name(worth: NodesWorth) -> str:
    return (worth["instance_type"] or worth["gpu"]).removeprefix("Standard_")


def _notes(document: NodesDocument, worths: Sequence[NodesWorth]) -> Iterator[str]:
    yield (
        "SPEED-UP and COST (of each result): as times one machine. HIDDEN AT: Gbit/s from which on computing hides the "
        f"traffic. Poor: below 0.8 times {document['nodes']}."
    )
    unlisted = [_name(worth) for worth in worths if worth["network_gbit_per_s"] is None]
    if unlisted:
        yield f"The network of {', '.join(dict.fromkeys(unlisted))} is in no list. Give it: --network 10 (Gbit/s)."
    bursts = [f"{_name(one)} {one['network_up_to_gbit_per_s']:g}" for one in worths if one["network_up_to_gbit_per_s"]]
    if bursts:
        yield f"Counted with the Gbit/s that last; for a while they are up to: {', '.join(bursts)}."
    for worth in worths:
        if worth["network_note"]:
            yield f"{_name(worth)}, {worth['network_fabric']}: {worth['network_note']}."
    others = (worth for worth in worths[1:] if worth["spot_loss"] not in (None, worths[0]["spot_loss"]))
    yield from (f"{_name(one)}: {_chance(document, one)}" for one in others)


def _chance(document: NodesDocument, worth: NodesWorth) -> str:
    loss = worth["spot_loss"]
    if loss is None:
        return (
            f"Any loss restarts all {document['nodes']}: how often they are taken is in no list, nor in your ledger. "
            "Give the chance of an hour: --spot-loss 5%"
        )
    each = (loss["one_least"], loss["one_most"])
    return gang_sentence(GangLoss(document["nodes"], loss["per"], each, loss["source"]))
