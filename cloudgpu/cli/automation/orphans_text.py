"""The tables of `cloudgpu orphans`, for a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import groupby
from typing import TYPE_CHECKING

from cloudgpu.cli.machine_text import account_lines
from cloudgpu.cli.render import dollars, facts, paragraph, rounded, table
from cloudgpu.core.values.times import from_iso

if TYPE_CHECKING:
    from cloudgpu.views.documents.machines.storage import Orphan, OrphansDocument


def listing(document: OrphansDocument, now: datetime, *, cleaned: bool) -> str:
    """Return all that is left over: first what cleaning removes, then what stays and why."""
    orphans = document["orphans"]
    if not orphans:
        return "\n".join([_nothing(document), *account_lines(document)])
    goes, stays = ([orphan for orphan in orphans if (orphan["do"] == "stay") is kept] for kept in (False, True))
    parts = [_things("Left over:", goes, now), _staying(stays, now), paragraph(_total(document))]
    if goes and document["removable_usd_per_month"] == "0":
        parts.append("To remove orphaned resources: cloudgpu orphans --clean")
    elif cleaned:
        parts.append("Nothing of it can be removed now.")
    return "\n\n".join(part for part in (*parts, "\n".join(account_lines(document))) if part)


def _nothing(document: OrphansDocument) -> str:
    return (
        "No orphaned resources were found in the regions that answered."
        if document["unanswered"]
        else "No orphaned resources."
    )


def going(document: OrphansDocument, now: datetime) -> str:
    """Return what `--clean` is about to remove, and what stays: to be read before the question."""
    orphans = document["orphans"]
    goes = [orphan for orphan in orphans if orphan["do"] != "stay"]
    stays = [orphan for orphan in orphans if orphan["do"] == "stay"]
    saving = f"To be removed, {dollars(document['removable_usd_per_month'])} a month where a price is known:"
    return "\n\n".join(part for part in (_things(saving, goes, now), _images(goes), _staying(stays, now)) if part)


def gone(document: OrphansDocument, now: datetime) -> str:
    """Return what has become of what was to be removed."""
    saved = [f"Kept as image {one['image']['name']}: {_word(one)} {one['id']}" for one in document["removed"]
             if one["image"]]  # fmt: skip
    lines = [f"Gone: {_word(orphan)} {_id(orphan)} ({_monthly(orphan)})" for orphan in document["removed"]]
    stays = _staying(document["orphans"], now)
    return "\n".join([*lines, *saved]) + (f"\n\n{stays}" if stays else "") if lines else stays


def _things(title: str, orphans: Sequence[Orphan], now: datetime) -> str:
    """Return a table of things, each with why it counts below it."""
    if not orphans:
        return ""
    rows = [[_word(orphan), _id(orphan), _monthly(orphan), _launch(orphan), _since(orphan, now)] for orphan in orphans]
    return f"{title}\n{table(rows, ['WHAT', 'ID', '$/MONTH', 'FROM', 'SINCE'], right=(2,))}\n{_whys(orphans)}"


def _whys(orphans: Sequence[Orphan]) -> str:
    def why(one: Orphan) -> str:
        return f"{one['why']}{_way(one)}"

    grouped = groupby(sorted(orphans, key=why), key=why)
    return facts((", ".join(sorted({_word(one) for one in ones})), text) for text, ones in grouped)


def _staying(orphans: Sequence[Orphan], now: datetime) -> str:
    if not orphans:
        return ""
    rows = [[_word(one), one["name"] or _id(one), _monthly(one), _launch(one), _since(one, now)] for one in orphans]
    shown = table(rows, ["WHAT", "NAME", "$/MONTH", "FROM", "SINCE"], right=(2,))
    return f"Stays:\n{shown}\n{facts(_reasons(orphans))}"


def _reasons(orphans: Sequence[Orphan]) -> Iterator[tuple[str, str]]:
    for orphan in orphans:
        reason = "" if orphan["stay_reason"] is None else f": {orphan['stay_reason']}"
        yield orphan["name"] or _id(orphan), f"{orphan['why']}{reason}{_way(orphan)}"


def _way(orphan: Orphan) -> str:
    """Return the command that ends it, or takes it up again."""
    return "" if orphan["next"] is None else f" ({orphan['next']})"


def _images(goes: Sequence[Orphan]) -> str:
    """Return what is saved first, and what that costs."""
    lines = [
        f"An image of {_id(orphan)} is made first, {image['name']}: at most {_usd(image['usd_per_month'])} a month."
        for orphan in goes
        if (image := orphan["image"])
    ]
    return "\n".join(map(paragraph, lines))


def _total(document: OrphansDocument) -> str:
    unpriced = document["unpriced"]
    more = f", and {unpriced} without a known price" if unpriced else ""
    goes = document["removable_usd_per_month"]
    total = f"All of it costs {dollars(document['usd_per_month'])} a month{more}"
    return f"{total}; the same with --clean ends {dollars(goes)} of that." if goes != "0" else f"{total}."


def _word(orphan: Orphan) -> str:
    return str(orphan["kind"]).replace("_", " ")


def _id(orphan: Orphan) -> str:
    return str(orphan["id"])


def _monthly(orphan: Orphan) -> str:
    if orphan["usd_per_month"] is None:
        return "?"
    return f"{'<= ' if orphan['at_most'] else ''}{_usd(orphan['usd_per_month'])}"


def _usd(text: str | None) -> str:
    return "nothing" if text == "0" else dollars(text)


def _launch(orphan: Orphan) -> str:
    if orphan["launch"] is not None:
        return str(orphan["launch"]["name"] or orphan["launch"]["id"])
    return f"{orphan['owner']}'s" if orphan["owner"] else "launch unknown"


def _since(one: Orphan, now: datetime) -> str:
    return "not known" if one["since"] is None else f"{rounded((now - from_iso(one['since'])).total_seconds())} ago"
