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
    from cloudgpu.control.inputs.launch_request import check_reason, parse_optional_duration
    from cloudgpu.control.lifecycle.lease import extend, plan_extension
    from cloudgpu.control.team.authorization import check_override, ownership_note
    from cloudgpu.core.values.times import iso
    from cloudgpu.views.machines import machine_document

    if by is None:
        name, by = _only_duration(name)
    session = open_session()
    extra_time, reason = parse_optional_duration(by, "BY"), check_reason(override)
    machine, *other_nodes = session.find_all_nodes(name, "extend")
    other_owner_text = ownership_note(session, machine, "extend")
    check_override(session, reason)
    if extra_time is None:
        return
    if machine.cluster_node:
        from cloudgpu.cli.clusters.acting import extend as extend_cluster

        extend_cluster(session, [machine, *other_nodes], extra_time, reason, yes=yes, output=output)
        return
    extension = plan_extension(session, machine, extra_time)
    end = when(iso(extension.lease.expires), session.clock())
    renewal_text = "; renew-until moves there too" if extension.moves_renew_until else ""
    document = machine_document(machine, session.clock())
    about = extend_question(document, f"{end}{renewal_text}", extension.added_cost.text(), other_owner_text)
    confirm(f"Extend {machine.name}?", yes=yes, about=about)
    machine = extend(session, extension, override=reason)
    end = when(machine.expires, session.clock())
    lease_text = "lives until" if machine.state == "running" else f"is {machine.state}; its lease ends"
    if not document["lease_ends"]:
        lease_text = "has a lease, which only warns, until"
    emit(output, machine_document(machine, session.clock()), f"{machine.name} {lease_text} {end}{renewal_text}.")


def _only_duration(argument: str | None) -> tuple[str | None, str]:
    """Return a single argument as BY, without a name. Raises InvalidRequest if it is a name."""
    from cloudgpu.errors import InvalidRequest

    if argument is None or not argument[:1].isdigit():
        raise InvalidRequest(
            "BY is missing: how much longer should the lease be?",
            field="BY",
            value=None,
            next=f"For example: cloudgpu extend {argument or 'NAME'} 4h",
        )
    return None, argument
