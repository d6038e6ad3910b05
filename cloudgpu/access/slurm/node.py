"""Manages Slurm on one node, over a connection: reads facts, reserves ports, writes files, starts and ends daemons."""

from __future__ import annotations

import base64
import contextlib
import json
import time
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from cloudgpu.access.jobs.program_channel import ProgramChannel, command_of, module_texts, request_of
from cloudgpu.core.clusters.conf import Files, process_tag_of
from cloudgpu.core.clusters.layout import EnginePaths, engine_paths
from cloudgpu.core.clusters.nodes import NodeFacts, Ports, node_facts
from cloudgpu.core.clusters.state import SlurmState, read_sinfo, read_squeue
from cloudgpu.errors import Unreachable

if TYPE_CHECKING:
    from cloudgpu.access.ssh.connection import Connection

ANSWER_PREFIX = b"\x1ecloudgpu-slurm "
MAX_ANSWER_BYTES = 4 * 1024 * 1024
_NO_ANSWER = "it is not an answer of cloudgpu's program"
FACTS_S, START_S, STOP_S, REQUEST_S = 60.0, 120.0, 60.0, 60.0  # time-outs of requests, REQUEST_S of all others
DAEMONS = ("munged", "slurmd")
CONTROLLER_DAEMONS = ("munged", "slurmctld", "slurmd")
ALL_ADDRESSES = "0.0.0.0"  # noqa: S104  (where Slurm listens if it cannot be told an address)
MODULES = ("remote_processes", "remote_directories", "remote_facts", "remote_node")  # each may import those before it
COMMAND = command_of("cloudgpu.access.slurm", MODULES)


@cache
def program() -> bytes:
    """Return the texts of MODULES, each after its length."""
    return module_texts(Path(__file__).parent, MODULES)


@cache
def cleanup_program() -> str:
    """Return the program that root runs to end the processes of all users."""
    return Path(__file__).with_name(f"{MODULES[0]}.py").read_text(encoding="utf-8")


class EngineNode:
    """One node of a cluster, and the program on it that manages Slurm; `close` ends program and connection.

    `node` is its number: 0 is the controller.
    """

    def __init__(self, connection: Connection, cluster: str, node: int) -> None:
        self.name = connection.target.name
        self.node = node
        self.paths: EnginePaths = engine_paths(cluster, node)
        self._process_tag = process_tag_of(cluster, node)
        self._connection = connection
        self._channel = ProgramChannel(connection, COMMAND, program(), ANSWER_PREFIX)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the program and the connection; the daemons stay."""
        self._channel.close()
        self._connection.close()

    @property
    def daemons(self) -> tuple[str, ...]:
        """The daemons of this node, in the order of their start."""
        return DAEMONS if self.node else CONTROLLER_DAEMONS

    def read_facts(self, people: Sequence[str] = ()) -> NodeFacts:
        """Return the node's CPUs, memory and GPUs, and the uids of `people`, its users by login name.

        Raises Unreachable, also for impossible values.
        """
        sent_at = time.time()
        answer = self._request("look", FACTS_S, directory=self.paths.directory, people=list(people))
        received_at = time.time()
        with self._reading_answer():
            clock_offset_s = float(answer["now"]) - (sent_at + received_at) / 2
            return node_facts(
                self.name, answer, 0.0 if abs(clock_offset_s) <= received_at - sent_at else clock_offset_s
            )

    def reserve_ports(self, *, shared: bool) -> Ports:
        """Choose this node's ports, and hold them until `start`; any free ones if nodes share the host (`shared`)."""
        answer = self._request("hold", REQUEST_S, controller=not self.node, shared=shared)
        with self._reading_answer():
            node, controller = answer["ports"]
            return Ports(int(node), None if controller is None else int(controller))

    def write(self, files: Files, key: bytes, *, many_users: bool = False) -> None:
        """Write the node's files and the cluster's munge key, which is sent on standard input.

        `many_users`: all files but the key are also copied to where other users can read them.
        """
        key_text = base64.b64encode(key).decode()
        paths = self.paths
        values = {"texts": dict(files.texts), "programs": list(files.programs), "key": key_text, "several": many_users}
        self._request("write", REQUEST_S, directory=paths.directory, socket_dir=paths.socket_directory, **values)

    def record_plan(self, digest: str, ports: Ports) -> None:
        """Record on the node the hash of the plan by which its files were written."""
        self._request("planned", REQUEST_S, directory=self.paths.directory, digest=digest, ports=list(ports))

    def start(self, ports: Ports, *, address: str = ALL_ADDRESSES, many_users: bool = False) -> tuple[str, ...]:
        """Start the daemons that do not run; return their names. Raises Unreachable with a daemon's last output.

        `address` is where they listen; ALL_ADDRESSES: on all interfaces. For `many_users`, slurmd is started as root by
        `sudo -n`.
        """
        connect_address = "127.0.0.1" if address == ALL_ADDRESSES else address
        values = {"name": self.name, "ports": list(ports), "names": list(self.daemons), "several": many_users}
        files = {"directory": self.paths.directory, "socket_dir": self.paths.socket_directory}
        answer = self._request("start", START_S, **files, process_tag=self._process_tag, at=connect_address, **values)
        with self._reading_answer():
            return tuple(answer["began"])

    def stop(self) -> None:
        """End all processes of Slurm on this node, jobs too; its files stay."""
        self._request_end("stop")

    def remove(self) -> None:
        """End all processes of Slurm on this node, and remove its files."""
        self._request_end("remove")

    def _request_end(self, verb: str) -> None:
        files = self.paths
        self._request(
            verb,
            STOP_S,
            directory=files.directory,
            socket_dir=files.socket_directory,
            process_tag=self._process_tag,
            text=cleanup_program(),
        )

    def state(self) -> SlurmState:
        """Return the state of Slurm's nodes and queue; only for node 0, the controller."""
        answer = self._request("ask", REQUEST_S, directory=self.paths.directory)
        with self._reading_answer():
            if not answer["alive"]:
                return SlurmState(answers=False, why=str(answer["why"]))
            return SlurmState(True, read_sinfo(str(answer["sinfo"])), read_squeue(str(answer["squeue"])))  # noqa: FBT003

    def resume(self, names: Sequence[str]) -> None:
        """Put drained or down nodes back into service; only for node 0, the controller."""
        self._request("resume", REQUEST_S, directory=self.paths.directory, names=list(names))

    @contextlib.contextmanager
    def _reading_answer(self) -> Iterator[None]:
        """Raise Unreachable where a part of an answer is missing, or has an impossible value."""
        try:
            yield
        except (KeyError, TypeError):
            raise self._error(_NO_ANSWER) from None
        except ValueError as error:
            raise self._error(str(error)) from None

    def _request(self, verb: str, timeout: float, **values: Any) -> dict[str, Any]:
        answer_bytes = bytearray()

        def collect(data: memoryview) -> None:
            answer_bytes.extend(data)
            if len(answer_bytes) > MAX_ANSWER_BYTES:
                raise ValueError

        try:
            is_complete = self._channel.request(request_of(verb, **values), (), collect, timeout)
            answer = json.loads(answer_bytes) if is_complete else None
        except (ValueError, TypeError):
            is_too_long = len(answer_bytes) > MAX_ANSWER_BYTES
            raise self._error("its answer is too long" if is_too_long else _NO_ANSWER) from None
        if answer is None:
            raise self._no_answer_error(timeout)
        if not isinstance(answer, dict) or "fault" in answer:
            raise self._error(str(answer["fault"]) if isinstance(answer, dict) else _NO_ANSWER)
        return answer

    def _no_answer_error(self, timeout: float) -> Unreachable:
        if self._channel.is_timed_out:
            return self._error(f"it was not done after {timeout:g} seconds")
        stderr = self._channel.last_errors()
        if stderr is None:
            return self._connection.lost_error()
        last_line = stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or ["the program ended"]
        return self._error(last_line[0][:300])

    def _error(self, reason: str) -> Unreachable:
        return Unreachable(
            f"The engine of {self.name} cannot be managed: {reason[:600].rstrip('.')}.",
            field="engine",
            value=self.name,
            next=f"Look at ~/{self.paths.directory} there: cloudgpu ssh {self.name}",
        )
