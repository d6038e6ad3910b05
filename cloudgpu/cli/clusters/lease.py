"""`extend` and `hold` of a cluster: one lease, and one hold, for all its nodes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from cloudgpu.cli.clusters.answer import cluster_as_machine, emit_all
from cloudgpu.cli.common import Format, confirm, tell
from cloudgpu.cli.render import when
from cloudgpu.control.clusters.lease import extend_all, hold_all, plan_extension_of_all
from cloudgpu.control.inventory.listing import cluster
from cloudgpu.control.team.authorization import others_note
from cloudgpu.core.model.machine import Machine, billed_text, command_name
from cloudgpu.core.values.times import iso

if TYPE_CHECKING:
    from cloudgpu.control.session.session import Session


def extend(
    session: Session, machines: Sequence[Machine], span: timedelta, reason: str | None, *, yes: bool, output: Format
) -> None:
    """Ask, and move the end of the lease of all nodes."""
    from cloudgpu.cli.launch.running_text import extend_question

    name = command_name(machines[0])
    whose = others_note(session, machines[0], "extend")
    plan = plan_extension_of_all(session, machines, span)
    moves = "; renew-until moves there too" if plan.moves_renew_until else ""
    end = when(iso(plan.lease.expires), session.clock())
    value = cluster_as_machine(cluster(session, machines))
    about = extend_question(value, f"{end}{moves}", plan.added_cost.text(), whose)
    confirm(f"Extend {name}, all {len(machines)} nodes?", yes=yes, about=about)
    done = extend_all(session, plan, override=reason)

    def text_of(_value: object) -> str:
        ends = when(done.machines[0].expires, session.clock())
        lives = "live until" if all(machine.state == "running" for machine in done.machines) else "have a lease until"
        return f"All {len(machines)} nodes of {name} {lives} {ends}{moves}."

    emit_all(session, done, output, text_of)


def hold(session: Session, machines: Sequence[Machine], until: datetime | None, *, yes: bool, output: Format) -> None:
    """Ask, and hold all nodes until then, or release them (None)."""
    from cloudgpu.control.lifecycle.lease import check_hold_end, hold_caveat

    name, now = command_name(machines[0]), session.clock()
    whose = others_note(session, machines[0], "hold")
    if until is None:
        if any(machine.expires and machine.expires <= iso(now) for machine in machines):
            confirm(f"Release {name}? Its lease is over: it ends within seconds then.{whose}", yes=yes)
        released = hold_all(session, machines, None)
        emit_all(
            session, released, output, lambda _: f"{name} is not held any more, none of its {len(machines)} nodes."
        )
        return
    check_hold_end(session, name, until)
    loses = hold_caveat(session, machines[0], until)
    if loses:
        tell(loses)
    at = when(iso(until), now)
    billed = billed_text(machines[0], " It is billed meanwhile.")
    confirm(f"Hold {name}, all {len(machines)} nodes, until {at}?{billed}{whose}", yes=yes)
    held = hold_all(session, machines, until)
    emit_all(session, held, output, lambda _: f"All {len(machines)} nodes of {name} are held until {at}.")
