"""`cloudgpu orphans`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cloudgpu.cli.automation.orphans_text import going, gone, listing
from cloudgpu.cli.common import Format, Output, Yes, confirm, emit, open_session, tell
from cloudgpu.core.model.identity import unanswered_text

if TYPE_CHECKING:
    from cloudgpu.control.resources.orphans import Survey
    from cloudgpu.control.session.session import Session
    from cloudgpu.views.documents.machines.storage import OrphansDocument


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
    from cloudgpu.control.resources.orphans import cleanup_options, orphans_document, survey

    request = cleanup_options(
        clean=clean, snapshot=snapshot, older_than=older_than, stopped_older_than=stopped_older_than
    )
    session = open_session()
    found = survey(session, request, region=region)
    document = orphans_document(found, snapshot=snapshot)
    if clean and any(orphan["do"] != "stay" for orphan in document["orphans"]):
        _clean(session, found, document, snapshot=snapshot, yes=yes, output=output)
        return
    _show(session, document, output, clean=clean)
    _leave(document)


def _clean(
    session: Session, found: Survey, document: OrphansDocument, *, snapshot: bool, yes: bool, output: Format
) -> None:
    """Ask, remove what may go, and say what became of it."""
    from cloudgpu.control.resources.cleanup import clean, clean_document

    for line in going(document, session.clock()).splitlines():
        tell(line)
    confirm(_question(document), yes=yes)
    document, gravest = clean_document(found, clean(session, found.orphans, snapshot=snapshot))
    emit(output, document, gone(document, session.clock()))
    for fault in document["failed"]:
        tell(f"error: {fault['message']} {fault['next'] or ''}")
    _leave(document, 0 if gravest is None else gravest.exit_code)


def _question(document: OrphansDocument) -> str:
    ends = sorted({one["launch"]["name"] for one in document["orphans"] if one["do"] == "end" and one["launch"]})
    goes = sum(orphan["do"] == "remove" for orphan in document["orphans"])
    parts = [f"remove {'this' if goes == 1 else f'these {goes} things'}"] if goes else []
    parts += [f"end {', '.join(ends)} with all that is on {'them' if len(ends) > 1 else 'it'}"] if ends else []
    asked = " and ".join(parts)
    return f"{asked[0].upper()}{asked[1:]}? It cannot be undone."


def _show(session: Session, document: OrphansDocument, output: Format, *, clean: bool) -> None:
    emit(output, document, listing(document, session.clock(), cleaned=clean))


def _leave(document: OrphansDocument, code: int = 0) -> None:
    """Say who did not answer, and leave with the exit code of the contract: 9 before 8 before the rest."""
    from cloudgpu.errors import ProviderUnavailable, StopUnproved

    for gap in document["unanswered"]:
        tell(unanswered_text(gap["scope"], gap["why"]))
    if document["unanswered"] and code != StopUnproved.exit_code:
        code = ProviderUnavailable.exit_code
    if code:
        raise typer.Exit(code)
