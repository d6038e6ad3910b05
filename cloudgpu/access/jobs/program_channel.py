"""Channels to a program on a machine that answers requests one after the other.

Starting the program takes longer than most answers, so a connection keeps idle channels for reuse. A channel whose
answer was not read to its end is closed: the rest would be taken for the next answer. The program ends with its
channel.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import struct
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from cloudgpu.access.ssh.connection import OPEN_CHANNEL_S, call_after

if TYPE_CHECKING:
    from paramiko.channel import Channel

    from cloudgpu.access.ssh.connection import Connection
    from cloudgpu.access.ssh.transport import SshChannel

CHUNK_BYTES = 128 * 1024
MAX_GREETING_BYTES = 64 * 1024
MAX_ERROR_BYTES = 4096
SEND_END_S = 1.0  # to finish sending after the answer has come
EXIT_WAIT_S = 5.0  # for a program's exit status, or for the thread that sends, after the channel has ended
_FRAME_LENGTH = struct.Struct(">I")

Receiver = Callable[[memoryview], object]  # is called with each part of an answer


class MalformedAnswer(ValueError):
    """What a program wrote is no answer in the expected format."""


# Reads the modules' texts, then requests. Isolated (-I): no file in the user's home may shadow a module. Unbuffered:
# the process that handles a request reads what follows it.
_BOOTSTRAP = """import os, sys, types
def take(size):
    data = b""
    while len(data) < size:
        more = os.read(0, size - len(data))
        if not more:
            sys.exit(0)
        data += more
    return data
for name in MODULES:
    module = types.ModuleType("PACKAGE." + name)
    sys.modules[module.__name__] = module
    exec(compile(take(int(take(8))), name + ".py", "exec"), module.__dict__)
sys.exit(module.main(take))"""
_AGENT = '"$HOME"/.cloudgpu/agent'  # with `python` as its first argument, it runs the agent's interpreter


def command_of(package: str, modules: tuple[str, ...]) -> str:
    """Return the command that reads the modules in the format of `module_texts`, and runs `main` of the last one.

    The agent's Python runs it; on an owned workstation without the agent, the system's Python.
    """
    bootstrap = _BOOTSTRAP.replace("MODULES", repr(modules)).replace("PACKAGE", package).replace("'", '"')
    run_bootstrap = f"python -IS -c '{bootstrap}'"
    return "sh -c " + shlex.quote(
        f"if [ -x {_AGENT} ]; then exec {_AGENT} {run_bootstrap}; else exec python3 -IS -c '{bootstrap}'; fi"
    )


def module_texts(folder: Path, modules: tuple[str, ...]) -> bytes:
    """Return the texts of these modules, each after its length in eight digits."""
    return b"".join(_with_length(folder.joinpath(f"{name}.py").read_bytes()) for name in modules)


def request_of(verb: str, **values: Any) -> bytes:
    """Return a request after its length; files may follow it."""
    return _with_length(json.dumps({"verb": verb, **values}).encode())


def _with_length(text: bytes) -> bytes:
    return b"%08d%s" % (len(text), text)


def get_channel(connection: Connection, command: str, program: bytes, start_mark: bytes) -> tuple[ProgramChannel, bool]:
    """Return an idle channel of this connection, else a new one, and whether it is new. Raises Unreachable.

    `start_mark` is what the program writes first: a login shell may have printed something before.
    """
    while connection.idle_channels:
        with contextlib.suppress(IndexError):  # another thread was faster
            channel = cast("ProgramChannel", connection.idle_channels.pop())
            if channel.is_open:
                return channel, False
            channel.close()
    return ProgramChannel(connection, command, program, start_mark), True


class ProgramChannel:
    """A channel to a running program. One thread at a time may use it; any may close it.

    About the last request: `is_timed_out`; `files_sent`, some of its file chunks were sent; `read_error`, the error of
    reading the chunks here.
    """

    def __init__(self, connection: Connection, command: str, program: bytes, start_mark: bytes) -> None:
        with connection.explain_errors():
            self._channel: Channel = connection.transport.open_session(timeout=OPEN_CHANNEL_S)
            self._channel.exec_command(command)
        self._unsent_program = program
        self._frames = _Frames(start_mark)
        self.is_timed_out = self.files_sent = False
        self.read_error: Exception | None = None

    @property
    def is_open(self) -> bool:
        """Whether the program still waits for requests, as far as this side knows."""
        channel = self._channel
        return not (channel.closed or channel.eof_received or channel.exit_status_ready())

    def close(self) -> None:
        """End the program by closing its channel; safe to call twice and from any thread."""
        from cloudgpu.access.ssh.transport import close_channel

        close_channel(self._channel)

    def last_errors(self) -> bytes | None:
        """Return what an ended program wrote to stderr; None where only the connection was lost."""
        if self._channel.exit_status < 0:
            return None
        self.close()
        with contextlib.suppress(*_connection_errors()):
            return self._channel.recv_stderr(MAX_ERROR_BYTES)
        return b""

    def request(self, body: bytes, chunks: Iterable[bytes], receive: Receiver, timeout: float | None) -> bool:
        """Send a request, then chunks of files; pass the answer to `receive`; return whether the answer is complete.

        Closes the channel if not. Raises what `receive` raises, and MalformedAnswer.
        """
        program, self._unsent_program = self._unsent_program, b""
        self.is_timed_out = self.files_sent = is_complete = False
        try:
            with (
                contextlib.nullcontext() if timeout is None else call_after(timeout, self._give_up),
                self._send_in_background(program + body, chunks),
            ):
                is_complete = self._read_answer(receive)
        except KeyboardInterrupt:
            self._interrupt()
            raise
        finally:
            if not is_complete:
                self.close()
        return is_complete

    def _read_answer(self, receive: Receiver) -> bool:
        self._frames.begin(receive)
        while not self._frames.is_over:
            data = b""
            with contextlib.suppress(
                *_connection_errors()
            ):  # recv also sends a message, and the connection may just be ending
                data = self._channel.recv(CHUNK_BYTES)
            if not data:
                self._channel.status_event.wait(EXIT_WAIT_S)  # the exit status comes after the last byte
                return False
            self._frames.write(memoryview(data))
        return True

    @contextlib.contextmanager
    def _send_in_background(self, request: bytes, chunks: Iterable[bytes]) -> Iterator[None]:
        if chunks == ():  # the program reads a request before it answers
            self._send([request])
            yield
            return
        feeder = threading.Thread(target=self._feed, args=(request, chunks), name="job-feeder", daemon=True)
        feeder.start()
        try:
            yield
            feeder.join(SEND_END_S)
        finally:
            if feeder.is_alive():  # it waits for a window that is not opened any more
                self.close()
                feeder.join(EXIT_WAIT_S)

    def _feed(self, request: bytes, chunks: Iterable[bytes]) -> None:
        self._send([request])
        self._send(self._record_read_error(chunks))
        if self.read_error is not None:  # the program keeps the files that are complete
            with contextlib.suppress(*_connection_errors()):
                self._channel.shutdown_write()

    def _record_read_error(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        try:
            for chunk in chunks:
                self.files_sent = True
                yield chunk
        except Exception as error:  # noqa: BLE001
            self.read_error = error

    def _send(self, chunks: Iterable[bytes]) -> None:
        with contextlib.suppress(
            *_connection_errors()
        ):  # the program has ended, or the connection: the reader sees which
            for chunk in chunks:
                self._channel.sendall(chunk)

    def _interrupt(self) -> None:
        with contextlib.suppress(*_connection_errors()):
            cast("SshChannel", self._channel).send_signal("INT")

    def _give_up(self) -> None:
        self.is_timed_out = True
        self.close()


def _connection_errors() -> tuple[type[BaseException], ...]:
    from cloudgpu.access.ssh.transport import CONNECTION_ERRORS

    return CONNECTION_ERRORS


class _Frames:
    """Parses what the program writes: once a start mark, then answers in frames (length and bytes).

    An empty frame ends an answer. A login shell may have printed something before the mark.
    """

    def __init__(self, start_mark: bytes) -> None:
        self._start_mark: bytes | None = start_mark
        self._buffer = bytearray()
        self._bytes_left = 0
        self._receive: Receiver = len
        self.is_over = True

    def begin(self, receive: Receiver) -> None:
        """Expect the next answer, and pass it to `receive`."""
        self._receive, self.is_over = receive, False

    def write(self, data: memoryview) -> None:
        """Parse the next bytes. Raises MalformedAnswer, and what `receive` raises."""
        if self._start_mark is not None:
            data = self._after_mark(self._start_mark, data)
        while data:
            if self.is_over:
                raise MalformedAnswer("more bytes than requested")
            data = self._read_body(data) if self._bytes_left else self._read_length(data)

    def _after_mark(self, start_mark: bytes, data: memoryview) -> memoryview:
        self._buffer += data
        position = self._buffer.find(start_mark)
        if position < 0:
            if len(self._buffer) > MAX_GREETING_BYTES:
                raise MalformedAnswer("no mark")
            return memoryview(b"")
        after_mark = bytes(self._buffer[position + len(start_mark) :])
        self._buffer.clear()
        self._start_mark = None
        return memoryview(after_mark)

    def _read_length(self, data: memoryview) -> memoryview:
        missing = _FRAME_LENGTH.size - len(self._buffer)
        self._buffer += data[:missing]
        if len(self._buffer) == _FRAME_LENGTH.size:
            (self._bytes_left,) = _FRAME_LENGTH.unpack(self._buffer)
            self._buffer.clear()
            self.is_over = not self._bytes_left
        return data[missing:]

    def _read_body(self, data: memoryview) -> memoryview:
        frame_part = data[: self._bytes_left]
        self._bytes_left -= len(frame_part)
        self._receive(frame_part)
        return data[len(frame_part) :]
