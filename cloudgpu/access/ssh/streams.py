"""Copies stdin, stdout and stderr of an SSH session at once, and opens SFTP sessions that allow any file name.

Importing this imports paramiko: do it inside functions.

SFTP 3 does not define the encoding of names. paramiko 5.1 takes them for UTF-8, and a listing with one other name ends
with UnicodeDecodeError. Here names are as from `os.listdir`: bytes that are not UTF-8 become surrogates (PEP 383).
"""

from __future__ import annotations

import contextlib
import io
import os
import select
import stat
import threading
import time
from collections.abc import Iterator, Sequence
from typing import IO, Any, cast

from paramiko.channel import Channel
from paramiko.message import Message
from paramiko.sftp_client import SFTPClient

from cloudgpu.access.ssh.transport import CONNECTION_ERRORS, SshChannel, SSHException, close_channel


class _NameMessage(Message):
    """An SFTP message whose texts are file names."""

    def get_text(self) -> str:
        """Return a text, whatever its bytes are."""
        return os.fsdecode(self.get_string())


class BytePathSftp(SFTPClient):
    """An SFTP session in which paths are text as in `os`, both ways."""

    def _adjust_cwd(self, path: Any) -> bytes:
        return os.fsencode(path)  # no working directory is ever set here

    def _read_response(self, waitfor: Any = None) -> Any:
        message_type, message = super()._read_response(waitfor)  # type: ignore[misc]  # a private method, missing in the type stubs
        return message_type, _with_byte_names(message)

    def _convert_status(self, msg: Message) -> None:
        super()._convert_status(_with_byte_names(msg))  # type: ignore[misc]  # likewise


def _with_byte_names(message: Any) -> Any:
    if isinstance(message, Message):
        message.__class__ = _NameMessage  # paramiko makes its messages itself
    return message


CHUNK_BYTES = 128 * 1024  # bytes; SSH's own window bounds the memory
_LOST_WHILE_SENDING = (EOFError, SSHException)  # also while receiving, which tells the machine how much may follow
STOP_TIMEOUT_S = 1.0  # how long an interrupted command may take to end


def exchange(channel: Channel, stdin: IO[bytes] | None, stdout: IO[bytes], stderr: IO[bytes]) -> int | None:
    """Send all of `stdin`, write what comes back, return the exit status; None when the channel ended without one.

    The status is 128 + n after signal n. Nothing is buffered: where `stdout` takes its bytes slowly, the command runs
    as slowly. `stdin` is read until it ends or the command does. Where reading it fails, the command gets the end of
    its input. Raises the OSError with which reading `stdin` (not of a terminal) or writing `stdout` or `stderr` failed.
    The channel is closed afterwards.
    """
    file_errors: list[OSError] = []
    stderr_thread = threading.Thread(target=_copy_stderr, args=(channel, stderr, file_errors), daemon=True)
    stderr_thread.start()
    try:
        with _feed_stdin(channel, stdin, file_errors), _interruptible(channel):
            while data := channel.recv(CHUNK_BYTES):
                write_all(stdout, data)
            stderr_thread.join()
            # The status may come long after the last byte: a command can close its output and run on.
            status = channel.recv_exit_status()
    except _LOST_WHILE_SENDING:
        status = -1
    if file_errors:
        raise file_errors[0]
    return None if status < 0 else status


def write_all(stream: IO[bytes], data: bytes) -> None:
    """Write all bytes and flush, also to an unbuffered file. Raises OSError."""
    unwritten = memoryview(data)
    while unwritten:
        written = stream.write(unwritten)
        unwritten = unwritten[written:]
    stream.flush()


@contextlib.contextmanager
def _interruptible(channel: Channel) -> Iterator[None]:
    """On Ctrl-C, send SIGINT to the command, and give it a moment to end before the channel is closed."""
    try:
        yield
    except KeyboardInterrupt:
        interrupt_commands([channel])
        raise


def interrupt_commands(channels: Sequence[Channel]) -> None:
    """Send SIGINT to the commands of these channels, and give them a moment, the same for all, to end."""
    for channel in channels:
        with contextlib.suppress(*CONNECTION_ERRORS):
            cast("SshChannel", channel).send_signal("INT")
    deadline = time.monotonic() + STOP_TIMEOUT_S
    for channel in channels:
        channel.status_event.wait(max(0.0, deadline - time.monotonic()))


def _copy_stderr(channel: Channel, stderr: IO[bytes], file_errors: list[OSError]) -> None:
    try:
        while data := channel.recv_stderr(CHUNK_BYTES):
            write_all(stderr, data)
    except OSError as error:
        file_errors.append(error)
        close_channel(channel)
    except _LOST_WHILE_SENDING:
        close_channel(channel)


@contextlib.contextmanager
def _feed_stdin(channel: Channel, stdin: IO[bytes] | None, file_errors: list[OSError]) -> Iterator[None]:
    if stdin is None:
        try:
            channel.shutdown_write()
            yield
        finally:
            close_channel(channel)
        return
    stop_reader, stop_writer = os.pipe()
    feeder = threading.Thread(target=_feed, args=(channel, stdin, stop_reader, file_errors), daemon=True)
    feeder.start()
    try:
        yield
    finally:
        close_channel(channel)  # frees a feeder that waits for the window
        os.close(stop_writer)
        feeder.join(5)
        os.close(stop_reader)


def _feed(channel: Channel, stdin: IO[bytes], stop_reader: int, file_errors: list[OSError]) -> None:
    with contextlib.suppress(*CONNECTION_ERRORS):  # the command has ended, or the connection: the reader sees which
        while data := _read_input(stdin, stop_reader, file_errors):
            channel.sendall(data)
        channel.shutdown_write()


def _read_input(stdin: IO[bytes], stop_reader: int, file_errors: list[OSError]) -> bytes:
    """Wait for input and return it; nothing at its end or when the other end of the pipe `stop_reader` is closed.

    Nothing also where reading fails, which is added to `file_errors`. A terminal that went away has just ended.
    """
    descriptor = _descriptor(stdin)
    try:
        if descriptor is None:
            return stdin.read(CHUNK_BYTES)
        poller = select.poll()  # select() takes no descriptor above 1,023
        for polled_fd in (descriptor, stop_reader):
            poller.register(polled_fd, select.POLLIN)
        if stop_reader in dict(poller.poll()):
            return b""
        return os.read(descriptor, CHUNK_BYTES)
    except OSError as error:
        if descriptor is None or not stat.S_ISCHR(os.fstat(descriptor).st_mode):
            file_errors.append(error)
        return b""


def _descriptor(stdin: IO[bytes]) -> int | None:
    try:
        return stdin.fileno()
    except (AttributeError, io.UnsupportedOperation):
        return None
