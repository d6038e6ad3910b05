"""`cloudgpu cost`, first part: what machines cost so far, and the check of the ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cloudgpu.cli.common import Format, Output, Yes, confirm, emit, open_here, tell

if TYPE_CHECKING:
    from cloudgpu.control.session import Session


def command(
    *,
    verify: Annotated[
        bool, typer.Option("--verify", help="Recompute the ledger's chain; settle it when a part was missing.")
    ] = False,
    yes: Yes = False,
    output: Output = Format.TEXT,
) -> None:
    """Say what every machine has cost so far (compute; disks and addresses come with a later version).

    With --verify: recompute the hash chain and the head record. Where the ledger was cut short or restored from
    an old copy, ask every account what is there, take it up, and settle the ledger, so that launches work again.
    """
    session = open_here()
    if verify:
        _verify(session, output, yes=yes)
        return
    _costs(session, output)


def _costs(session: Session, output: Format) -> None:
    from cloudgpu.cli.render import dollars, paragraph, state_of, table
    from cloudgpu.control.costs import costs

    value = costs(session)
    rows = [
        [item["name"], item["provider"], state_of(item), dollars(item["spent_usd"], 4)] for item in value["machines"]
    ]
    text = table(
        [*rows, ["total", "", "", dollars(value["total_usd"], 4)]], ["NAME", "AT", "STATE", "SPENT"], right=[3]
    )
    if value["unpriced"]:
        text += f"\nNot in the total, for want of a price: {', '.join(value['unpriced'])}."
    if any(item["beside"] or item["kept"] for item in value["machines"]):
        text += "\nCompute alone: disks, addresses and what is kept come on top (cloudgpu show)."
    text += f"\n\n{paragraph(value['desktop']['sentence'])}"
    emit(output, value, text if rows else "Nothing has been spent yet.")


def _verify(session: Session, output: Format, *, yes: bool) -> None:
    from cloudgpu.control.documents import verified

    def agree(doubt: str) -> None:
        tell(doubt)
        confirm(
            "Ask every account what is there, and take the ledger as it is now for the true one?",
            yes=yes,
            why="This takes a ledger that is in doubt for the true one",
        )

    value = verified(session, agree=agree)
    whole = f"The ledger is whole: {value['lines']} lines, every hash right."
    emit(output, value, "The ledger is settled; launches work again." if value["settled"] else whole)
