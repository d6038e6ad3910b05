"""`cloudgpu hold`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cloudgpu.cli.common import Format, MaybeName, Output, Yes, confirm, emit, open_session, tell

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from cloudgpu.control.session.session import Session
    from cloudgpu.core.model.machine import Machine


def command(
    name: MaybeName = None,
    until: Annotated[str | None, typer.Argument(metavar="UNTIL", help="2h, or 2026-11-20T19:00+01:00.")] = None,
    *,
    release: Annotated[bool, typer.Option("--release", help="End the hold now.")] = False,
    yes: Yes = False,
    output: Output = Format.TEXT,
) -> None:
    """Keep a machine from being ended by its lease or for idle time, until a given time.

    Without NAME, it is the only machine: cloudgpu hold 2h, or: cloudgpu hold --release. A hold always has an end. A
    cluster is held as a whole.
    Budgets, renew-until and schedules are stronger than a hold; if one of them would end the machine earlier, `hold`
    tells you. Exit code 3 if prepaid credit does not last as long.
    """
    from cloudgpu.cli.render import when
    from cloudgpu.control.inputs.launch_request import parse_future_moment
    from cloudgpu.control.lifecycle.lease import check_hold_options, set_hold
    from cloudgpu.core.model.machine import command_name
    from cloudgpu.core.values.times import iso
    from cloudgpu.views.machines import machine_document

    if until is None and not release and name is not None and name[:1].isdigit():  # no name begins so
        name, until = None, name
    session = open_session()
    machines = session.find_all_nodes(name, "hold")
    check_hold_options(command_name(machines[0]), until, release=release)
    end = None if until is None else parse_future_moment(until, "UNTIL", session.clock())
    _ask(session, machines, end, yes=yes)
    if machines[0].cluster_node:
        from cloudgpu.cli.clusters.acting import hold as hold_cluster

        hold_cluster(session, machines, end, output=output)
        return
    machine = set_hold(session, machines[0], end)
    text = "is not held any more" if end is None else f"is held until {when(iso(end), session.clock())}"
    emit(output, machine_document(machine, session.clock()), f"{machine.name} {text}.")


def _ask(session: Session, machines: Sequence[Machine], until: datetime | None, *, yes: bool) -> None:
    """Ask before a hold of a machine, or of all nodes of a cluster, and before a release that ends them at once."""
    from cloudgpu.cli.render import when
    from cloudgpu.control.lifecycle.lease import check_hold_end, hold_caveat
    from cloudgpu.control.team.authorization import ownership_note
    from cloudgpu.core.model.machine import billed_text, command_name
    from cloudgpu.core.values.times import iso

    machine, name, now = machines[0], command_name(machines[0]), session.clock()
    other_owner_text = ownership_note(session, machine, "hold")
    if until is None:
        if any(node.expires and node.expires <= iso(now) for node in machines):
            confirm(f"Release {name}? Its lease is over: it ends within seconds then.{other_owner_text}", yes=yes)
        return
    check_hold_end(session, name, until)
    caveat = hold_caveat(session, machine, until)
    if caveat:
        tell(caveat)
    nodes_text = f", all {len(machines)} nodes," if machine.cluster_node else ""
    billed_note = billed_text(machine, " It is billed meanwhile.")
    confirm(f"Hold {name}{nodes_text} until {when(iso(until), now)}?{billed_note}{other_owner_text}", yes=yes)
