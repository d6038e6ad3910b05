"""`cloudgpu extend`."""

from __future__ import annotations

from typing import Annotated

import typer

from cloudgpu.cli.common import Format, MaybeName, Output, Yes, confirm, emit, open_session
from cloudgpu.cli.launch.options import Override


def command(
    name: MaybeName = None,
    by: Annotated[str | None, typer.Argument(metavar="BY", help="By how much, like 4h.")] = None,
    *,
    override: Override = None,
    yes: Yes = False,
    output: Output = Format.TEXT,
) -> None:
    """Extend a machine's lease from its end, or from now if it is over.

    Without NAME, it is the only machine: cloudgpu extend 4h. If the new end is after renew-until, renew-until moves
    with it, and the question says so. Exit code 3 if a budget or prepaid credit does not allow that. All nodes of a
    cluster have one lease.
    """
    from cloudgpu.cli.launch.running_text import extend_question
    from cloudgpu.cli.render import when
    from cloudgpu.control.inputs.launch_request import check_reason, duration
    from cloudgpu.control.lifecycle.lease import extend, plan_extension
    from cloudgpu.control.team.authorization import check_override, others_note
    from cloudgpu.core.values.times import iso
    from cloudgpu.views.machines import machine_value

    if by is None:
        name, by = _only_duration(name)
    session = open_session()
    span, reason = duration(by, "BY"), check_reason(override)
    machine, *others = session.find_all_nodes(name, "extend")
    whose = others_note(session, machine, "extend")
    check_override(session, reason)
    if span is None:
        return
    if machine.gang:
        from cloudgpu.cli.clusters.acting import extend as extend_cluster

        extend_cluster(session, [machine, *others], span, reason, yes=yes, output=output)
        return
    extension = plan_extension(session, machine, span)
    end = when(iso(extension.lease.expires), session.clock())
    moves = "; renew-until moves there too" if extension.moves_renew_until else ""
    value = machine_value(machine, session.clock())
    about = extend_question(value, f"{end}{moves}", extension.added_cost.text(), whose)
    confirm(f"Extend {machine.name}?", yes=yes, about=about)
    machine = extend(session, extension, override=reason)
    end = when(machine.expires, session.clock())
    lives = "lives until" if machine.state == "running" else f"is {machine.state}; its lease ends"
    if not value["lease_ends"]:
        lives = "has a lease, which only warns, until"
    emit(output, machine_value(machine, session.clock()), f"{machine.name} {lives} {end}{moves}.")


def _only_duration(word: str | None) -> tuple[str | None, str]:
    """Return what a single argument is: how much, without a name. Raises InvalidRequest where it is a name."""
    from cloudgpu.errors import InvalidRequest

    if word is None or not word[:1].isdigit():
        way = f"For example: cloudgpu extend {word or 'NAME'} 4h"
        raise InvalidRequest("BY is missing: how much longer should the lease be?", field="BY", value=None, next=way)
    return None, word
