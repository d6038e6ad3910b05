"""`stop` and `start` of a cluster: asked once, and said of all its nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cloudgpu.cli.clusters.answer import cluster_as_machine, emit_all
from cloudgpu.cli.common import Format, confirm, tell
from cloudgpu.cli.launch.running_text import running_lines, start_question, stop_question
from cloudgpu.cli.render import dollars, price, price_briefly, rounded, steps, while_stopped
from cloudgpu.control.inventory.listing import cluster
from cloudgpu.core.model.machine import Machine

if TYPE_CHECKING:
    from cloudgpu.cli.launch.options import StartOptions
    from cloudgpu.control.session.session import Session
    from cloudgpu.views.documents.machines.machines import ClusterMachinesDocument

_WHY = "asked by the user"


def stop(session: Session, machines: Sequence[Machine], *, yes: bool, output: Format) -> None:
    """Ask, stop all nodes, and say which of them are proved not to be billed."""
    from cloudgpu.control.clusters.power import check_stop_all, stop_all
    from cloudgpu.control.lifecycle.termination_summary import still_running
    from cloudgpu.control.team.authorization import others_note

    whose = others_note(session, machines[0], "stop")
    check_stop_all(machines)
    for line in running_lines(still_running(session, machines)):
        tell(line)
    value = cluster(session, machines)
    about = stop_question(cluster_as_machine(value), machines[0].stop_effect or "", whose)
    confirm(f"Stop {value['name']}, all {len(machines)} nodes?", yes=yes, about=about)
    emit_all(session, stop_all(session, machines, why=_WHY), output, _stopped_text)


def _stopped_text(value: ClusterMachinesDocument) -> str:
    name, nodes = value["name"], f"all {len(value['machines'])} nodes"
    stays = while_stopped(value)
    kept = f"; what stays is.\n  {stays}\n  Start it again: cloudgpu start {name}"
    return f"{name} is {value['state']} and not billed, {nodes}" + (
        kept if stays else f". Start it again: cloudgpu start {name}"
    )


def start(session: Session, machines: Sequence[Machine], options: StartOptions, *, wait: bool, output: Format) -> None:
    """Ask, with what all nodes cost to the end of their new lease, and start all of them or none."""
    from cloudgpu.control.clusters.power import check_stop_all
    from cloudgpu.control.clusters.start import start_all
    from cloudgpu.control.lifecycle.start import AWAKE, new_lease
    from cloudgpu.core.launch.plan import run_cost
    from cloudgpu.core.values.money import ZERO, Money, usd
    from cloudgpu.core.values.times import iso

    check_stop_all(machines)
    until = new_lease(session, machines[0], options.lease, options.renew_until)
    if any(machine.state not in AWAKE for machine in machines):
        lives, prices = until.expires - session.clock(), [machine.price for machine in machines if machine.price]
        cost = sum((run_cost(Money(one.nanos_per_hour), lives) for one in prices), ZERO)
        known = dollars(usd(cost) if len(prices) == len(machines) else None)
        to_the_end = f"{known} for all nodes to the end of their new lease in {rounded(lives.total_seconds())}"
        value = cluster(session, machines)
        hourly = price(value["price"]) if options.verbose else price_briefly(value["price"])
        about = start_question(cluster_as_machine(value), hourly, to_the_end, iso(until.expires), session.clock())
        confirm(f"Start {value['name']}, all {len(machines)} nodes?", yes=options.yes, about=about)
    done = start_all(session, machines, until, override=options.override, no_guard=options.no_guard, wait=wait)
    emit_all(session, done, output, _started_text)


def _started_text(value: ClusterMachinesDocument) -> str:
    name = value["name"]
    text = f"{name} is {value['state']}, all {len(value['machines'])} nodes."
    if value["state"] != "running":
        return f"{text} See: cloudgpu show {name} --refresh"
    ways = [(f"exec {name} --all-nodes -- CMD", "run a command on each"), (f"ssh {name}", "a shell on its first node")]
    return f"{text}\n{steps([*ways, (f'down {name}', 'end it')])}"
