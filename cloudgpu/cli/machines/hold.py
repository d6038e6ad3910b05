"""`cloudgpu hold`."""

from __future__ import annotations

from typing import Annotated

import typer

from cloudgpu.cli.common import Format, MaybeName, Output, Yes, confirm, emit, open_session, tell


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
    from cloudgpu.control.lifecycle.lease import check_hold_options, hold_caveat, set_hold
    from cloudgpu.control.policies.resolve import limits_of
    from cloudgpu.control.team.authorization import ownership_note
    from cloudgpu.core.launch.limit_checks import check_hold_length
    from cloudgpu.core.model.machine import command_name, is_on_prem
    from cloudgpu.core.values.times import iso
    from cloudgpu.views.machines import machine_document

    if until is None and not release and name is not None and name[:1].isdigit():  # no name begins so
        name, until = None, name
    session = open_session()
    machine, *other_nodes = session.find_all_nodes(name, "hold")
    check_hold_options(command_name(machine), until, release=release)
    if machine.cluster_node:
        from cloudgpu.cli.clusters.acting import hold as hold_cluster

        end = parse_future_moment(until, "UNTIL", session.clock()) if until else None
        hold_cluster(session, [machine, *other_nodes], end, yes=yes, output=output)
        return
    other_owner_text = ownership_note(session, machine, "hold")
    if until is None:
        if machine.expires and machine.expires <= iso(session.clock()):
            confirm(
                f"Release {machine.name}? Its lease is over: it ends within seconds then.{other_owner_text}", yes=yes
            )
        machine = set_hold(session, machine, None)
        emit(output, machine_document(machine, session.clock()), f"{machine.name} is not held any more.")
        return
    end = parse_future_moment(until, "UNTIL", session.clock())
    check_hold_length(machine.name, end, session.clock(), limits_of(session))
    caveat = hold_caveat(session, machine, end)
    if caveat:
        tell(caveat)
    billed_text = "" if is_on_prem(machine.provider) else " It is billed meanwhile."
    confirm(f"Hold {machine.name} until {when(iso(end), session.clock())}?{billed_text}{other_owner_text}", yes=yes)
    machine = set_hold(session, machine, end)
    emit(
        output,
        machine_document(machine, session.clock()),
        f"{machine.name} is held until {when(iso(end), session.clock())}.",
    )
