"""`stop`, `start`, `extend` and `hold` of a cluster: one question, one action on all its nodes, one answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import typer

from cloudgpu.cli.clusters.listing import node_counts_text, nodes_text
from cloudgpu.cli.common import Format, confirm, emit, tell
from cloudgpu.cli.launch.running_text import extend_question, running_lines, start_question, stop_question
from cloudgpu.cli.render import dollars, price_briefly, price_text, short_duration, steps, stopped_costs_text, when
from cloudgpu.control.clusters.lease import extend_all, hold_all, plan_extension_of_all
from cloudgpu.control.clusters.together import worst_of
from cloudgpu.control.inventory.listing import build_cluster_document
from cloudgpu.control.team.authorization import ownership_note
from cloudgpu.core.clusters.members import clusters
from cloudgpu.core.model.cluster import node_name
from cloudgpu.core.model.machine import Machine, command_name
from cloudgpu.core.values.times import iso
from cloudgpu.views.clusters import cluster_document, sum_of
from cloudgpu.views.machines import machine_document

if TYPE_CHECKING:
    from cloudgpu.cli.launch.options import StartOptions
    from cloudgpu.control.clusters.together import ClusterResult
    from cloudgpu.control.session.session import Session
    from cloudgpu.core.model.machine import Machine
    from cloudgpu.errors import CloudgpuError
    from cloudgpu.views.documents.machines.ended import DownDocument
    from cloudgpu.views.documents.machines.machines import ClusterDocument, ClusterMachinesDocument, MachineDocument


def emit_all(
    session: Session, result: ClusterResult, output: Format, text_of: Callable[[ClusterMachinesDocument], str]
) -> None:
    """Print the result of all nodes, with `text_of` if all succeeded; exit with the code of the worst error."""
    document = build_cluster_document(session, result.machines, result.errors)
    emit(output, document, partial_text(document) if result.errors else text_of(document))
    exit_with_worst(result.errors)


def partial_text(document: ClusterMachinesDocument) -> str:
    """Return the state of the nodes after an error at one of them."""
    return f"{document['name']}: {node_counts_text(document, document['machines'])}."


def exit_with_worst(errors: Sequence[CloudgpuError]) -> None:
    """Print each error; exit with the code of the worst one, if there is one."""
    for error in errors:
        tell(f"error: {error.message} {error.next or ''}".rstrip())
    worst_error = worst_of(errors)
    if worst_error is not None:
        raise typer.Exit(worst_error.exit_code)


def cluster_as_machine(cluster: ClusterDocument) -> MachineDocument:
    """Return a cluster as a machine of the type `4 x TYPE`, for a question."""
    return cluster | {"instance_type": nodes_text(cluster)}


def question_machines(session: Session, machines: Sequence[Machine]) -> list[MachineDocument]:
    """Return what a question shows: single machines, and each cluster as one."""
    now = session.clock()
    shown_machines = [machine_document(machine, now) for machine in machines if machine.cluster_node is None]
    return shown_machines + [
        cluster_as_machine(cluster_document(nodes, [machine_document(node, now) for node in nodes]))
        for nodes in clusters(machines)
    ]


def terminated_machines(document: DownDocument) -> list[MachineDocument]:
    """Return what was terminated: a cluster as one if none of its nodes failed, else each node."""
    failed_names = {error["value"] for error in document["failed"]}
    by_machine_or_cluster: dict[str, list[MachineDocument]] = {}
    for machine in document["terminated"]:
        cluster = machine["cluster"]
        node_names = [node_name(cluster["name"], node) for node in range(cluster["nodes"])] if cluster else []
        is_single = cluster is None or len(node_names) == 1 or not failed_names.isdisjoint(node_names)
        by_machine_or_cluster.setdefault(machine["id"] if cluster is None or is_single else cluster["id"], []).append(
            machine
        )
    return [_merged_machine(machines) for machines in by_machine_or_cluster.values()]


def _merged_machine(machines: Sequence[MachineDocument]) -> MachineDocument:
    """Return a machine, or the nodes of a cluster as one machine that has the cluster's name and their sum."""
    first_node = machines[0]
    if len(machines) == 1 or first_node["cluster"] is None:
        return first_node
    name = f"{first_node['cluster']['name']} with all its {len(machines)} nodes"
    unpriced = list(dict.fromkeys(resource for machine in machines for resource in machine["unpriced"]))
    return {
        **first_node,
        "name": name,
        "spent_usd": sum_of(machine["spent_usd"] for machine in machines),
        "unpriced": unpriced,
    }


_REASON = "asked by the user"


def stop(session: Session, machines: Sequence[Machine], *, yes: bool, output: Format) -> None:
    """Ask, stop all nodes, and say which of them are confirmed as not billed."""
    from cloudgpu.control.clusters.power import check_stop_all, stop_all
    from cloudgpu.control.lifecycle.termination_summary import machines_with_processes

    other_owner_text = ownership_note(session, machines[0], "stop")
    check_stop_all(machines)
    for line in running_lines(machines_with_processes(session, machines)):
        tell(line)
    document = build_cluster_document(session, machines)
    about = stop_question(cluster_as_machine(document), machines[0].stop_effect or "", other_owner_text)
    confirm(f"Stop {document['name']}, all {len(machines)} nodes?", yes=yes, about=about)
    emit_all(session, stop_all(session, machines, why=_REASON), output, _stopped_text)


def _stopped_text(document: ClusterMachinesDocument) -> str:
    name, nodes = document["name"], f"all {len(document['machines'])} nodes"
    stopped_costs = stopped_costs_text(document)
    restart_text = f"; what stays is.\n  {stopped_costs}\n  Start it again: cloudgpu start {name}"
    return f"{name} is {document['state']} and not billed, {nodes}" + (
        restart_text if stopped_costs else f". Start it again: cloudgpu start {name}"
    )


def start(session: Session, machines: Sequence[Machine], options: StartOptions, *, wait: bool, output: Format) -> None:
    """Ask, with what all nodes cost to the end of their new lease, and start all of them or none."""
    from cloudgpu.control.clusters.power import check_nodes_exist
    from cloudgpu.control.clusters.start import start_all
    from cloudgpu.control.clusters.together import reload_machines
    from cloudgpu.control.inventory.sync_some import sync_some
    from cloudgpu.control.lifecycle.start import UP_STATES, new_lease
    from cloudgpu.core.launch.plan import duration_cost
    from cloudgpu.core.values.money import ZERO, Money, usd

    check_nodes_exist(machines, "started")
    lease = new_lease(session, machines[0], options.lease, options.renew_until)
    if all(machine.state in UP_STATES for machine in machines):  # by the ledger: they may have stopped since
        for error in sync_some(session, machines).values():
            raise error
        machines = reload_machines(session, machines)
    if any(machine.state not in UP_STATES for machine in machines):
        lease_length, prices = lease.expires - session.clock(), [machine.price for machine in machines if machine.price]
        cost = sum((duration_cost(Money(price.nanos_per_hour), lease_length) for price in prices), ZERO)
        cost_text = dollars(usd(cost) if len(prices) == len(machines) else None)
        lease_cost_text = (
            f"{cost_text} for all nodes to the end of their new lease in {short_duration(lease_length.total_seconds())}"
        )
        document = build_cluster_document(session, machines)
        hourly_text = price_text(document["price"]) if options.verbose else price_briefly(document["price"])
        about = start_question(
            cluster_as_machine(document), hourly_text, lease_cost_text, iso(lease.expires), session.clock()
        )
        confirm(f"Start {document['name']}, all {len(machines)} nodes?", yes=options.yes, about=about)
    started = start_all(session, machines, lease, override=options.override, no_guard=options.no_guard, wait=wait)
    emit_all(session, started, output, _started_text)


def _started_text(document: ClusterMachinesDocument) -> str:
    name = document["name"]
    text = f"{name} is {document['state']}, all {len(document['machines'])} nodes."
    if document["state"] != "running":
        return f"{text} See: cloudgpu show {name} --refresh"
    commands = [
        (f"exec {name} --all-nodes -- CMD", "run a command on each"),
        (f"ssh {name}", "a shell on its first node"),
    ]
    return f"{text}\n{steps([*commands, (f'down {name}', 'end it')])}"


def extend(
    session: Session,
    machines: Sequence[Machine],
    extension: timedelta,
    reason: str | None,
    *,
    yes: bool,
    output: Format,
) -> None:
    """Ask, and move the end of the lease of all nodes."""
    name = command_name(machines[0])
    other_owner_text = ownership_note(session, machines[0], "extend")
    plan = plan_extension_of_all(session, machines, extension)
    renewal_text = "; renew-until moves there too" if plan.moves_renew_until else ""
    new_end = when(iso(plan.lease.expires), session.clock())
    document = cluster_as_machine(build_cluster_document(session, machines))
    about = extend_question(document, f"{new_end}{renewal_text}", plan.added_cost.text(), other_owner_text)
    confirm(f"Extend {name}, all {len(machines)} nodes?", yes=yes, about=about)
    result = extend_all(session, plan, override=reason)

    def text_of(_document: object) -> str:
        end_text = when(result.machines[0].expires, session.clock())
        until_phrase = (
            "live until" if all(machine.state == "running" for machine in result.machines) else "have a lease until"
        )
        return f"All {len(machines)} nodes of {name} {until_phrase} {end_text}{renewal_text}."

    emit_all(session, result, output, text_of)


def hold(session: Session, machines: Sequence[Machine], until: datetime | None, *, output: Format) -> None:
    """Hold all nodes until then, or release them (None), and say so."""
    name, node_count = command_name(machines[0]), len(machines)
    text = f"{name} is not held any more, none of its {node_count} nodes."
    if until is not None:
        text = f"All {node_count} nodes of {name} are held until {when(iso(until), session.clock())}."
    emit_all(session, hold_all(session, machines, until), output, lambda _: text)
