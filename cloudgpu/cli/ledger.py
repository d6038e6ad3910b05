"""`cloudgpu ledger`: a copy of the ledger, and its return."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cloudgpu.cli.common import Format, Output, Yes, confirm, emit, open_here

if TYPE_CHECKING:
    from cloudgpu.control.session import Session


class Action(StrEnum):
    """What to do with the ledger."""

    BACKUP = "backup"
    RESTORE = "restore"


def command(
    action: Annotated[
        Action,
        typer.Argument(metavar="backup|restore", help="backup: write a copy; restore: put one in its place."),
    ],
    file: Annotated[str, typer.Argument(metavar="FILE", help="The copy: one file, whatever the ledger stands in.")],
    *,
    even_if_older: Annotated[
        bool, typer.Option("--even-if-older", help="restore: although the ledger has lines that FILE lacks.")
    ] = False,
    yes: Yes = False,
    output: Output = Format.TEXT,
) -> None:
    """Write a checked copy of the ledger to a new file, or put such a copy in the ledger's place.

    A copy may be made while other commands run, and moves a ledger between SQLite and PostgreSQL, too
    (CLOUDGPU_LEDGER). A restore checks every line of FILE first, and sets the ledger that stood there aside. Where
    FILE is older than what this machine has seen, launches are refused until: cloudgpu cost --verify --yes
    """
    session = open_here()
    if action is Action.BACKUP:
        _back_up(session, file, output)
    else:
        _restore(session, file, even_if_older=even_if_older, yes=yes, output=output)


def _back_up(session: Session, file: str, output: Format) -> None:
    from cloudgpu.control.ledgers import backed_up

    value = backed_up(session, file)
    emit(output, value, f"{value['file']}: {value['lines']} lines, up to {value['recorded_at']}; every hash right.")


def _restore(session: Session, file: str, *, even_if_older: bool, yes: bool, output: Format) -> None:
    from cloudgpu.control.ledgers import restored

    confirm(f"Put {file} in the place of the ledger {session.ledger.place}? The present one is set aside.", yes=yes)
    value = restored(session, file, even_if_older=even_if_older)
    emit(output, value, "\n".join(_said(value)))


def _said(value: dict[str, Any]) -> list[str]:
    said = [f"The ledger has {value['lines']} lines again, up to {value['recorded_at']}."]
    if value["aside"]:
        said.append(f"The one before is set aside: {value['aside']}")
    if value["doubt"]:
        said.append(f"Nothing is launched until it is settled: {value['doubt']}\n  Run: cloudgpu cost --verify --yes")
    return said
