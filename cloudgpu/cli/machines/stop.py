"""`cloudgpu stop`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudgpu.cli.common import Format, MaybeName, Output, Yes, confirm, emit, open_session, tell
from cloudgpu.cli.launch.running_text import running_lines, stop_question

if TYPE_CHECKING:
    from cloudgpu.views.documents.machines.machines import MachineDocument


def command(name: MaybeName = None, *, yes: Yes = False, output: Output = Format.TEXT) -> None:
    """Stop a machine, keep its disk, and prove that the machine is no longer billed.

    A machine that cannot be stopped (one-time spot) is parked: cloudgpu saves an image of its disk and ends it, and
    `start` launches it again from that image. Exit code 9 if the end could not be proved, 8 if the image takes too
    long. The next `ls --refresh` or `start` then finishes the work.

    If `stop` was interrupted or got no answer, run it again; else the next run of `reap` finishes it, unless you start,
    extend or hold the machine.

    A cluster is stopped as a whole, its node 0 last; it is proved when every node is.
    """
    from cloudgpu.control.lifecycle.lifecycle import stop
    from cloudgpu.control.lifecycle.termination_summary import machines_with_processes
    from cloudgpu.control.outage.outage import find_to_stop
    from cloudgpu.control.team.authorization import ownership_note
    from cloudgpu.core.policies.guards import check_stop
    from cloudgpu.views.machines import machine_document

    session = open_session()
    machine, *other_nodes = find_to_stop(session, name)
    if machine.cluster_node:
        from cloudgpu.cli.clusters.acting import stop as stop_cluster

        stop_cluster(session, [machine, *other_nodes], yes=yes, output=output)
        return
    other_owner_text = ownership_note(session, machine, "stop")
    check_stop(machine)
    for line in running_lines(machines_with_processes(session, [machine])):
        tell(line)
    about = stop_question(machine_document(machine, session.clock()), machine.stop_effect or "", other_owner_text)
    confirm(f"Stop {machine.name}?", yes=yes, about=about)
    document = machine_document(stop(session, machine, why="asked by the user"), session.clock())
    emit(output, document, _answer_text(document) + _erased_text(machine.stop_effect or ""))


def _answer_text(machine: MachineDocument) -> str:
    from cloudgpu.cli.render import dollars, has_retained, steps, stopped_costs_text
    from cloudgpu.core.model.machine import is_on_prem

    name = machine["name"]
    if not has_retained(machine):
        stays_billed = stopped_costs_text(machine)
        if stays_billed:
            return (
                f"{name} is {machine['state']} and not billed; what stays is.\n"
                f"  {stays_billed}\n  Start it again: cloudgpu start {name}"
            )
        unbilled_text = "" if is_on_prem(machine["provider"]) else " and not billed"
        return f"{name} is {machine['state']}{unbilled_text}. Start it again: cloudgpu start {name}"
    cost_text = f"at most {dollars(machine['retained_usd_per_month'])} a month"
    next_commands = [(f"start {name}", "bring it back"), (f"down {name}", "remove its image, too")]
    return f"{name} is parked: it has ended, and its image costs {cost_text}.\n{steps(next_commands)}"


def _erased_text(stop_effect: str) -> str:
    """Return what a stop has erased, as a line; empty for nothing. `stop_effect` is from the machine's plan."""
    _, erases, erased = stop_effect.partition("erases its ")
    return f"\n  What was on its {erased.partition(' and ')[0]} is lost." if erases else ""
