"""Channels to a program that runs on a machine and answers one request after the other; kept with their connection.

Starting the program takes longer than most answers, so idle channels are reused. A channel whose answer was not read to
its end is closed: the rest would be read as the next answer. The program ends with its channel.
"""

from __future__ import annotations

import contextlib
import shlex
import struct
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from paramiko.channel import Channel

    from cloudgpu.access.ssh.connection import Connection
    from cloudgpu.access.ssh.transport import SshChannel

CHUNK = 128 * 1024
OPEN_S = 20.0  # how long a server may take to open a channel
LONGEST_GREETING = 64 * 1024
ERRORS_KEPT = 4096
SEND_REST_S = 1.0  # what is on its way when the answer comes
EXIT_WAIT_S = 5.0
_SIZE = struct.Struct(">I")

Receive = Callable[[memoryview], object]

# Isolated (-I): no file in the user's home may shadow a module. Unbuffered: what follows a request is read by the
# process that handles it. Requests follow the modules' texts.
_BEGIN = """import os, sys, types
def take(size):
    data = b""
    while len(data) < size:
        more = os.read(0, size - len(data))
        if not more:
            sys.exit(0)
        data += more
    return data
for name in PARTS:
    module = types.ModuleType("PACKAGE." + name)
    sys.modules[module.__name__] = module
    exec(compile(take(int(take(8))), name + ".py", "exec"), module.__dict__)
sys.exit(module.main(take))"""
_AGENT = '"$HOME"/.cloudgpu/agent'


def command_of(package: str, modules: tuple[str, ...]) -> str:
    """Return the command that reads the modules of a package that `module_texts` returns, and runs the last one's main.

    An owned workstation may have no agent of ours: its own Python runs them then.
    """
    begin = _BEGIN.replace("PARTS", repr(modules)).replace("PACKAGE", package).replace("'", '"')
    run = f"python -IS -c '{begin}'"
    return "sh -c " + shlex.quote(
        f"if [ -x {_AGENT} ]; then exec {_AGENT} {run}; else exec python3 -IS -c '{begin}'; fi"
    )


def module_texts(folder: Path, modules: tuple[str, ...]) -> bytes:
    """Return the texts of these modules, each preceded by its length in eight digits."""
    texts = (folder.joinpath(f"{name}.py").read_bytes() for name in modules)
    return b"".join(b"%08d%s" % (len(text), text) for text in texts)


def get_channel(connection: Connection, command: str, program: bytes, mark: bytes) -> tuple[ProgramChannel, bool]:
    """Return an idle channel of this connection, else a new one, and whether it is new. Raises Unreachable."""
    while connection.idle_channels:
        with contextlib.suppress(IndexError):  # another thread was faster
            served = cast("ProgramChannel", connection.idle_channels.pop())
            if served.is_open:
                return served, False
            served.close()
    return ProgramChannel(connection, command, program, mark), True


class ProgramChannel:
    """One channel with the program behind it. One thread at a time uses it; any may close it.

    Of the last request, `is_late` tells whether it timed out, `files_sent` whether any of its files was on its way, and
    `read_error` is what kept the rest of them from being read here.
    """

    def __init__(self, connection: Connection, command: str, program: bytes, mark: bytes) -> None:
        with connection.explain_errors():
            self._channel: Channel = connection.transport.open_session(timeout=OPEN_S)
            self._channel.exec_command(command)
        self._first = program
        self._frames = _Frames(mark)
        self.is_late = self.files_sent = False
        self.read_error: Exception | None = None

    @property
    def is_open(self) -> bool:
        """Whether the program still waits for a request, as far as is known here."""
        channel = self._channel
        return not (channel.closed or channel.eof_received or channel.exit_status_ready())

    def close(self) -> None:
        """End the program by closing its channel; safe to call twice and from any thread."""
        from cloudgpu.access.ssh.transport import hang_up

        hang_up(self._channel)

    def last_errors(self) -> bytes | None:
        """Return what an ended program wrote to standard error; None where only the connection was lost."""
        if self._channel.exit_status < 0:
            return None
        self.close()
        with contextlib.suppress(*_errors()):
            return self._channel.recv_stderr(ERRORS_KEPT)
        return b""

    def request(self, body: bytes, chunks: Iterable[bytes], receive: Receive, timeout: float | None) -> bool:
        """Send a request, then chunks of files; pass the answer to `receive`; return whether the answer is complete.

        Closes the channel where it is not. Raises what `receive` raises, and ValueError for an answer that is not ours.
        """
        first, self._first = self._first, b""
        self.is_late = self.files_sent = whole = False
        try:
            with self._timeout(timeout), self._send_in_background(first + body, chunks):
                whole = self._read_answer(receive)
        except KeyboardInterrupt:
            self._interrupt()
            raise
        finally:
            if not whole:
                self.close()
        return whole

    def _read_answer(self, receive: Receive) -> bool:
        self._frames.begin(receive)
        while not self._frames.is_over:
            data = b""
            with contextlib.suppress(*_errors()):  # it opens the window, too, on a connection that is just ending
                data = self._channel.recv(CHUNK)
            if not data:
                self._channel.status_event.wait(EXIT_WAIT_S)  # it comes behind the last byte
                return False
            self._frames.write(memoryview(data))
        return True

    @contextlib.contextmanager
    def _send_in_background(self, request: bytes, pieces: Iterable[bytes]) -> Iterator[None]:
        if pieces == ():  # the program reads a request before it answers
            self._send([request])
            yield
            return
        feeder = threading.Thread(target=self._feed, args=(request, pieces), name="job-feeder", daemon=True)
        feeder.start()
        try:
            yield
            feeder.join(SEND_REST_S)
        finally:
            if feeder.is_alive():  # it waits for a window that nobody opens any more
                self.close()
                feeder.join(EXIT_WAIT_S)

    def _feed(self, request: bytes, pieces: Iterable[bytes]) -> None:
        self._send([request])
        self._send(self._watched(pieces))
        if self.read_error is not None:  # the program keeps what was whole by then
            with contextlib.suppress(*_errors()):
                self._channel.shutdown_write()

    def _watched(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        try:
            for piece in pieces:
                self.files_sent = True
                yield piece
        except Exception as error:  # noqa: BLE001
            self.read_error = error

    def _send(self, pieces: Iterable[bytes]) -> None:
        with contextlib.suppress(*_errors()):  # the program has ended, or the connection: the reader sees which
            for piece in pieces:
                self._channel.sendall(piece)

    def _interrupt(self) -> None:
        with contextlib.suppress(*_errors()):
            cast("SshChannel", self._channel).send_signal("INT")

    @contextlib.contextmanager
    def _timeout(self, timeout: float | None) -> Iterator[None]:
        if timeout is None:
            yield
            return

        def give_up() -> None:
            self.is_late = True
            self.close()

        timer = threading.Timer(timeout, give_up)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()


def _errors() -> tuple[type[BaseException], ...]:
    from cloudgpu.access.ssh.transport import CONNECTION_ERRORS

    return CONNECTION_ERRORS


class _Frames:
    """Parses what the program writes: a start mark, once; then answers in frames, each its length and bytes.

    An empty frame ends an answer. Before the mark a login shell may have printed something.
    """

    def __init__(self, mark: bytes) -> None:
        self._mark: bytes | None = mark
        self._buffer = bytearray()
        self._left = 0
        self._receive: Receive = len
        self.is_over = True

    def begin(self, receive: Receive) -> None:
        """Pass the next answer to `receive`."""
        self._receive, self.is_over = receive, False

    def write(self, data: memoryview) -> None:
        """Take the next bytes. Raises ValueError for what is no answer of ours."""
        if self._mark is not None:
            data = self._after_mark(self._mark, data)
        while data:
            if self.is_over:
                raise ValueError("more than was asked for")
            data = self._body(data) if self._left else self._head(data)

    def _after_mark(self, mark: bytes, data: memoryview) -> memoryview:
        self._buffer += data
        at = self._buffer.find(mark)
        if at < 0:
            if len(self._buffer) > LONGEST_GREETING:
                raise ValueError("no mark")
            return memoryview(b"")
        rest = bytes(self._buffer[at + len(mark) :])
        self._buffer.clear()
        self._mark = None
        return memoryview(rest)

    def _head(self, data: memoryview) -> memoryview:
        need = _SIZE.size - len(self._buffer)
        self._buffer += data[:need]
        if len(self._buffer) == _SIZE.size:
            (self._left,) = _SIZE.unpack(self._buffer)
            self._buffer.clear()
            self.is_over = not self._left
        return data[need:]

    def _body(self, data: memoryview) -> memoryview:
        part = data[: self._left]
        self._left -= len(part)
        self._receive(part)
        return data[len(part) :]
