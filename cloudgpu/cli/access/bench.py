"""`cloudgpu bench`: what machines really do, beside what their type promises."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from cloudgpu.cli.common import Format, Name, Output, emit, open_here

if TYPE_CHECKING:
    from cloudgpu.views.documents.machines.access import NetworkBenchDocument


class Kind(StrEnum):
    """What is measured."""

    NETWORK = "network"


def command(
    kind: Annotated[Kind, typer.Argument(metavar="network", help="What to measure: the network between machines.")],
    name: Name,
    other: Annotated[
        str | None, typer.Argument(metavar="NAME2", help="The other machine, where NAME is no cluster.")
    ] = None,
    *,
    seconds: Annotated[int, typer.Option(metavar="S", min=1, max=10, help="How long iperf3 sends.")] = 5,
    output: Output = Format.TEXT,
) -> None:
    """Measure how fast machines of a cluster send to each other, or two machines of one place.

    Of a cluster, node 1 sends to node 0 with iperf3, which has to be installed on both. The result is shown beside what
    the type's network promises, times 0.8. It takes the whole network meanwhile: jobs that use it slow down.

    What it starts there ends with it, also after Ctrl-C. Exit code 2 if iperf3 is missing on a machine, or if the two
    are in different places, where their traffic would be billed.
    """
    from cloudgpu.control.clusters.bench import bench_network

    del kind
    value = bench_network(open_here(), name, other, seconds)
    emit(output, value, _said(value))


def _said(value: NetworkBenchDocument) -> str:
    ends = value["sender"] if value["receiver"] is None else f"{value['sender']} to {value['receiver']}"
    lines = [f"{ends}: {_gbit(value['gbit_per_s'])} Gbit/s ({value['program']})"]
    expected, network = value["expected_gbit_per_s"], value["network_gbit_per_s"]
    if expected is None or network is None:
        return f"{lines[0]}\nExpected: not known, the network of these machines is in no list."
    up_to = value["network_up_to_gbit_per_s"]
    burst = f", for a while up to {up_to:g}" if up_to else ""
    lines.append(f"Expected: {_gbit(expected)} Gbit/s, 0.8 of {network:g} ({value['network_fabric']}{burst})")
    if value["poor"]:
        lines.append(_why(value))
    return "\n".join(lines)


def _why(value: NetworkBenchDocument) -> str:
    """Return what may be the reason for less than was expected."""
    if value["network_fabric"] != "Ethernet" and "iperf" in value["program"]:
        return f"Poor: iperf3 measures TCP alone, without {value['network_fabric']}. nccl-tests measure that."
    return "Poor: other traffic, or something of the network is not set up."


def _gbit(number: float) -> str:
    return f"{number:.2f}" if number < 10 else f"{number:,.1f}"  # noqa: PLR2004
