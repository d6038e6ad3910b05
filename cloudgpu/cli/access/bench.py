"""`cloudgpu bench`: what machines really do, compared with what their type can do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cloudgpu.cli.common import Format, Name, Output, emit, open_session

if TYPE_CHECKING:
    from cloudgpu.views.documents.machines.access import NetworkBenchDocument


def command(
    kind: Annotated[
        Literal["network"], typer.Argument(metavar="network", help="What to measure: the network between machines.")
    ],
    name: Name,
    second_name: Annotated[
        str | None, typer.Argument(metavar="NAME2", help="The other machine, if NAME is not a cluster.")
    ] = None,
    *,
    tool: Annotated[
        str | None,
        typer.Option("--with", metavar="iperf3|nccl-tests", help="What measures; by default nccl-tests, if they can."),
    ] = None,
    expected_gbit_per_s: Annotated[
        float | None, typer.Option("--expected", metavar="GBIT", help="The network's Gbit/s, instead of the type's.")
    ] = None,
    seconds: Annotated[int, typer.Option(metavar="S", min=1, max=10, help="How long iperf3 sends.")] = 5,
    output: Output = Format.TEXT,
) -> None:
    """Measure how fast the nodes of a cluster, or two machines in one place, send to each other.

    Node 1 of a cluster sends to node 0, with the iperf3 that is installed on both. If a cluster has Slurm, GPUs and
    nccl-tests (built with MPI=1), these run on all its nodes instead. The result is compared with 0.8 times what the
    network of the type can do. Jobs that use the network slow down meanwhile.

    Everything that it starts on the machines ends with it, also after Ctrl-C. Exit code 2 if iperf3 is not installed on
    a machine, or if the two are in different places, because their traffic would be billed.
    """
    from cloudgpu.control.clusters.bench import bench_network, parse_tool

    del kind
    parsed_tool = parse_tool(tool)
    document = bench_network(
        open_session(), name, second_name, seconds=seconds, nominal_gbit=expected_gbit_per_s, tool=parsed_tool
    )
    emit(output, document, _bench_text(document))


def _bench_text(document: NetworkBenchDocument) -> str:
    route = document["sender"] if document["receiver"] is None else f"{document['sender']} to {document['receiver']}"
    lines = [f"{route}: {_gbit(document['gbit_per_s'])} Gbit/s ({document['program']})"]
    expected_gbit_per_s, network_gbit_per_s = document["expected_gbit_per_s"], document["network_gbit_per_s"]
    if expected_gbit_per_s is None or network_gbit_per_s is None:
        return f"{lines[0]}\nExpected: not known; give the network's Gbit/s: --expected 10"
    burst_gbit_per_s = document["network_up_to_gbit_per_s"]
    burst = f", for a while up to {burst_gbit_per_s:g}" if burst_gbit_per_s else ""
    lines.append(
        f"Expected: {_gbit(expected_gbit_per_s)} Gbit/s, 0.8 of {network_gbit_per_s:g} "
        f"({document['network_fabric'] or '--expected'}{burst})"
    )
    if document["poor"]:
        lines.append(_poor_reason(document))
    return "\n".join(lines)


def _poor_reason(document: NetworkBenchDocument) -> str:
    """Return what may be the reason for less than was expected."""
    if document["network_fabric"] not in (None, "Ethernet") and "iperf" in document["program"]:
        return f"Poor: iperf3 measures TCP alone, without {document['network_fabric']}. nccl-tests measure that."
    return "Poor: other traffic, or something of the network is not set up."


def _gbit(gbit_per_s: float) -> str:
    return f"{gbit_per_s:.2f}" if gbit_per_s < 10 else f"{gbit_per_s:,.1f}"  # noqa: PLR2004
