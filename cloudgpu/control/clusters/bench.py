"""Measures the network between machines, and compares it with what their type can do."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from cloudgpu import catalog
from cloudgpu.access import network_speed
from cloudgpu.control.access.reach import reached
from cloudgpu.core.clusters.worth import USED_OF_NETWORK
from cloudgpu.core.model.machine import is_owned
from cloudgpu.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cloudgpu.access.network_speed import Measured
    from cloudgpu.access.ssh.connection import Connection
    from cloudgpu.control.session.session import Session
    from cloudgpu.core.model.machine import Machine
    from cloudgpu.views.documents.machines.access import NetworkBenchDocument

MOST_GBIT = 10_000
USUAL_S = 5
POOR_BELOW = 0.8  # of what was expected: something is not used


def bench_network(
    session: Session, name: str, other: str | None, seconds: int = USUAL_S, expected: float | None = None
) -> NetworkBenchDocument:
    """Return how fast the second of two machines sends to the first, compared with what was expected.

    `expected` is what their network can do, in Gbit/s; None: what is known of their type.

    `name` is a cluster, of which nodes 0 and 1 are measured, or a machine with an `other` one. Raises InvalidRequest
    for machines whose traffic would be billed or that have no iperf3, Unreachable where they do not reach each other.
    """
    if expected is not None and not 0 < expected <= MOST_GBIT:
        raise InvalidRequest(
            f"{expected:g} is not a network from above 0 to {MOST_GBIT:,} Gbit/s.",
            field="--expected",
            value=f"{expected:g}",
            next="For example --expected 10",
        )
    first, second = _pair(session, name, other)
    check_near(first, second)
    session.tell(f"{second.name}: sending to {first.name} for {seconds} seconds")
    with ExitStack() as stack:
        ends = [stack.enter_context(reached(session, one)) for one in (first, second)]
        measured, address = _measure(ends[0], ends[1], seconds)
    return _value(first, second, address, measured, expected)


def _measure(server: Connection, client: Connection, seconds: int) -> tuple[Measured, str]:
    found = [network_speed.look(one) for one in (server, client)]
    lacking = [one.target.name for one, ready in zip((server, client), found, strict=True) if not ready.iperf3]
    if lacking:
        raise network_speed.missing(lacking)
    address = found[0].address
    return network_speed.iperf3(server, client, address, seconds=seconds), address


def _pair(session: Session, name: str, other: str | None) -> tuple[Machine, Machine]:
    if other is None:
        found = first_two(session.ledger.machines(), name)
        if found is not None:
            return found
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


def first_two(machines: Iterable[Machine], name: str) -> tuple[Machine, Machine] | None:
    """Return the first two nodes of the cluster with this name or id that are not gone; None where there are none."""
    nodes = {
        one.cluster.node: one
        for one in machines
        if one.cluster is not None and name in (one.cluster.name, one.cluster.id) and one.terminated_at is None
    }
    first, *rest = sorted(nodes) or [0]
    return (nodes[first], nodes[rest[0]]) if rest else None


def check_near(first: Machine, second: Machine) -> None:
    """Refuse machines between which the traffic would cost money, or would not be that of one network."""
    places = [(one.provider, one.account, one.region, one.zone) for one in (first, second)]
    if places[0] != places[1] and not (is_owned(first.provider) and is_owned(second.provider)):
        where = " and ".join(" ".join(filter(None, (place[0], place[3] or place[2]))) for place in places)
        raise InvalidRequest(
            f"{first.name} and {second.name} are in different places ({where}): their traffic is billed.",
            field="NAME2",
            value=second.name,
            next="Name two machines of one zone and account.",
        )


def _value(
    first: Machine, second: Machine, address: str, measured: Measured, given: float | None
) -> NetworkBenchDocument:
    network = catalog.network_of(second.provider, second.instance_type or "") if given is None else None
    gbit = given if network is None else network.gbit
    expected = None if gbit is None else gbit * USED_OF_NETWORK
    return {
        "sender": second.name,
        "receiver": first.name,
        "address": address,
        "program": measured.program,
        "seconds": measured.seconds,
        "gbit_per_s": measured.gbit,
        "network_gbit_per_s": gbit,
        "network_up_to_gbit_per_s": None if network is None else network.up_to,
        "network_fabric": None if network is None else network.fabric,
        "network_source": None if network is None else f"{network.source}, {network.as_of}",
        "expected_gbit_per_s": expected,
        "poor": None if expected is None else measured.gbit < POOR_BELOW * expected,
    }
