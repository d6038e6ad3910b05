"""The engine on one node, over its connection: look, choose ports, write the files, start and end the daemons."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from cloudgpu.access.jobs.served import ProgramChannel, command_of, texts_of
from cloudgpu.core.clusters.conf import Files, mark_of
from cloudgpu.core.clusters.layout import EngineFiles, engine_files
from cloudgpu.core.clusters.nodes import NodeFacts, Ports, node_facts
from cloudgpu.core.clusters.state import EngineState, read_sinfo, read_squeue
from cloudgpu.errors import Unreachable

if TYPE_CHECKING:
    from cloudgpu.access.ssh.connection import Connection

MARK = b"\x1ecloudgpu-slurm "
LONGEST = 4 * 1024 * 1024  # bytes of an answer
LOOK_S, START_S, STOP_S, ASK_S = 60.0, 120.0, 60.0, 60.0
DAEMONS = ("munged", "slurmd")
CONTROLLER_DAEMONS = ("munged", "slurmctld", "slurmd")
EVERY = "0.0.0.0"  # noqa: S104  (where Slurm listens if it cannot be told an address)
PARTS = ("remote_processes", "remote_place", "remote_root", "remote_node")  # each may import those before it
COMMAND = command_of("cloudgpu.access.slurm", PARTS)


@cache
def program() -> bytes:
    """Return the texts, each behind its length."""
    return texts_of(Path(__file__).parent, PARTS)


@cache
def processes() -> str:
    """Return the text that root runs to end what runs under several names."""
    return Path(__file__).with_name(f"{PARTS[0]}.py").read_text(encoding="utf-8")


class EngineNode:
    """One node of a cluster and the program that looks after its engine; both go with `close`."""

    def __init__(self, connection: Connection, cluster: str, node: int) -> None:
        self.name = connection.target.name
        self.node = node
        self.files: EngineFiles = engine_files(cluster, node)
        self._mark = mark_of(cluster, node)
        self._connection = connection
        self._served = ProgramChannel(connection, COMMAND, program(), MARK)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the program and the connection; the daemons live on."""
        self._served.close()
        self._connection.close()

    @property
    def daemons(self) -> tuple[str, ...]:
        """The daemons of this node, in the order of their start."""
        return DAEMONS if self.node else CONTROLLER_DAEMONS

    def look(self, people: Sequence[str] = ()) -> NodeFacts:
        """Return what the node says of itself. Raises Unreachable, also for what no node can say."""
        before = time.time()
        answer = self._ask("look", LOOK_S, directory=self.files.directory, people=list(people))
        after = time.time()
        try:
            ahead = float(answer["now"]) - (before + after) / 2
            return node_facts(self.name, answer, 0.0 if abs(ahead) <= after - before else ahead)
        except (ValueError, KeyError, TypeError) as error:
            raise self._fault(str(error)) from None

    def hold(self, *, shared: bool) -> Ports:
        """Choose this node's ports, any free ones where it is `shared` with others, and hold them until `start`."""
        node, controller = self._ask("hold", ASK_S, controller=not self.node, shared=shared)["ports"]
        return Ports(int(node), None if controller is None else int(controller))

    def write(self, files: Files, key: bytes, *, several: bool = False) -> None:
        """Write the node's files and the cluster's munge key, which goes over standard input.

        For `several` people, copies of all but the key are where they can read them.
        """
        text = base64.b64encode(key).decode()
        at = self.files
        more = {"texts": dict(files.texts), "programs": list(files.programs), "key": text, "several": several}
        self._ask("write", ASK_S, directory=at.directory, short=at.short, **more)

    def note_plan(self, digest: str, ports: Ports) -> None:
        """Note by which plan the files were written."""
        self._ask("planned", ASK_S, directory=self.files.directory, digest=digest, ports=list(ports))

    def start(self, ports: Ports, *, at: str = EVERY, several: bool = False) -> tuple[str, ...]:
        """Start the daemons that do not run; return which those were. Raises Unreachable with a daemon's last words.

        `at` is the address at which they listen; EVERY: at every one that the node has. For `several` people slurmd is
        started as root, by `sudo -n`.
        """
        reached = "127.0.0.1" if at == EVERY else at
        more = {"name": self.name, "ports": list(ports), "names": list(self.daemons), "at": reached, "several": several}
        where = self.files
        answer = self._ask("start", START_S, directory=where.directory, short=where.short, mark=self._mark, **more)
        return tuple(answer["began"])

    def stop(self) -> None:
        """End everything that runs for the engine here, jobs too; the files stay."""
        at = self.files
        self._ask("stop", STOP_S, directory=at.directory, short=at.short, mark=self._mark, text=processes())

    def remove(self) -> None:
        """End everything that runs for the engine here, and remove its files."""
        at = self.files
        self._ask("remove", STOP_S, directory=at.directory, short=at.short, mark=self._mark, text=processes())

    def state(self) -> EngineState:
        """Return how the engine is; asked on node 0."""
        answer = self._ask("ask", ASK_S, directory=self.files.directory)
        if not answer["alive"]:
            return EngineState(alive=False, why=str(answer["why"]))
        return EngineState(True, read_sinfo(str(answer["sinfo"])), read_squeue(str(answer["squeue"])))  # noqa: FBT003

    def resume(self, names: Sequence[str]) -> None:
        """Take nodes into use again; asked on node 0."""
        self._ask("resume", ASK_S, directory=self.files.directory, names=list(names))

    def _ask(self, verb: str, timeout: float, **values: Any) -> dict[str, Any]:
        body = json.dumps({"verb": verb, **values}).encode()
        taken = bytearray()

        def take(data: memoryview) -> None:
            taken.extend(data)
            if len(taken) > LONGEST:
                raise ValueError("it says too much")

        try:
            whole = self._served.carry_out(b"%08d%s" % (len(body), body), (), take, timeout)
            answer = json.loads(taken) if whole else None
        except (ValueError, TypeError):
            raise self._fault("it is not an answer of cloudgpu's program") from None
        if answer is None:
            raise self._unanswered(timeout)
        if not isinstance(answer, dict) or "fault" in answer:
            raise self._fault(
                str(answer["fault"]) if isinstance(answer, dict) else "it is not an answer of cloudgpu's program"
            )
        return answer

    def _unanswered(self, timeout: float) -> Unreachable:
        if self._served.is_late:
            return self._fault(f"it was not done after {timeout:g} seconds")
        errors = self._served.last_errors()
        if errors is None:
            return self._connection.lost()
        last = errors.decode("utf-8", "replace").strip().splitlines()[-1:] or ["the program ended"]
        return self._fault(last[0][:300])

    def _fault(self, why: str) -> Unreachable:
        return Unreachable(
            f"The engine of {self.name} cannot be looked after: {why[:600].rstrip('.')}.",
            field="engine",
            value=self.name,
            next=f"Look at ~/{self.files.directory} there: cloudgpu ssh {self.name}",
        )
