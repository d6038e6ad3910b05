"""Carries the streams of an SSH session, and opens SFTP sessions whose names are bytes, as on Unix.

Importing this imports paramiko: do it inside functions. Input, output and errors flow at once, and none holds back
another.

SFTP 3 does not say how names are encoded, and OpenSSH hands them through. paramiko 5.1 takes them for UTF-8: a listing
with one name that is not ends with UnicodeDecodeError. Here names are what `os.listdir` gives: bytes that are no text
come as surrogates (PEP 383), and go back as the same bytes.
"""

from __future__ import annotations

import contextlib
import io
import os
import select
import threading
from collections.abc import Iterator
from typing import IO, Any, cast

from paramiko.channel import Channel
from paramiko.message import Message
from paramiko.sftp_client import SFTPClient

from cloudgpu.access.ssh.transport import CONNECTION_ERRORS, SshChannel, hang_up


class _Names(Message):
    """An answer whose texts are names."""

    def get_text(self) -> str:
        """Return a name, or a sentence, whatever its bytes are."""
        return os.fsdecode(self.get_string())


class Files(SFTPClient):
    """A session in which every path, both ways, is text as `os` has it."""

    def _adjust_cwd(self, path: Any) -> bytes:
        return os.fsencode(path)  # no working directory is ever set here

    def _read_response(self, waitfor: Any = None) -> Any:
        kind, message = super()._read_response(waitfor)  # type: ignore[misc]  # a private method, which its stubs lack
        return kind, _as_names(message)

    def _convert_status(self, msg: Message) -> None:
        super()._convert_status(_as_names(msg))  # type: ignore[misc]  # likewise


def _as_names(message: Any) -> Any:
    if isinstance(message, Message):
        message.__class__ = _Names  # paramiko makes its messages itself
    return message


CHUNK = 128 * 1024  # bytes moved at once; what bounds memory is SSH's own window
STOP_TIMEOUT_S = 1.0  # how long an interrupted command may take to end


def exchange(channel: Channel, stdin: IO[bytes] | None, stdout: IO[bytes], stderr: IO[bytes]) -> int | None:
    """Send `stdin` to its end, write all that comes back, return the status; None when it went without one.

    The status is 128 + n after signal n. A slow reader on our side slows the other side down; nothing is collected
    here. Reading stdin ends with the command. Raises the OSError with which writing `stdout` or `stderr` failed.
    The channel is closed afterwards.
    """
    write_errors: list[OSError] = []
    errors = threading.Thread(target=_drain_errors, args=(channel, stderr, write_errors), daemon=True)
    errors.start()
    with _feeding(channel, stdin), _interruptible(channel):
        while data := channel.recv(CHUNK):
            write_all(stdout, data)
        errors.join()
        # The status may come after the last byte: a command can close its output and go on.
        status = channel.recv_exit_status()
    if write_errors:
        raise write_errors[0]
    return None if status < 0 else status


def write_all(stream: IO[bytes], data: bytes) -> None:
    """Write every byte at once, whatever kind of file it is. Raises OSError."""
    rest = memoryview(data)
    while rest:
        written = stream.write(rest)
        rest = rest[written:]
    stream.flush()


@contextlib.contextmanager
def _interruptible(channel: Channel) -> Iterator[None]:
    """Pass Ctrl-C on to the command, and give it a moment to end by itself before it is hung up on."""
    try:
        yield
    except KeyboardInterrupt:
        with contextlib.suppress(*CONNECTION_ERRORS):
            cast("SshChannel", channel).send_signal("INT")
            channel.status_event.wait(STOP_TIMEOUT_S)
        raise


def _drain_errors(channel: Channel, stderr: IO[bytes], write_errors: list[OSError]) -> None:
    try:
        while data := channel.recv_stderr(CHUNK):
            write_all(stderr, data)
    except OSError as error:
        write_errors.append(error)
        hang_up(channel)


@contextlib.contextmanager
def _feeding(channel: Channel, stdin: IO[bytes] | None) -> Iterator[None]:
    if stdin is None:
        channel.shutdown_write()
        yield
        hang_up(channel)
        return
    wake, waker = os.pipe()
    feeder = threading.Thread(target=_feed, args=(channel, stdin, wake), daemon=True)
    feeder.start()
    try:
        yield
    finally:
        hang_up(channel)  # lets go of a feeder that waits for the window
        os.close(waker)
        feeder.join(5)
        os.close(wake)


def _feed(channel: Channel, stdin: IO[bytes], wake: int) -> None:
    with contextlib.suppress(*CONNECTION_ERRORS):  # the command has ended, or the connection: the reader sees which
        while data := _read_input(stdin, wake):
            channel.sendall(data)
        channel.shutdown_write()


def _read_input(stdin: IO[bytes], wake: int) -> bytes:
    """Return what can be read now, waiting for it; nothing at its end or when `wake` is closed."""
    descriptor = _descriptor(stdin)
    if descriptor is not None:
        poller = select.poll()  # select() takes no descriptor above 1,023
        for number in (descriptor, wake):
            poller.register(number, select.POLLIN)
        if wake in dict(poller.poll()):
            return b""
        return os.read(descriptor, CHUNK)
    return stdin.read(CHUNK)


def _descriptor(stdin: IO[bytes]) -> int | None:
    try:
        return stdin.fileno()
    except (AttributeError, io.UnsupportedOperation):
        return None
