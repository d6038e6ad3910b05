"""Measures the network between machines: iperf3 between two, or NVIDIA's nccl-tests on all nodes of a cluster.

What is started on a machine ends with its SSH session, or after a time limit.
"""

from __future__ import annotations

import contextlib
import json
import random
import re
import shlex
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from cloudgpu.errors import InvalidRequest, Unreachable

if TYPE_CHECKING:
    from paramiko.channel import Channel

    from cloudgpu.access.ssh.connection import Connection

STREAMS = 8  # EC2 limits a single stream to 5 Gbit/s, or 10 in a placement group
PORT_RANGE = (20_000, 29_999)  # the first and the last that are tried
TRIES = 3  # of ports, which may be taken
PROBE_TIMEOUT_S, LISTEN_TIMEOUT_S, MARGIN_S = 15.0, 5.0, 3.0  # the margin is added to the seconds of measuring
STOP_TIMEOUT_S = 2.0  # in which a program ends after its session is closed
NCCL_TIMEOUT_S = 45.0  # for NCCL and MPI to initialize and measure
MAX_OUTPUT_BYTES = 1 << 20
NCCL_TESTS = ("all_reduce_perf_mpi", "all_reduce_perf")  # the first is always built with MPI
ALLOW_ROOT = "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"  # where the login user is root
MESSAGE_SIZE, ITERATIONS, WARM_UP = "128M", 20, 2  # of nccl-tests: bytes per all-reduce, measured ones, earlier ones
BITS_PER_BYTE, GIGA = 8, 1e9

# The command runs until it ends, its time is over, or this SSH session ends. The signal goes to the process group that
# `timeout` makes, because a process that has just forked passes no signal on.
_WHILE_CONNECTED = (
    "exec 3<&0; timeout -k 1 {limit} {command} </dev/null & p=$!; "
    "(cat <&3 >/dev/null; kill -TERM -$p || kill $p) 2>/dev/null & w=$!; "
    "wait $p; s=$?; kill $w 2>/dev/null; exit $s"
)
_FIND_TOOLS = (
    'printf "%s\\n" "${SSH_CONNECTION:-}"; iperf3 --version 2>/dev/null | head -n 1; echo; '
    "echo gpus=$(nvidia-smi -L 2>/dev/null | grep -c ^GPU); "
    "for p in mpirun salloc " + " ".join(NCCL_TESTS) + '; do command -v "$p"; done; true'
)
_RANK_LINE = re.compile(rb"^#\s+Rank\s+(\d+)\s", re.MULTILINE)
_AVERAGE_LINE = re.compile(rb"# Avg bus bandwidth\s*:\s*([0-9.]+)")


class Bandwidth(NamedTuple):
    """A measurement: Gbit/s that one machine sent, in how many seconds (None: not reported), by which program."""

    gbit_per_s: float
    seconds: float | None
    program: str


class Tools(NamedTuple):
    """What a machine can measure with: its address, iperf3's version (empty: none), other programs, number of GPUs."""

    address: str
    iperf3: str
    programs: frozenset[str]
    gpus: int

    @property
    def nccl(self) -> str | None:
        """The program of nccl-tests that can run on several machines; None where something is missing."""
        if not self.gpus or not {"mpirun", "salloc"} <= self.programs:
            return None
        return next((program for program in NCCL_TESTS if program in self.programs), None)


def read_tools(connection: Connection) -> Tools:
    """Return what a machine can measure with. Raises Unreachable."""
    completed = connection.capture(
        shlex.join(["sh", "-c", _FIND_TOOLS]), timeout=PROBE_TIMEOUT_S, max_bytes=MAX_OUTPUT_BYTES
    )
    lines = [*completed.stdout.decode(errors="replace").splitlines(), "", ""]
    connection_fields = lines[0].split()
    address = connection_fields[2] if len(connection_fields) == 4 else connection.target.address.host  # noqa: PLR2004  (RFC 4254's four)
    programs = frozenset(line.rpartition("/")[2] for line in lines[2:] if line.startswith("/"))
    gpus = next((line.removeprefix("gpus=") for line in lines if line.startswith("gpus=")), "")
    return Tools(address, lines[1].strip(), programs, int(gpus) if gpus.isdecimal() else 0)


def measure_with_iperf3(server: Connection, client: Connection, address: str, *, seconds: int) -> Bandwidth:
    """Return how fast `client` sent to `server` at `address`, measured for `seconds`.

    The server listens on that address and one port only, and for one client. Raises Unreachable where they do not reach
    each other or iperf3 does not start.
    """
    for _ in range(TRIES):
        port = random.randint(*PORT_RANGE)  # noqa: S311  (no secret)
        with _iperf3_server(server, address, port, seconds) as is_listening:
            if is_listening:
                return _measure_upload(client, address, port, seconds)
    raise Unreachable(
        f"iperf3 found no free port on {server.target.name}.", field="name", value=server.target.name, next="Try again."
    )


@contextlib.contextmanager
def _iperf3_server(server: Connection, address: str, port: int, seconds: int) -> Iterator[bool]:
    argv = ["iperf3", "-s", "-1", "--forceflush", "-B", address, "-p", str(port)]
    with _run_in_session(server, argv, seconds + LISTEN_TIMEOUT_S + 2 * MARGIN_S) as channel:
        output = _read_until(channel, LISTEN_TIMEOUT_S, until=b"listening on")
        if b"listening on" not in output and b"in use" not in output:
            text = output.decode(errors="replace").strip() or "it was silent"
            raise Unreachable(
                f"iperf3 does not listen on {server.target.name}: {text}", field="name", value=server.target.name
            )
        yield b"listening on" in output


def _measure_upload(client: Connection, address: str, port: int, seconds: int) -> Bandwidth:
    argv = ["iperf3", "-c", address, "-p", str(port), "-t", str(seconds), "-P", str(STREAMS), "-J"]
    argv += ["--connect-timeout", "3000"]
    with _run_in_session(client, argv, seconds + 2 * MARGIN_S) as channel:
        output = _read_until(channel, seconds + 2 * MARGIN_S + STOP_TIMEOUT_S)
    return iperf3_result(output, client.target.name, address)


def iperf3_result(output: bytes, name: str, address: str) -> Bandwidth:
    """Return the bandwidth received by iperf3's JSON; raise Unreachable with iperf3's message where there is none."""
    try:
        result: dict[str, Any] = json.loads(output[output.find(b"{") :])
        received = result["end"]["sum_received"]
        return Bandwidth(received["bits_per_second"] / GIGA, received["seconds"], result["start"]["version"])
    except (ValueError, KeyError, TypeError):
        pass
    error_match = re.search(rb'"error":\s*"([^"]+)"', output)
    text = (error_match[1] if error_match else output).decode(errors="replace").strip()[
        :300
    ] or "iperf3 did not answer in time"
    raise Unreachable(
        f"{name} did not reach {address}: {text}",
        field="name",
        value=name,
        next="Let the machines reach each other on all ports. Nodes of one cluster do.",
    )


def measure_with_nccl(
    head_node: Connection, program: str, nodes: int, gpus_per_node: int, slurm_conf: str
) -> Bandwidth:
    """Return the bus bandwidth of an all-reduce over all GPUs of a cluster, in Gbit/s, started on node 0 by Slurm.

    Bus bandwidth is comparable to what one machine sends (nccl-tests, doc/PERFORMANCE.md). `slurm_conf` is a path below
    the user's home. Raises Unreachable, with the last lines, where it fails or Slurm has no free nodes now.
    """
    test_command = [
        program,
        "-b",
        MESSAGE_SIZE,
        "-e",
        MESSAGE_SIZE,
        "-g",
        str(gpus_per_node),
        "-n",
        str(ITERATIONS),
        "-w",
        str(WARM_UP),
        "-c",
        "0",
    ]
    salloc = [
        "salloc",
        "--quiet",
        "--immediate=5",
        "-N",
        str(nodes),
        "--ntasks-per-node=1",
        f"--gpus-per-node={gpus_per_node}",
    ]
    command = shlex.join([*salloc, "--time=2", "mpirun", *test_command])
    argv = ["sh", "-c", f'SLURM_CONF="$HOME"/{shlex.quote(slurm_conf)} {ALLOW_ROOT} exec {command}']
    with _run_in_session(head_node, argv, NCCL_TIMEOUT_S) as channel:
        output = _read_until(channel, NCCL_TIMEOUT_S + STOP_TIMEOUT_S)
    return nccl_result(output, head_node.target.name, program, nodes * gpus_per_node)


def nccl_result(output: bytes, name: str, program: str, ranks: int) -> Bandwidth:
    """Return the average that nccl-tests prints, for `ranks` ranks, one per GPU.

    Raises Unreachable, with its last lines, where it failed, or was built without MPI: then each node measured only
    itself.
    """
    averages, rank_count = _AVERAGE_LINE.findall(output), len(set(_RANK_LINE.findall(output)))
    if len(averages) == 1 and float(averages[0]) and rank_count == ranks:
        return Bandwidth(float(averages[0]) * BITS_PER_BYTE, None, program)
    if averages and rank_count != ranks:
        raise Unreachable(
            f"{program} on {name} ran {rank_count} connected ranks instead of {ranks}: it is built without MPI.",
            field="name",
            value=name,
            next="Build nccl-tests with: make MPI=1. Or measure TCP: --with iperf3",
        )
    last_lines = (
        " ".join(output.decode(errors="replace").split("\n")[-4:]).strip()[-300:] or "it did not answer in time"
    )
    raise Unreachable(
        f"{program} did not run on {name}: {last_lines}", field="name", value=name, next="Use --with iperf3"
    )


def no_iperf3_error(names: Sequence[str]) -> InvalidRequest:
    """Return the error that iperf3 is not installed on these machines."""
    commands = "\n".join(f"cloudgpu exec {name} -- sudo apt-get install -y iperf3" for name in names)
    return InvalidRequest(
        f"iperf3 is not installed on {' and '.join(names)}.",
        field="name",
        value=names[0],
        next=f"Install it:\n{commands}",
    )


@contextlib.contextmanager
def _run_in_session(connection: Connection, argv: Sequence[str], limit_s: float) -> Iterator[Channel]:
    """Run a command that ends with this session, stderr merged into stdout; wait a moment for its end."""
    text = _WHILE_CONNECTED.format(limit=f"{limit_s:g}", command=f"{shlex.join(argv)} 2>&1")
    with connection.session() as channel, connection.explain_errors():
        channel.exec_command(shlex.join(["sh", "-c", text]))
        try:
            yield channel
        finally:
            channel.shutdown_write()
            channel.status_event.wait(STOP_TIMEOUT_S)


def _read_until(channel: Channel, timeout_s: float, until: bytes | None = None) -> bytes:
    """Return the output up to its end, to `until`, or to the end of `timeout_s`."""
    output, deadline = b"", time.monotonic() + timeout_s
    while (until is None or until not in output) and len(output) < MAX_OUTPUT_BYTES:
        channel.settimeout(max(0.01, deadline - time.monotonic()))
        try:
            data = channel.recv(1 << 16)
        except TimeoutError:
            break
        if not data:
            break
        output += data
    return output
