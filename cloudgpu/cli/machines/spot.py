"""`cloudgpu spot rehearse`: rehearse an interruption."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from cloudgpu.cli.common import Format, Name, Output, Yes, confirm, emit, open_session


def command(
    action: Annotated[
        Literal["rehearse"],
        typer.Argument(metavar="rehearse", help="rehearse: give the machine its notice, as the market would."),
    ],
    name: Name,
    *,
    yes: Yes = False,
    output: Output = Format.TEXT,
) -> None:
    """Rehearse a spot interruption: the machine gets its notice and is then taken away, as the market would do it.

    Uses the cloud's own rehearsal: simulateEviction on Azure, simulateMaintenanceEvent on Google Cloud. On AWS, begin
    one in the EC2 console (Spot Requests, Actions, Initiate interruption).
    """
    from cloudgpu.cli.render import when
    from cloudgpu.control.lifecycle.interruption import rehearsal_document, rehearse
    from cloudgpu.control.team.authorization import check_right
    from cloudgpu.core.values.times import iso

    del action
    session = open_session()
    machine = session.find_one(name, "a rehearsal")
    check_right(session, machine, "interrupt")
    confirm(f"Interrupt {machine.name}? It will be taken away after its notice.", yes=yes)
    taken_at = rehearse(session, machine)
    taken_text = when(iso(taken_at), session.clock())
    emit(output, rehearsal_document(machine, taken_at), f"{machine.name} has its notice; it is taken {taken_text}.")
