"""Measures how fast machines send to each other: iperf3 on two, or NVIDIA's nccl-tests on all nodes of a cluster.

Whatever is started there ends with its SSH session, however that ends, and after a time limit by itself.
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

STREAMS = 8  # one alone is limited on EC2: to 5 Gbit/s, or 10 in a placement group
PORTS = (20_000, 29_999)
TRIES = 3  # ports that may be taken
ANSWER_S, BEGIN_S, REST_S = 15.0, 5.0, 3.0  # for a look, until the server listens, beside the seconds of measuring
STOP_TIMEOUT_S = 2.0  # in which what was started ends, once it is hung up on
INIT_S = 45.0  # that NCCL and MPI may take before they measure
MAX_OUTPUT = 1 << 20
NCCL = ("all_reduce_perf_mpi", "all_reduce_perf")  # the first has MPI for certain
AS_ROOT = "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"  # where that is who logs in
SIZE, ITERATIONS, WARM_UP = "128M", 20, 2
BITS, GIGA = 8, 1e9

# The command runs until it ends, its time is over, or this SSH session ends. It is in the group that `timeout` makes:
# one that has just forked passes no signal on.
_WHILE_CONNECTED = (
    "exec 3<&0; timeout -k 1 {limit} {command} </dev/null & p=$!; "
    "(cat <&3 >/dev/null; kill -TERM -$p || kill $p) 2>/dev/null & w=$!; "
    "wait $p; s=$?; kill $w 2>/dev/null; exit $s"
)
_FIND_TOOLS = (
    'printf "%s\\n" "${SSH_CONNECTION:-}"; iperf3 --version 2>/dev/null | head -n 1; echo; '
    "echo gpus=$(nvidia-smi -L 2>/dev/null | grep -c ^GPU); "
    "for p in mpirun salloc " + " ".join(NCCL) + '; do command -v "$p"; done; true'
)
_RANK = re.compile(rb"^#\s+Rank\s+(\d+)\s", re.MULTILINE)
_AVERAGE = re.compile(rb"# Avg bus bandwidth\s*:\s*([0-9.]+)")


class Bandwidth(NamedTuple):
    """A measurement: Gbit/s that one machine sent, for how many seconds (None: not reported), with which program."""

    gbit: float
    seconds: float | None
    program: str


class Tools(NamedTuple):
    """What a machine has to measure with: its address, iperf3's version, other programs, and how many GPUs."""

    address: str
    iperf3: str
    programs: frozenset[str]
    gpus: int

    @property
    def nccl(self) -> str | None:
        """The program of nccl-tests that can run here on several machines; None where something is missing."""
        if not self.gpus or not {"mpirun", "salloc"} <= self.programs:
            return None
        return next((one for one in NCCL if one in self.programs), None)


def read_tools(connection: Connection) -> Tools:
    """Return what a machine has to measure with. Raises Unreachable."""
    done = connection.capture(shlex.join(["sh", "-c", _FIND_TOOLS]), timeout=ANSWER_S, max_bytes=MAX_OUTPUT)
    lines = [*done.stdout.decode(errors="replace").splitlines(), "", ""]
    parts = lines[0].split()
    address = parts[2] if len(parts) == 4 else connection.target.address.host  # noqa: PLR2004  (RFC 4254's four)
    programs = frozenset(line.rpartition("/")[2] for line in lines[2:] if line.startswith("/"))
    counted = next((line.removeprefix("gpus=") for line in lines if line.startswith("gpus=")), "")
    return Tools(address, lines[1].strip(), programs, int(counted) if counted.isdecimal() else 0)


def iperf3(server: Connection, client: Connection, address: str, *, seconds: int) -> Bandwidth:
    """Return how fast `client` sent to `server`, which has this address, for so many seconds.

    The server listens on that address and one port alone, and for one client. Raises Unreachable where they do not
    reach each other, InvalidRequest where iperf3 is missing.
    """
    for _ in range(TRIES):
        port = random.randint(*PORTS)  # noqa: S311  (no secret)
        with _listening(server, address, port, seconds) as listens:
            if listens:
                return _measure_upload(client, address, port, seconds)
    raise Unreachable(
        f"iperf3 found no free port on {server.target.name}.", field="name", value=server.target.name, next="Try again."
    )


@contextlib.contextmanager
def _listening(server: Connection, address: str, port: int, seconds: int) -> Iterator[bool]:
    argv = ["iperf3", "-s", "-1", "--forceflush", "-B", address, "-p", str(port)]
    with _run_in_session(server, argv, seconds + BEGIN_S + 2 * REST_S) as channel:
        output = _read_until(channel, BEGIN_S, until=b"listening on")
        if b"listening on" not in output and b"in use" not in output:
            text = output.decode(errors="replace").strip() or "it was silent"
            raise Unreachable(
                f"iperf3 does not listen on {server.target.name}: {text}", field="name", value=server.target.name
            )
        yield b"listening on" in output


def _measure_upload(client: Connection, address: str, port: int, seconds: int) -> Bandwidth:
    argv = ["iperf3", "-c", address, "-p", str(port), "-t", str(seconds), "-P", str(STREAMS), "-J"]
    argv += ["--connect-timeout", "3000"]
    with _run_in_session(client, argv, seconds + 2 * REST_S) as channel:
        output = _read_until(channel, seconds + 2 * REST_S + STOP_TIMEOUT_S)
    return iperf3_result(output, client.target.name, address)


def iperf3_result(output: bytes, name: str, address: str) -> Bandwidth:
    """Return what iperf3's JSON says was received; raise Unreachable, with its own words, where nothing was."""
    try:
        value: dict[str, Any] = json.loads(output[output.find(b"{") :])
        total = value["end"]["sum_received"]
        return Bandwidth(total["bits_per_second"] / GIGA, total["seconds"], value["start"]["version"])
    except (ValueError, KeyError, TypeError):
        pass
    why = re.search(rb'"error":\s*"([^"]+)"', output)
    text = (why[1] if why else output).decode(errors="replace").strip()[:300] or "iperf3 did not answer in time"
    raise Unreachable(
        f"{name} did not reach {address}: {text}",
        field="name",
        value=name,
        next="Let the machines reach each other on all ports. Nodes of one cluster do.",
    )


def nccl(first: Connection, program: str, nodes: int, gpus: int, slurm_conf: str) -> Bandwidth:
    """Return the bus bandwidth of an all-reduce over all GPUs of a cluster, in Gbit/s, started on node 0 by Slurm.

    It can be compared with what one machine sends (nccl-tests, doc/PERFORMANCE.md). `slurm_conf` is below the user's
    home. Raises Unreachable, with the last lines, where it fails, and where Slurm has no nodes free at once.
    """
    run = [program, "-b", SIZE, "-e", SIZE, "-g", str(gpus), "-n", str(ITERATIONS), "-w", str(WARM_UP), "-c", "0"]
    ask = ["salloc", "--quiet", "--immediate=5", "-N", str(nodes), "--ntasks-per-node=1", f"--gpus-per-node={gpus}"]
    words = shlex.join([*ask, "--time=2", "mpirun", *run])
    argv = ["sh", "-c", f'SLURM_CONF="$HOME"/{shlex.quote(slurm_conf)} {AS_ROOT} exec {words}']
    with _run_in_session(first, argv, INIT_S) as channel:
        output = _read_until(channel, INIT_S + STOP_TIMEOUT_S)
    return nccl_result(output, first.target.name, program, nodes * gpus)


def nccl_result(output: bytes, name: str, program: str, ranks: int) -> Bandwidth:
    """Return what nccl-tests says at its end of so many ranks, each a GPU.

    Raises Unreachable, with its last lines, where it does not come so far, and where it was built without MPI:
    each node would have measured itself.
    """
    found, there = _AVERAGE.findall(output), len(set(_RANK.findall(output)))
    if len(found) == 1 and float(found[0]) and there == ranks:
        return Bandwidth(float(found[0]) * BITS, None, program)
    if found and there != ranks:
        raise Unreachable(
            f"{program} on {name} ran {there} ranks that know each other instead of {ranks}: it is built without MPI.",
            field="name",
            value=name,
            next="Build nccl-tests with: make MPI=1. Or measure TCP: --with iperf3",
        )
    last = " ".join(output.decode(errors="replace").split("\n")[-4:]).strip()[-300:] or "it did not answer in time"
    raise Unreachable(f"{program} did not run on {name}: {last}", field="name", value=name, next="Use --with iperf3")


def no_iperf3(names: Sequence[str]) -> InvalidRequest:
    """Return the error that iperf3 is not installed on these machines."""
    each = "\n".join(f"cloudgpu exec {name} -- sudo apt-get install -y iperf3" for name in names)
    return InvalidRequest(
        f"iperf3 is not installed on {' and '.join(names)}.", field="name", value=names[0], next=f"Install it:\n{each}"
    )


@contextlib.contextmanager
def _run_in_session(connection: Connection, argv: Sequence[str], limit_s: float) -> Iterator[Channel]:
    """Run a command that ends with this session, its errors among its output; wait a moment for its end."""
    text = _WHILE_CONNECTED.format(limit=f"{limit_s:g}", command=f"{shlex.join(argv)} 2>&1")
    with connection.session() as channel, connection.explain_errors():
        channel.exec_command(shlex.join(["sh", "-c", text]))
        try:
            yield channel
        finally:
            channel.shutdown_write()
            channel.status_event.wait(STOP_TIMEOUT_S)


def _read_until(channel: Channel, patience_s: float, until: bytes | None = None) -> bytes:
    """Return what comes until the end, `until` is there, or the time is over."""
    output, give_up = b"", time.monotonic() + patience_s
    while (until is None or until not in output) and len(output) < MAX_OUTPUT:
        channel.settimeout(max(0.01, give_up - time.monotonic()))
        try:
            data = channel.recv(1 << 16)
        except TimeoutError:
            break
        if not data:
            break
        output += data
    return output
