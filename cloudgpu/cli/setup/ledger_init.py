"""`cloudgpu ledger init`: a ledger that a team shares."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cloudgpu.cli.common import Format, Output, emit, open_session
from cloudgpu.cli.render import paragraph
from cloudgpu.errors import AuthFailed, InvalidRequest

if TYPE_CHECKING:
    from cloudgpu.views.documents.setup.ledger import TeamLedgerDocument

_Names = list[str] | None


def command(
    *,
    team: Annotated[bool, typer.Option("--team", help="Make a role for members and one for payers.")] = False,
    member: Annotated[
        _Names, typer.Option(metavar="USER", help="A database user who launches and looks after machines. Repeatable.")
    ] = None,
    payer: Annotated[
        _Names, typer.Option(metavar="USER", help="A database user who also decides about budgets. Repeatable.")
    ] = None,
    members_role: Annotated[
        str | None, typer.Option(metavar="ROLE", help="The members' role; by default named after the database.")
    ] = None,
    payers_role: Annotated[
        str | None, typer.Option(metavar="ROLE", help="The payers' role; by default named after the database.")
    ] = None,
    output: Output = Format.TEXT,
) -> None:
    """Prepare a ledger in PostgreSQL for a team: its tables, two database roles, and the rights of each.

    Run it as the database user who owns the tables, or will own them. What that user may not do is printed as SQL, with
    who may: have it run, then run this again (exit code 6 until all is done). You can run it any number of times.
    """
    from cloudgpu.control.setup.team_ledger import share_ledger

    if not team:
        raise InvalidRequest(
            "A ledger is created at its first use; only a team's needs this command, with --team.",
            field="--team",
            value=None,
            next="Run: cloudgpu ledger init --team",
        )
    roles = {"members_role": members_role, "payers_role": payers_role}
    document = share_ledger(open_session(), members=member or (), payers=payer or (), **roles)
    emit(output, document, "\n".join(_result_lines(document)))
    if document["missing"]:
        raise typer.Exit(AuthFailed.exit_code)


def _result_lines(document: TeamLedgerDocument) -> list[str]:
    members, payers = document["members_role"], document["payers_role"]
    is_or_is_not_yet = "is" if document["ready"] else "is not yet"
    sentences = [
        f"The ledger {document['ledger']} {is_or_is_not_yet} a team's: {members} may write, {payers} may also decide."
    ]
    if document["ready"]:
        sentences.append(f"Members: {_names(document['members'])}. Payers among them: {_names(document['payers'])}.")
    lines = [paragraph(sentence) for sentence in (*sentences, *document["notes"])]
    for grantor in dict.fromkeys(missing_right["by"] for missing_right in document["missing"]):
        lines += ["", paragraph(f"Let {grantor} run in psql, connected to this database:")]
        lines += [f"  {right['statement']}" for right in document["missing"] if right["by"] == grantor]
    if document["missing"]:
        lines += ["", "Then run the same again."]
    return lines


def _names(names: list[str]) -> str:
    return ", ".join(names) or "none yet"
