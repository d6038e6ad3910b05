"""Channels on which the program that runs jobs answers one request after the other, kept with their connection.

Starting the program takes longer than most answers. A channel whose answer was not read to its end is closed: what
comes on it next would be taken for something else. The program ends with its channel.
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
LAST_PIECE_S = 1.0  # what is on its way when the answer comes
PATIENCE_S = 5.0
_SIZE = struct.Struct(">I")

Take = Callable[[memoryview], object]

# Isolated: no file in the user's home may stand in for a module. Unbuffered: what comes behind a request is read by
# the process that carries it out. Behind the texts come requests.
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


def command_of(package: str, parts: tuple[str, ...]) -> str:
    """Return the command that takes these modules of a package, as `texts_of` has them, and runs the last one's main.

    A workstation of one's own may have no agent of ours: its own Python runs them then.
    """
    begin = _BEGIN.replace("PARTS", repr(parts)).replace("PACKAGE", package).replace("'", '"')
    run = f"python -IS -c '{begin}'"
    return "sh -c " + shlex.quote(
        f"if [ -x {_AGENT} ]; then exec {_AGENT} {run}; else exec python3 -IS -c '{begin}'; fi"
    )


def texts_of(folder: Path, parts: tuple[str, ...]) -> bytes:
    """Return the texts of these modules, each behind its length of eight digits."""
    texts = (folder.joinpath(f"{name}.py").read_bytes() for name in parts)
    return b"".join(b"%08d%s" % (len(text), text) for text in texts)


def served_over(connection: Connection, command: str, program: bytes, mark: bytes) -> tuple[ProgramChannel, bool]:
    """Return a channel on which nobody waits for an answer, and whether it is a new one. Raises Unreachable."""
    while connection.spare:
        with contextlib.suppress(IndexError):  # another thread was faster
            served = cast("Served", connection.spare.pop())
            if served.is_open:
                return served, False
            served.close()
    return ProgramChannel(connection, command, program, mark), True


class ProgramChannel:
    """One channel with the program behind it. One thread at a time uses it; any may close it.

    Of the last request, `is_late` tells whether its time was over, `sent` whether any of its files was on its way, and
    `fault` is what kept the rest of them from being read here.
    """

    def __init__(self, connection: Connection, command: str, program: bytes, mark: bytes) -> None:
        with connection.explained():
            self._channel: Channel = connection.transport.open_session(timeout=OPEN_S)
            self._channel.exec_command(command)
        self._first = program
        self._frames = _Frames(mark)
        self.is_late = self.sent = False
        self.fault: Exception | None = None

    @property
    def is_open(self) -> bool:
        """Whether the program still waits for a request, as far as is known here."""
        channel = self._channel
        return not (channel.closed or channel.eof_received or channel.exit_status_ready())

    def close(self) -> None:
        """End the program; safe to call twice and from any thread."""
        from cloudgpu.access.ssh.transport import hang_up

        hang_up(self._channel)

    def last_errors(self) -> bytes | None:
        """Return what a program that has ended complained of; None where it is only the connection that ended."""
        if self._channel.exit_status < 0:
            return None
        self.close()
        with contextlib.suppress(*_broken()):
            return self._channel.recv_stderr(ERRORS_KEPT)
        return b""

    def carry_out(self, request: bytes, pieces: Iterable[bytes], take: Take, timeout: float | None) -> bool:
        """Send a request, and files behind it; give the answer to `take`; return whether it came whole.

        Whatever else happens, the channel is closed then. Raises what `take` raises, ValueError for no answer of ours.
        """
        first, self._first = self._first, b""
        self.is_late = self.sent = whole = False
        try:
            with self._closed_after(timeout), self._sending(first + request, pieces):
                whole = self._received(take)
        except KeyboardInterrupt:
            self._interrupt()
            raise
        finally:
            if not whole:
                self.close()
        return whole

    def _received(self, take: Take) -> bool:
        self._frames.begin(take)
        while not self._frames.is_over:
            data = b""
            with contextlib.suppress(*_broken()):  # it opens the window, too, on a connection that is just ending
                data = self._channel.recv(CHUNK)
            if not data:
                self._channel.status_event.wait(PATIENCE_S)  # it comes behind the last byte
                return False
            self._frames.write(memoryview(data))
        return True

    @contextlib.contextmanager
    def _sending(self, request: bytes, pieces: Iterable[bytes]) -> Iterator[None]:
        if pieces == ():  # the program reads a request before it answers
            self._send([request])
            yield
            return
        feeder = threading.Thread(target=self._feed, args=(request, pieces), name="job-feeder", daemon=True)
        feeder.start()
        try:
            yield
            feeder.join(LAST_PIECE_S)
        finally:
            if feeder.is_alive():  # it waits for a window that nobody opens any more
                self.close()
                feeder.join(PATIENCE_S)

    def _feed(self, request: bytes, pieces: Iterable[bytes]) -> None:
        self._send([request])
        self._send(self._sent(pieces))
        if self.fault is not None:  # the program keeps what was whole by then
            with contextlib.suppress(*_broken()):
                self._channel.shutdown_write()

    def _sent(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        try:
            for piece in pieces:
                self.sent = True
                yield piece
        except Exception as error:  # noqa: BLE001
            self.fault = error

    def _send(self, pieces: Iterable[bytes]) -> None:
        with contextlib.suppress(*_broken()):  # the program has ended, or the connection: the reader sees which
            for piece in pieces:
                self._channel.sendall(piece)

    def _interrupt(self) -> None:
        with contextlib.suppress(*_broken()):
            cast("SshChannel", self._channel).send_signal("INT")

    @contextlib.contextmanager
    def _closed_after(self, timeout: float | None) -> Iterator[None]:
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


def _broken() -> tuple[type[BaseException], ...]:
    from cloudgpu.access.ssh.transport import BROKEN

    return BROKEN


class _Frames:
    """What the program writes: the mark, once; then answers in frames, each its length and bytes. An empty one ends it.

    Before the mark a login shell may have printed something.
    """

    def __init__(self, mark: bytes) -> None:
        self._mark: bytes | None = mark
        self._buffer = bytearray()
        self._left = 0
        self._take: Take = len
        self.is_over = True

    def begin(self, take: Take) -> None:
        """Have the next answer taken by `take`."""
        self._take, self.is_over = take, False

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
        self._take(part)
        return data[len(part) :]
