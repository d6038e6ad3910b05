"""Has the program that runs jobs on a machine carry out a request: sends it, and files, and takes what comes back."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import IO, Any

from cloudgpu.access.jobs.served import ProgramChannel, command_of, get_channel, module_texts
from cloudgpu.access.ssh.connection import Connection
from cloudgpu.access.ssh.execute import DEADLINE_S, QUIET_S
from cloudgpu.access.ssh.keepalive import Keepalive
from cloudgpu.errors import InvalidRequest, Unreachable

MODULES = (
    "remote_files",
    "remote_attempt",
    "remote_download",
    "remote_upload",
    "remote_keeper",
    "remote_job",
)  # each may import those before it
SLURM_PARTS = ("remote_rank", "remote_submit")  # of access/slurm: what takes a job through Slurm
_BEGIN_SLURM = f"""import sys, types
for name in {SLURM_PARTS!r}:
    module = types.ModuleType("cloudgpu.access.slurm." + name)
    sys.modules[module.__name__] = module
    path = sys.argv[1] + "/" + name + ".py"
    with open(path) as file:
        exec(compile(file.read(), path, "exec"), module.__dict__)
sys.exit(module.submit())
"""
COMMAND = command_of("cloudgpu.access.jobs", MODULES)
ANSWER_PREFIX = b"\x1ecloudgpu "  # what an answer begins with: a login shell may have printed something before it
LONGEST_HEAD = 256 * 1024 * 1024
LONGEST_FRAME = 16 * 1024 * 1024
_HEAD = struct.Struct(">BI")
_OUT, _ERR, _END = 1, 2, 3

Sink = Callable[[memoryview], None]


class Refused(Exception):
    """An error that the program reported: a kind, a sentence and further values."""

    def __init__(self, answer: Mapping[str, Any]) -> None:
        super().__init__(str(answer.get("message", "")))
        self.answer = answer
        self.kind = str(answer["error"])


@cache
def program() -> bytes:
    """Return the texts, each behind its length."""
    return module_texts(Path(__file__).parent, MODULES)


@cache
def slurm_program() -> dict[str, str]:
    """Return the texts that take a job through Slurm, by names of files; `begin.py` is run with their directory."""
    there = Path(__file__).parents[1] / "slurm"
    texts = {f"{name}.py": (there / f"{name}.py").read_text(encoding="utf-8") for name in SLURM_PARTS}
    texts["remote_rank.py"] = f"#!/usr/bin/env python3\n{texts['remote_rank.py']}"  # it is the batch script, too
    return {**texts, "begin.py": _BEGIN_SLURM}


def _with_length(text: bytes) -> bytes:
    return b"%08d%s" % (len(text), text)


def request_of(verb: str, **values: Any) -> bytes:
    """Return a request behind its length; files may follow it."""
    return _with_length(json.dumps({"verb": verb, **values}).encode())


class _Incoming:
    """An answer: its head is kept, what follows goes to the sink."""

    def __init__(self, sink: Sink | None) -> None:
        self._sink = sink
        self._buffer = bytearray()
        self.head: dict[str, Any] | None = None

    def write(self, data: memoryview) -> None:
        """Take all of it. Raises ValueError, TypeError for what is no answer, and what the sink raises."""
        if self.head is not None:
            return self._pass(data)
        self._buffer += data
        if not self._buffer.startswith(ANSWER_PREFIX[: len(self._buffer)]):
            raise ValueError("no head")
        end = self._buffer.find(b"\n")
        if end >= 0:
            self._begin(len(ANSWER_PREFIX), end)
        elif len(self._buffer) > LONGEST_HEAD:
            raise ValueError("a head is too long")
        return None

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


def run_request(
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
    request = request_of(verb, **values)
    with Keepalive(connection, quiet=QUIET_S, deadline=DEADLINE_S) as alive:
        while True:
            served, is_new = get_channel(connection, COMMAND, program(), ANSWER_PREFIX)
            incoming = _Incoming(sink)
            try:
                whole = served.request(request, pieces, incoming.write, timeout)
            except (ValueError, TypeError):
                raise _no_answer(connection, b"it is not an answer of cloudgpu's program") from None
            if whole or is_new or incoming.head or served.files_sent or served.is_late or not connection.is_usable():
                break  # else the program had ended since the last request: once more, with a new one
    if served.read_error is not None:
        raise served.read_error
    if incoming.head is not None and "error" in incoming.head:
        if pieces == ():
            _keep_channel(connection, served, whole=whole)
        raise _error_of(connection, incoming.head)
    if not whole and served.is_late:
        raise _no_answer(connection, f"it was not done after {timeout:g} seconds".encode())
    errors = b"" if whole else served.last_errors()
    if errors is None:
        raise alive.error or connection.lost()
    if incoming.head is None or not whole:
        raise _no_answer(connection, errors)
    _keep_channel(connection, served, whole=whole)
    return incoming.head


def _keep_channel(connection: Connection, served: ProgramChannel, *, whole: bool) -> None:
    if whole and served.is_open:
        connection.idle_channels.append(served)


def _error_of(connection: Connection, head: Mapping[str, Any]) -> Exception:
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


class StreamFrames:
    """Takes frames: the number of the stream, the length, the bytes."""

    def __init__(self, out: IO[bytes], err: IO[bytes]) -> None:
        self._files = {_OUT: out, _ERR: err}
        self._head = bytearray()
        self._number = self._left = 0
        self._last = bytearray()
        self.end: dict[str, Any] | None = None

    def write(self, data: memoryview) -> None:
        """Take the next bytes; what belongs to a stream is written to its file at once."""
        while data:
            if not self._left:
                need = _HEAD.size - len(self._head)
                self._head += data[:need]
                data = data[need:]
                if len(self._head) < _HEAD.size:
                    return
                self._number, self._left = _HEAD.unpack(self._head)
                self._head.clear()
                if self._left > LONGEST_FRAME:
                    raise ValueError("a frame is too long")
            part, data = data[: self._left], data[self._left :]
            self._left -= len(part)
            self._take(part)

    def _take(self, part: memoryview) -> None:
        file = self._files.get(self._number)
        if file is not None and part:
            file.write(part)
            file.flush()
        elif self._number == _END:
            self._last += part
            if not self._left:
                self.end = json.loads(self._last)
