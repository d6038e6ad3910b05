"""`cloudgpu ledger owner`: which database user an owner's name belongs to."""

from __future__ import annotations

from typing import Annotated

import typer

from cloudgpu.cli.common import Format, Output, emit, open_session
from cloudgpu.errors import InvalidRequest


def command(
    owner: Annotated[str | None, typer.Argument(metavar="[OWNER", help="The owner of machines, as --owner.")] = None,
    user: Annotated[str | None, typer.Argument(metavar="USER]", help="The database user whose name it is.")] = None,
    *,
    output: Output = Format.TEXT,
) -> None:
    """List which database user each owner's name belongs to, or record it for one.

    In a team, that user owns the machines of the name. A member's first launch records the name in their settings. Only
    payers may change it.
    """
    from cloudgpu.cli.render import table
    from cloudgpu.control.team.authorization import assign_owner, owners

    session = open_session()
    if owner is not None and user is None:
        raise InvalidRequest(
            f"Whose name is {owner}?", field="USER", value=None, next=f"For example: cloudgpu ledger owner {owner} ada"
        )
    if owner is not None and user is not None:
        emit(output, assign_owner(session, owner, user), f"The owner {owner} is {user} from now on.")
        return
    document = owners(session)
    rows = [[row["owner"], row["user"]] for row in document["owners"]]
    emit(output, document, table(rows, ["OWNER", "USER"]) if rows else "No owner's name is recorded.")
