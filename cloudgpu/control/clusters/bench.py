"""Measures the network between machines, and compares it with what their type can do."""

from __future__ import annotations

from contextlib import ExitStack
from enum import StrEnum
from typing import TYPE_CHECKING

from cloudgpu.access.ssh import network_speed
from cloudgpu.catalog.read import network_of
from cloudgpu.control.access.reach import connected_to
from cloudgpu.control.inputs.launch_request import check_count
from cloudgpu.core.clusters.layout import engine_paths
from cloudgpu.core.clusters.members import members
from cloudgpu.core.clusters.scaling import NETWORK_EFFICIENCY
from cloudgpu.core.model.machine import Machine, is_on_prem, node_of
from cloudgpu.core.values.naming import unknown_word
from cloudgpu.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cloudgpu.access.ssh.network_speed import Bandwidth
    from cloudgpu.control.session.session import Session
    from cloudgpu.views.documents.machines.access import NetworkBenchDocument

MAX_GBIT = 10_000
DEFAULT_DURATION_S, MAX_DURATION_S = 5, 10  # of a measurement
POOR_BELOW = 0.8  # of the expected speed; a slower network is poor: part of its hardware is probably not used


class Tool(StrEnum):
    """The programs that can measure the network between machines."""

    IPERF3 = "iperf3"
    NCCL = "nccl-tests"


def parse_tool(text: str | None) -> Tool | None:
    """Return the tool with this name, None for None. Raises InvalidRequest for an unknown name."""
    if text is not None and text not in list(Tool):
        raise unknown_word(f"{text!r} does not measure a network", text, [*Tool], field="--with")
    return None if text is None else Tool(text)


def bench_network(
    session: Session,
    name: str,
    other: str | None,
    *,
    seconds: int = DEFAULT_DURATION_S,
    nominal_gbit: float | None = None,
    tool: Tool | None = None,
) -> NetworkBenchDocument:
    """Return how fast the second of two machines sends to the first, compared with the expected speed.

    `name` is a cluster, whose nodes 0 and 1 are measured, or a machine, with the name of an `other`. A cluster with
    Slurm, GPUs and nccl-tests is measured by nccl-tests on all its nodes, unless `tool` is another one. `nominal_gbit`
    is the speed that the network is said to have, in Gbit/s; None: that of the machine type.

    Raises InvalidRequest for machines whose traffic would be billed or that lack the tool, Unreachable if they do not
    reach each other.
    """
    check_count("--seconds", seconds, 1, MAX_DURATION_S)
    if nominal_gbit is not None and not 0 < nominal_gbit <= MAX_GBIT:
        raise InvalidRequest(
            f"{nominal_gbit:g} is not a network from above 0 to {MAX_GBIT:,} Gbit/s.",
            field="--expected",
            value=f"{nominal_gbit:g}",
            next="For example --expected 10",
        )
    first, second = _machines_to_measure(session, name, other)
    check_same_zone(first, second)
    with ExitStack() as stack:
        server = stack.enter_context(connected_to(session, first))
        tools = network_speed.read_tools(server)
        cluster = first.cluster if other is None and first.cluster and first.cluster.engine == "slurm" else None
        program = None if cluster is None or tool is Tool.IPERF3 else tools.nccl
        if program is not None and cluster is not None:
            session.report(f"{cluster.name}: {program} on {cluster.nodes} nodes")
            config = engine_paths(cluster.id, node_of(first)).conf
            bandwidth = network_speed.measure_with_nccl(server, program, cluster.nodes, tools.gpus, config)
            return _bench_document(cluster.name, None, second, None, bandwidth, nominal_gbit)
        if tool is Tool.NCCL:
            raise InvalidRequest(
                f"nccl-tests cannot run from {first.name}: they need a cluster with Slurm, GPUs, mpirun and "
                "all_reduce_perf.",
                field="--with",
                value=Tool.NCCL,
                next="Build them on each node with: make MPI=1. Or measure TCP: --with iperf3",
            )
        client = stack.enter_context(connected_to(session, second))
        without_tool = [
            connection.target.name for connection in (server, client) if not network_speed.read_tools(connection).iperf3
        ]
        if without_tool:
            raise network_speed.no_iperf3_error(without_tool)
        session.report(f"{second.name}: sending to {first.name} for {seconds} seconds")
        bandwidth = network_speed.measure_with_iperf3(server, client, tools.address, seconds=seconds)
    return _bench_document(second.name, first.name, second, tools.address, bandwidth, nominal_gbit)


def _machines_to_measure(session: Session, name: str, other: str | None) -> tuple[Machine, Machine]:
    """Return the machines to measure, the receiver first. Raises InvalidRequest where there are not two."""
    if other is None:
        nodes = first_two_nodes(session.ledger.machines(), name)
        if nodes is not None:
            return nodes
        raise InvalidRequest(
            f"{name} is not a cluster of two machines, and a network has two ends.",
            field="NAME",
            value=name,
            next=f"Name another machine: cloudgpu bench network {name} NAME2",
        )
    first, second = session.find(name), session.find(other)
    if first.id == second.id:
        raise InvalidRequest(
            f"{name} and {other} are one machine.", field="NAME2", value=other, next="Name another one."
        )
    return first, second


def first_two_nodes(machines: Iterable[Machine], name: str) -> tuple[Machine, Machine] | None:
    """Return the first two nodes that exist of the cluster with this name or id; None if there are fewer."""
    nodes = [node for node in members(machines, name) if node.terminated_at is None]
    return (nodes[0], nodes[1]) if len(nodes) > 1 else None


def check_same_zone(first: Machine, second: Machine) -> None:
    """Raise InvalidRequest for machines in different zones or accounts, whose traffic would be billed."""
    locations = [(machine.provider, machine.account, machine.region, machine.zone) for machine in (first, second)]
    if locations[0] != locations[1] and not (is_on_prem(first.provider) and is_on_prem(second.provider)):
        locations_text = " and ".join(
            " ".join(filter(None, (location[0], location[3] or location[2]))) for location in locations
        )
        raise InvalidRequest(
            f"{first.name} and {second.name} are in different places ({locations_text}): their traffic is billed.",
            field="NAME2",
            value=second.name,
            next="Name two machines of one zone and account.",
        )


def _bench_document(
    sender: str,
    receiver: str | None,
    machine: Machine,
    address: str | None,
    bandwidth: Bandwidth,
    nominal_gbit: float | None,
) -> NetworkBenchDocument:
    """Return the measured speed, and what the machine type's network should have; `address` is the receiver's."""
    network = network_of(machine.provider, machine.instance_type or "") if nominal_gbit is None else None
    gbit = nominal_gbit if network is None else network.gbit
    expected_gbit = None if gbit is None else gbit * NETWORK_EFFICIENCY
    return {
        "sender": sender,
        "receiver": receiver,
        "address": address,
        "program": bandwidth.program,
        "seconds": bandwidth.seconds,
        "gbit_per_s": bandwidth.gbit_per_s,
        "network_gbit_per_s": gbit,
        "network_up_to_gbit_per_s": None if network is None else network.burst_gbit,
        "network_fabric": None if network is None else network.fabric,
        "network_source": None if network is None else f"{network.source}, {network.as_of}",
        "expected_gbit_per_s": expected_gbit,
        "poor": None if expected_gbit is None else bandwidth.gbit_per_s < POOR_BELOW * expected_gbit,
    }
