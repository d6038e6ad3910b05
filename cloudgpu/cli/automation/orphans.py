"""`cloudgpu orphans`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import groupby
from typing import TYPE_CHECKING, Annotated

import typer

from cloudgpu.cli.common import Format, Output, Yes, confirm, emit, open_session, tell
from cloudgpu.cli.machine_text import account_lines
from cloudgpu.cli.render import dollars, labelled_lines, paragraph, short_duration, table
from cloudgpu.core.model.identity import unanswered_text
from cloudgpu.core.values.times import from_iso

if TYPE_CHECKING:
    from cloudgpu.control.resources.orphans import Survey
    from cloudgpu.control.session.session import Session
    from cloudgpu.views.documents.machines.storage import Orphan, OrphansDocument


def command(
    *,
    clean: Annotated[bool, typer.Option("--clean", help="Show what can be removed, ask, and remove it.")] = False,
    older_than: Annotated[
        str | None, typer.Option(metavar="SPAN", help="Only what has been orphaned for this long: 7d, 12h.")
    ] = None,
    snapshot: Annotated[
        bool, typer.Option("--snapshot", help="--clean: first save each disk as a named image.")
    ] = False,
    stopped_older_than: Annotated[
        str | None, typer.Option(metavar="SPAN", help="--clean: also end machines that were stopped this long ago.")
    ] = None,
    region: Annotated[str | None, typer.Option(metavar="NAME", help="Only this region.")] = None,
    yes: Yes = False,
    output: Output = Format.TEXT,
) -> None:
    """Find what launches left behind in all regions: what it costs a month, which launch made it, and since when.

    Finds disks, snapshots, images, addresses, network interfaces, security groups, key pairs, spot requests and timers
    without a machine, and stopped machines that still cost money. --clean shows them, asks, and removes them. It leaves
    what a hold covers, named volumes and images, resources of a launch in progress, what another ledger owns, and what
    is minutes old. It ends a stopped machine only with --stopped-older-than.

    Exit code 8 if a region did not answer (the others are shown, and cleaned), 9 if the removal of something that costs
    money could not be proved.
    """
    from cloudgpu.control.resources.orphans import build_orphans_document, cleanup_options, survey

    options = cleanup_options(
        clean=clean, snapshot=snapshot, older_than=older_than, stopped_older_than=stopped_older_than
    )
    session = open_session()
    surveyed = survey(session, options, region=region)
    document = build_orphans_document(surveyed, snapshot=snapshot)
    if clean and any(orphan["do"] != "stay" for orphan in document["orphans"]):
        _clean(session, surveyed, document, snapshot=snapshot, yes=yes, output=output)
        return
    emit(output, document, orphans_text(document, session.clock(), cleaned=clean))
    _exit_if_incomplete(document)


def _clean(
    session: Session, survey: Survey, document: OrphansDocument, *, snapshot: bool, yes: bool, output: Format
) -> None:
    """Ask, remove what can be removed, and show the result."""
    from cloudgpu.control.resources.cleanup import clean, clean_document

    for line in cleanup_plan_text(document, session.clock()).splitlines():
        tell(line)
    confirm(_question(document), yes=yes)
    document, worst_error = clean_document(survey, clean(session, survey.orphans, snapshot=snapshot))
    emit(output, document, cleanup_result_text(document, session.clock()))
    for error in document["failed"]:
        tell(f"error: {error['message']} {error['next'] or ''}")
    _exit_if_incomplete(document, 0 if worst_error is None else worst_error.exit_code)


def _question(document: OrphansDocument) -> str:
    ended_names = sorted(
        {orphan["launch"]["name"] for orphan in document["orphans"] if orphan["do"] == "end" and orphan["launch"]}
    )
    removable_count = sum(orphan["do"] == "remove" for orphan in document["orphans"])
    parts = (
        [f"remove {'this' if removable_count == 1 else f'these {removable_count} resources'}"]
        if removable_count
        else []
    )
    parts += (
        [f"end {', '.join(ended_names)} with all that is on {'them' if len(ended_names) > 1 else 'it'}"]
        if ended_names
        else []
    )
    question = " and ".join(parts)
    return f"{question[0].upper()}{question[1:]}? It cannot be undone."


def _exit_if_incomplete(document: OrphansDocument, exit_code: int = 0) -> None:
    """Print which scopes did not answer, and exit. Code 9 (not confirmed) takes precedence over 8 (no answer)."""
    from cloudgpu.errors import ProviderUnavailable, StopUnproved

    for unanswered_scope in document["unanswered"]:
        tell(unanswered_text(unanswered_scope["scope"], unanswered_scope["why"]))
    if document["unanswered"] and exit_code != StopUnproved.exit_code:
        exit_code = ProviderUnavailable.exit_code
    if exit_code:
        raise typer.Exit(exit_code)


def orphans_text(document: OrphansDocument, now: datetime, *, cleaned: bool) -> str:
    """Return all orphaned resources: first those that `--clean` removes, then those that stay and why."""
    orphans = document["orphans"]
    if not orphans:
        scope_text = " were found in the regions that answered" if document["unanswered"] else ""
        return "\n".join([f"No orphaned resources{scope_text}.", *account_lines(document)])
    removable, staying = ([orphan for orphan in orphans if (orphan["do"] == "stay") is stay] for stay in (False, True))
    parts = [_orphans_table("Orphaned:", removable, now), _staying_text(staying, now), paragraph(_total_text(document))]
    if removable and document["removable_usd_per_month"] == "0":
        parts.append("To remove orphaned resources: cloudgpu orphans --clean")
    elif cleaned:
        parts.append("Nothing of it can be removed now.")
    return "\n\n".join(part for part in (*parts, "\n".join(account_lines(document))) if part)


def cleanup_plan_text(document: OrphansDocument, now: datetime) -> str:
    """Return what `--clean` is about to remove, and what stays: to be read before the question."""
    orphans = document["orphans"]
    removable = [orphan for orphan in orphans if orphan["do"] != "stay"]
    staying = [orphan for orphan in orphans if orphan["do"] == "stay"]
    title = f"To be removed, {dollars(document['removable_usd_per_month'])} a month where a price is known:"
    return "\n\n".join(
        part
        for part in (_orphans_table(title, removable, now), _images_text(removable), _staying_text(staying, now))
        if part
    )


def cleanup_result_text(document: OrphansDocument, now: datetime) -> str:
    """Return what was removed, and what stays."""
    image_lines = [
        f"Kept as image {orphan['image']['name']}: {_kind_text(orphan)} {orphan['id']}"
        for orphan in document["removed"]
        if orphan["image"]
    ]
    lines = [
        f"Removed: {_kind_text(orphan)} {orphan['id']} ({_monthly_text(orphan)})" for orphan in document["removed"]
    ]
    staying_text = _staying_text(document["orphans"], now)
    return (
        "\n".join([*lines, *image_lines]) + (f"\n\n{staying_text}" if staying_text else "") if lines else staying_text
    )


def _orphans_table(title: str, orphans: Sequence[Orphan], now: datetime) -> str:
    """Return a table of orphaned resources, and below it why they count as orphaned."""
    if not orphans:
        return ""
    rows = [
        [_kind_text(orphan), orphan["id"], _monthly_text(orphan), _launch_text(orphan), _age_text(orphan, now)]
        for orphan in orphans
    ]
    return f"{title}\n{table(rows, ['WHAT', 'ID', '$/MONTH', 'FROM', 'SINCE'], right=(2,))}\n{_reason_lines(orphans)}"


def _reason_lines(orphans: Sequence[Orphan]) -> str:
    def reason_text(orphan: Orphan) -> str:
        return f"{orphan['why']}{_next_text(orphan)}"

    grouped = groupby(sorted(orphans, key=reason_text), key=reason_text)
    return labelled_lines(
        (", ".join(sorted({_kind_text(orphan) for orphan in orphans_with_reason})), text)
        for text, orphans_with_reason in grouped
    )


def _staying_text(orphans: Sequence[Orphan], now: datetime) -> str:
    if not orphans:
        return ""
    rows = [
        [
            _kind_text(orphan),
            orphan["name"] or orphan["id"],
            _monthly_text(orphan),
            _launch_text(orphan),
            _age_text(orphan, now),
        ]
        for orphan in orphans
    ]
    table_text = table(rows, ["WHAT", "NAME", "$/MONTH", "FROM", "SINCE"], right=(2,))
    return f"Stays:\n{table_text}\n{labelled_lines(_reasons(orphans))}"


def _reasons(orphans: Sequence[Orphan]) -> Iterator[tuple[str, str]]:
    for orphan in orphans:
        reason = "" if orphan["stay_reason"] is None else f": {orphan['stay_reason']}"
        yield orphan["name"] or orphan["id"], f"{orphan['why']}{reason}{_next_text(orphan)}"


def _next_text(orphan: Orphan) -> str:
    """Return the command that removes it, or uses it again."""
    return "" if orphan["next"] is None else f" ({orphan['next']})"


def _images_text(removable: Sequence[Orphan]) -> str:
    """Return which images are made first, and what they cost."""
    lines = [
        f"An image of {orphan['id']} is made first, {image['name']}: at most "
        f"{_usd_text(image['usd_per_month'])} a month."
        for orphan in removable
        if (image := orphan["image"])
    ]
    return "\n".join(map(paragraph, lines))


def _total_text(document: OrphansDocument) -> str:
    unpriced = document["unpriced"]
    unpriced_text = f", and {unpriced} without a known price" if unpriced else ""
    removable_usd = document["removable_usd_per_month"]
    total_text = f"All of it costs {dollars(document['usd_per_month'])} a month{unpriced_text}"
    return (
        f"{total_text}; the same with --clean ends {dollars(removable_usd)} of that."
        if removable_usd != "0"
        else f"{total_text}."
    )


def _kind_text(orphan: Orphan) -> str:
    return str(orphan["kind"]).replace("_", " ")


def _monthly_text(orphan: Orphan) -> str:
    if orphan["usd_per_month"] is None:
        return "?"
    return f"{'<= ' if orphan['at_most'] else ''}{_usd_text(orphan['usd_per_month'])}"


def _usd_text(usd: str | None) -> str:
    return "nothing" if usd == "0" else dollars(usd)


def _launch_text(orphan: Orphan) -> str:
    if orphan["launch"] is not None:
        return str(orphan["launch"]["name"] or orphan["launch"]["id"])
    return f"{orphan['owner']}'s" if orphan["owner"] else "launch unknown"


def _age_text(orphan: Orphan, now: datetime) -> str:
    return (
        "not known"
        if orphan["since"] is None
        else f"{short_duration((now - from_iso(orphan['since'])).total_seconds())} ago"
    )
