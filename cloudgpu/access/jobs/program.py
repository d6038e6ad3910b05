"""Asks the program that runs jobs on a machine: sends its text, one request and files, and takes what comes back."""

from __future__ import annotations

import contextlib
import json
import shlex
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloudgpu.access.ssh.execute import DEADLINE_S, QUIET_S
from cloudgpu.access.ssh.keepalive import Keepalive
from cloudgpu.errors import InvalidRequest, Unreachable

if TYPE_CHECKING:
    from paramiko.channel import Channel

    from cloudgpu.access.ssh.connection import Connection

PARTS = ("remote_files", "remote_attempt", "remote_keeper", "remote_job")  # each may import those before it
# Isolated: no file in the user's home may stand in for a module. Behind the texts comes the request.
_BEGIN = f"""import sys, types
take = sys.stdin.buffer
for name in {PARTS!r}:
    module = types.ModuleType("cloudgpu.access.jobs." + name)
    sys.modules[module.__name__] = module
    exec(compile(take.read(int(take.readline())), name + ".py", "exec"), module.__dict__)
sys.exit(module.main())""".replace("'", '"')
_AGENT = '"$HOME"/.cloudgpu/agent'
# A workstation of one's own may have no agent of ours.
COMMAND = "sh -c " + shlex.quote(
    f"if [ -x {_AGENT} ]; then exec {_AGENT} python -IS -c '{_BEGIN}'; else exec python3 -IS -c '{_BEGIN}'; fi"
)
MARK = b"\x1ecloudgpu "  # what an answer begins with: a login shell may have printed something before it
LONGEST_HEAD = 256 * 1024 * 1024
LONGEST_GREETING = 64 * 1024
ERRORS_KEPT = 4096

Sink = Callable[[memoryview], None]


class Refused(Exception):
    """What the program said it cannot do: a kind, a sentence and whatever else it told."""

    def __init__(self, answer: Mapping[str, Any]) -> None:
        super().__init__(str(answer.get("message", "")))
        self.answer = answer
        self.kind = str(answer["error"])


@cache
def program() -> bytes:
    """Return the texts, each behind its length."""
    texts = [Path(__file__).with_name(f"{name}.py").read_bytes() for name in PARTS]
    return b"".join(b"%d\n%s" % (len(text), text) for text in texts)


def request_of(verb: str, **values: Any) -> bytes:
    """Return what is written to the machine before any file: the program and the request."""
    return program() + json.dumps({"verb": verb, **values}).encode() + b"\n"


class _Outgoing:
    """Standard input of the program, made piece by piece while it is sent. `fault` is why it ended too soon."""

    def __init__(self, request: bytes, pieces: Iterable[bytes]) -> None:
        self._pieces = self._joined(request, pieces)
        self.fault: Exception | None = None

    @staticmethod
    def _joined(request: bytes, pieces: Iterable[bytes]) -> Iterator[bytes]:
        yield request
        yield from pieces

    def read(self, _size: int = -1) -> bytes:
        """Return the next piece; nothing at the end."""
        try:
            return next((piece for piece in self._pieces if piece), b"")
        except Exception as error:  # noqa: BLE001
            self.fault = error
            return b""


class _Incoming:
    """Standard output of the program: its head is kept, what follows goes to the sink."""

    def __init__(self, sink: Sink | None) -> None:
        self._sink = sink
        self._buffer = bytearray()
        self.head: dict[str, Any] | None = None

    def write(self, data: bytes | memoryview) -> int:
        """Take all of it."""
        if self.head is not None:
            self._pass(memoryview(data))
            return len(data)
        self._buffer += data
        at = self._buffer.find(MARK)
        end = self._buffer.find(b"\n", at) if at >= 0 else -1
        if end >= 0:
            self._begin(at + len(MARK), end)
        elif len(self._buffer) > (LONGEST_HEAD if at >= 0 else LONGEST_GREETING):
            raise ValueError
        return len(data)

    def _begin(self, at: int, end: int) -> None:
        head = json.loads(self._buffer[at:end])
        if not isinstance(head, dict):
            raise TypeError
        rest = bytes(self._buffer[end + 1 :])
        self.head, self._buffer = head, bytearray()
        if "error" in head:
            self._sink = None
        self._pass(memoryview(rest))

    def _pass(self, data: memoryview) -> None:
        if self._sink is not None and data:
            self._sink(data)

    def flush(self) -> None:
        """Do nothing: there is no buffer behind it."""


class _Errors:
    """Standard error of the program: the first of it, for a sentence."""

    def __init__(self) -> None:
        self.text = b""

    def write(self, data: bytes | memoryview) -> int:
        self.text += bytes(data[: max(0, ERRORS_KEPT - len(self.text))])
        return len(data)

    def flush(self) -> None:
        """Do nothing."""


def ask(
    connection: Connection,
    verb: str,
    *,
    pieces: Iterable[bytes] = (),
    sink: Sink | None = None,
    timeout: float | None = None,
    **values: Any,
) -> dict[str, Any]:
    """Have one request carried out and return the head of its answer, within `timeout` seconds where it is given.

    `pieces` are sent behind the request while answers are taken; what follows the head of the answer goes to `sink`.
    Raises Refused for what the program refuses, InvalidRequest where the machine's disk is full, Unreachable when the
    connection is lost or the program does not run or is too slow, and whatever `pieces` and `sink` raise.
    """
    from cloudgpu.access.ssh.streams import converse

    outgoing, incoming, errors = _Outgoing(request_of(verb, **values), pieces), _Incoming(sink), _Errors()
    with Keepalive(connection, quiet=QUIET_S, deadline=DEADLINE_S) as alive, connection.session() as channel:
        with connection.explained():
            channel.exec_command(COMMAND)
        try:
            with _hung_up_after(channel, timeout) as passed:
                status = converse(channel, outgoing, incoming, errors)  # type: ignore[arg-type]  # it has both alone
        except (ValueError, TypeError):
            raise _no_answer(connection, b"it is no answer of ours") from None
    if outgoing.fault is not None:
        raise outgoing.fault
    if incoming.head is not None and "error" in incoming.head:
        raise _refused(connection, incoming.head)
    if status is None and passed.is_set():
        raise _no_answer(connection, f"it was not done after {timeout:g} seconds".encode())
    if status is None:
        raise alive.fault or connection.lost()
    if incoming.head is None or status:
        raise _no_answer(connection, errors.text)
    return incoming.head


@contextlib.contextmanager
def _hung_up_after(channel: Channel, timeout: float | None) -> Iterator[threading.Event]:
    """Hang up on a program that takes too long; say so by the event."""
    from cloudgpu.access.ssh.transport import hang_up

    passed = threading.Event()

    def give_up() -> None:
        passed.set()
        hang_up(channel)

    timer = threading.Timer(timeout or 0.0, give_up)
    timer.daemon = True
    if timeout is not None:
        timer.start()
    try:
        yield passed
    finally:
        timer.cancel()


def _refused(connection: Connection, head: Mapping[str, Any]) -> Exception:
    if head["error"] != "disk_full":
        return Refused(head)
    name = connection.target.name
    return InvalidRequest(
        f"The disk of {name} is full: {str(head.get('message', ''))[:300]}.",
        field="--disk",
        value=name,
        next=f"Free space there (cloudgpu exec {name} -- df -h), or use a machine with a larger --disk.",
    )


def _no_answer(connection: Connection, errors: bytes) -> Unreachable:
    name = connection.target.name
    last = errors.decode("utf-8", "replace").strip().splitlines()[-1:] or ["it said nothing"]
    return Unreachable(
        f"The program that runs jobs does not run on {name}: {last[0][:300]}.",
        field="name",
        value=name,
        next=f"It needs Python 3.8 or later there: cloudgpu exec {name} -- python3 --version",
    )
