"""`cloudgpu ledger`: back up, restore and move the ledger."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cloudgpu.cli.common import Format, Output, Yes, confirm, emit, open_session

if TYPE_CHECKING:
    from cloudgpu.control.session.session import Session
    from cloudgpu.views.documents.setup.ledger import LedgerMoveDocument, RestoreDocument


Action = Literal["backup", "restore", "move"]


def command(
    action: Annotated[
        Action,
        typer.Argument(
            metavar="backup|restore|move",
            help="backup: write a copy; restore: put one in its place; move: move the ledger elsewhere.",
        ),
    ],
    place: Annotated[
        str | None,
        typer.Argument(metavar="FILE|URL", help="backup, restore: the copy, one file; move: the new place."),
    ] = None,
    *,
    follow: Annotated[
        bool, typer.Option("--follow", help="move: use the ledger where it was moved to; URL may name it.")
    ] = False,
    even_if_older: Annotated[
        bool, typer.Option("--even-if-older", help="restore: even if the ledger has lines that FILE lacks.")
    ] = False,
    yes: Yes = False,
    output: Output = Format.TEXT,
) -> None:
    """Write a checked copy of the ledger, restore one, or move the ledger to another place.

    A copy may be made while other commands run. `restore` checks every line of FILE first, and keeps the replaced
    ledger in a file next to it. If FILE is older than the last state that this computer has seen, launches are refused
    until you run: cloudgpu cost --verify --yes

    `move` copies the ledger to URL (sqlite:///path/to/ledger.db or postgresql://USER@HOST/DATABASE), checks every line
    there, and changes config.toml. The old place becomes read-only and names the new one. If a move was interrupted,
    run it again.

    In every other home, run `move --follow`. If the old place is gone, name the new one: move URL --follow.
    """
    _check_options(action, place, follow=follow, even_if_older=even_if_older)
    session = open_session(warn_overdue=action != "move")
    if action == "move":
        _move(session, place, output, follow=follow, yes=yes)
    elif action == "backup":
        _back_up(session, place or "", output)
    else:
        _restore(session, place or "", even_if_older=even_if_older, yes=yes, output=output)


def _check_options(action: Action, place: str | None, *, follow: bool, even_if_older: bool) -> None:
    """Refuse what does not belong to the action, so that nothing is silently left out."""
    from cloudgpu.errors import InvalidRequest

    usage = f"cloudgpu ledger {action} {'URL' if action == 'move' else 'FILE'}"
    if follow and action != "move":
        raise InvalidRequest("--follow belongs to ledger move.", field="--follow", value=None, next=f"Run: {usage}")
    if even_if_older and action != "restore":
        raise InvalidRequest(
            "--even-if-older belongs to ledger restore.", field="--even-if-older", value=None, next=f"Run: {usage}"
        )
    if place is None and not follow:
        field = "URL" if action == "move" else "FILE"
        raise InvalidRequest(f"ledger {action} needs a {field}.", field=field, value=None, next=f"Run: {usage}")


def _move(session: Session, url: str | None, output: Format, *, follow: bool, yes: bool) -> None:
    from contextlib import closing

    from cloudgpu.control.setup.ledger_move import execute, plan

    with closing(plan(session, url, follow=follow)) as move:
        if not move.follows:
            question = f"Move the ledger from {move.source.location} to {move.to}? The old place becomes read-only."
            confirm(question, yes=yes, why="This moves the ledger")
        document = execute(session, move, os.environ)
    emit(output, document, "\n".join(_moved_lines(document)))


def _moved_lines(document: LedgerMoveDocument) -> list[str]:
    place_text = f"{document['to']}: {document['lines']} lines"
    if document["followed"]:
        sentences = [f"The ledger is at {place_text}."]
    else:
        sentences = [
            f"The ledger has moved to {place_text}, every hash right.",
            f"Read-only from now on: {document['from']}",
        ]
    if document["config"]:
        sentences.append(f"{document['config']} names the new place.")
    if not document["followed"]:
        sentences.append("In every other home, run once: cloudgpu ledger move --follow")
    return [*sentences, *document["notes"]]


def _back_up(session: Session, file: str, output: Format) -> None:
    from cloudgpu.control.setup.ledger_admin import back_up

    document = back_up(session, file)
    emit(
        output,
        document,
        f"{document['file']}: {document['lines']} lines, up to {document['recorded_at']}; every hash right.",
    )


def _restore(session: Session, file: str, *, even_if_older: bool, yes: bool, output: Format) -> None:
    from cloudgpu.control.setup.ledger_admin import restore_backup

    confirm(f"Put {file} in the place of the ledger {session.ledger.location}? The present one is set aside.", yes=yes)
    document = restore_backup(session, file, even_if_older=even_if_older)
    emit(output, document, "\n".join(_restore_lines(document)))


def _restore_lines(document: RestoreDocument) -> list[str]:
    sentences = [f"The ledger has {document['lines']} lines again, up to {document['recorded_at']}."]
    if document["previous_ledger"]:
        sentences.append(f"The one before is set aside: {document['previous_ledger']}")
    if document["integrity_problem"]:
        why = document["integrity_problem"]
        sentences.append(f"Launches are refused until it is repaired: {why}\n  Run: cloudgpu cost --verify --yes")
    return sentences
