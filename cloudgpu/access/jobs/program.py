"""Sends requests, with files, to the program that runs jobs on a machine, and reads the answers."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import IO, Any

from cloudgpu.access.jobs.program_channel import (
    MalformedAnswer,
    ProgramChannel,
    command_of,
    get_channel,
    module_texts,
    request_of,
)
from cloudgpu.access.ssh.connection import Connection
from cloudgpu.access.ssh.execute import ANSWER_TIMEOUT_S, PING_AFTER_S
from cloudgpu.access.ssh.keepalive import Keepalive
from cloudgpu.errors import InvalidRequest, Unreachable

MODULES = (
    "remote_files",
    "remote_attempt",
    "remote_download",
    "remote_upload",
    "remote_keeper",  # the keeper: the parent process of a job's command
    "remote_job",  # the requests, and the supervisor: the parent process of the keeper
)  # each may import those before it
SLURM_MODULES = ("remote_rank", "remote_submit")  # of access/slurm: they run a job in Slurm
_BEGIN_SLURM = f"""import sys, types
for name in {SLURM_MODULES!r}:
    module = types.ModuleType("cloudgpu.access.slurm." + name)
    sys.modules[module.__name__] = module
    path = sys.argv[1] + "/" + name + ".py"
    with open(path) as file:
        exec(compile(file.read(), path, "exec"), module.__dict__)
sys.exit(module.submit())
"""
COMMAND = command_of("cloudgpu.access.jobs", MODULES)
ANSWER_PREFIX = b"\x1ecloudgpu "  # begins an answer: a login shell may have printed something before
MAX_HEADER_BYTES = 256 * 1024 * 1024
MAX_FRAME_BYTES = 16 * 1024 * 1024
_FRAME_HEADER = struct.Struct(">BI")
_STDOUT, _STDERR, _END = 1, 2, 3

Sink = Callable[[memoryview], None]  # is called with each part of a file that the program sends


class RequestRefused(Exception):
    """An error that the program answered: its kind, a message and other values."""

    def __init__(self, answer: Mapping[str, Any]) -> None:
        super().__init__(str(answer.get("message", "")))
        self.answer = answer
        self.kind = str(answer["error"])


@cache
def program() -> bytes:
    """Return the modules that are sent, each after its length."""
    return module_texts(Path(__file__).parent, MODULES)


@cache
def slurm_program() -> dict[str, str]:
    """Return the modules that run a job in Slurm, by file name; `begin.py` is run with their directory."""
    slurm_dir = Path(__file__).parents[1] / "slurm"
    texts = {f"{name}.py": (slurm_dir / f"{name}.py").read_text(encoding="utf-8") for name in SLURM_MODULES}
    texts["remote_rank.py"] = f"#!/usr/bin/env python3\n{texts['remote_rank.py']}"  # it is also the batch script
    return {**texts, "begin.py": _BEGIN_SLURM}


def _parse_json(text: bytearray) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise MalformedAnswer(str(error)) from error


class _Answer:
    """Parses an answer: stores its header, a JSON object, and passes what follows to `sink`."""

    def __init__(self, sink: Sink | None) -> None:
        self._sink = sink
        self._buffer = bytearray()
        self.header: dict[str, Any] | None = None

    def write(self, data: memoryview) -> None:
        """Parse the next bytes. Raises MalformedAnswer for anything but an answer, and what `sink` raises."""
        if self.header is not None:
            return self._forward(data)
        self._buffer += data
        if not self._buffer.startswith(ANSWER_PREFIX[: len(self._buffer)]):
            raise MalformedAnswer("no header")
        end = self._buffer.find(b"\n")
        if end >= 0:
            self._begin(len(ANSWER_PREFIX), end)
        elif len(self._buffer) > MAX_HEADER_BYTES:
            raise MalformedAnswer("a header is too long")
        return None

    def _begin(self, start: int, end: int) -> None:
        header = _parse_json(self._buffer[start:end])
        if not isinstance(header, dict):
            raise MalformedAnswer("the header is not a JSON object")
        content = bytes(self._buffer[end + 1 :])
        self.header, self._buffer = header, bytearray()
        if "error" in header:
            self._sink = None
        self._forward(memoryview(content))

    def _forward(self, data: memoryview) -> None:
        if self._sink is not None and data:
            self._sink(data)


def run_request(
    connection: Connection,
    verb: str,
    *,
    chunks: Iterable[bytes] = (),
    sink: Sink | None = None,
    timeout: float | None = None,
    **values: Any,
) -> dict[str, Any]:
    """Send one request and return the header of its answer; `timeout` is in seconds.

    `chunks` are sent after the request; what follows the header of the answer goes to `sink`. Raises RequestRefused for
    an error that the program answers, InvalidRequest where the machine's disk is full, Unreachable when the connection
    is lost or the program does not run or is too slow, and whatever `chunks` and `sink` raise.
    """
    request = request_of(verb, **values)
    with Keepalive(connection, ping_after_s=PING_AFTER_S, answer_timeout_s=ANSWER_TIMEOUT_S) as keepalive:
        while True:
            channel, is_new = get_channel(connection, COMMAND, program(), ANSWER_PREFIX)
            incoming = _Answer(sink)
            try:
                is_complete = channel.request(request, chunks, incoming.write, timeout)
            except MalformedAnswer:  # and nothing that `sink` raises, such as the ValueError of a closed file
                raise _no_answer_error(connection, b"it is not an answer of cloudgpu's program") from None
            if (
                is_complete
                or is_new
                or incoming.header
                or channel.files_sent
                or channel.is_timed_out
                or not connection.is_usable()
            ):
                break  # else the program had ended since the last request: retry with a new one
    if channel.read_error is not None:
        raise channel.read_error
    if incoming.header is not None and "error" in incoming.header:
        if chunks == ():
            _reuse_channel(connection, channel, is_complete=is_complete)
        raise _error_of(connection, incoming.header)
    if not is_complete and channel.is_timed_out:
        raise _no_answer_error(connection, f"it was not done after {timeout:g} seconds".encode())
    stderr = b"" if is_complete else channel.last_errors()
    if stderr is None:
        raise keepalive.error or connection.lost_error()
    if incoming.header is None or not is_complete:
        raise _no_answer_error(connection, stderr)
    _reuse_channel(connection, channel, is_complete=is_complete)
    return incoming.header


def _reuse_channel(connection: Connection, channel: ProgramChannel, *, is_complete: bool) -> None:
    if is_complete and channel.is_open:
        connection.idle_channels.append(channel)


def _error_of(connection: Connection, header: Mapping[str, Any]) -> Exception:
    if header["error"] != "disk_full":
        return RequestRefused(header)
    name = connection.target.name
    return InvalidRequest(
        f"The disk of {name} is full: {str(header.get('message', ''))[:300]}.",
        field="--disk",
        value=name,
        next=f"Free space there (cloudgpu exec {name} -- df -h), or use a machine with a larger --disk.",
    )


def _no_answer_error(connection: Connection, stderr: bytes) -> Unreachable:
    name = connection.target.name
    last_line = stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or ["it said nothing"]
    return Unreachable(
        f"The program that runs jobs does not run on {name}: {last_line[0][:300]}.",
        field="name",
        value=name,
        next=f"It needs Python 3.8 or later there: cloudgpu exec {name} -- python3 --version",
    )


class StreamFrames:
    """Parses frames (number of the stream, length, bytes) and writes each stream to its file.

    `end` is the JSON object in the last frame: where the output ended, and the attempt's phase.
    """

    def __init__(self, out: IO[bytes], err: IO[bytes]) -> None:
        self._files = {_STDOUT: out, _STDERR: err}
        self._header = bytearray()
        self._stream = self._bytes_left = 0
        self._end_json = bytearray()
        self.end: dict[str, Any] | None = None

    def write(self, data: memoryview) -> None:
        """Parse the next bytes, and write those of a stream at once. Raises MalformedAnswer, and what a file raises."""
        while data:
            if not self._bytes_left:
                missing_bytes = _FRAME_HEADER.size - len(self._header)
                self._header += data[:missing_bytes]
                data = data[missing_bytes:]
                if len(self._header) < _FRAME_HEADER.size:
                    return
                self._stream, self._bytes_left = _FRAME_HEADER.unpack(self._header)
                self._header.clear()
                if self._bytes_left > MAX_FRAME_BYTES:
                    raise MalformedAnswer("a frame is too long")
            payload, data = data[: self._bytes_left], data[self._bytes_left :]
            self._bytes_left -= len(payload)
            self._write_payload(payload)

    def _write_payload(self, payload: memoryview) -> None:
        file = self._files.get(self._stream)
        if file is not None and payload:
            file.write(payload)
            file.flush()
        elif self._stream == _END:
            self._end_json += payload
            if not self._bytes_left:
                self.end = _parse_json(self._end_json)
