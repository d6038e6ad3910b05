"""A verified SSH connection to one machine. paramiko is imported by the first `connect`."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from io import BytesIO
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from cloudgpu.access.ssh.client_files import pinned
from cloudgpu.access.ssh.target import LoginRefused, Target, reason
from cloudgpu.errors import ProviderUnavailable, Unreachable, WrongHostKey

if TYPE_CHECKING:
    from paramiko.channel import Channel
    from paramiko.sftp_client import SFTPClient

    from cloudgpu.access.ssh.transport import SshTransport

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 2.0  # between attempts to connect; each is twice the one before
OPEN_CHANNEL_S = 20.0  # how long a server may take to open a channel


@dataclass(frozen=True, slots=True)
class Completed:
    """A finished command: its exit status (128 + n after signal n) and all it wrote."""

    status: int
    stdout: bytes
    stderr: bytes


class _LimitedBuffer(BytesIO):
    """A buffer of at most `size` bytes; more raises `error_of(size)`, or is dropped if `error_of` is None."""

    def __init__(self, error_of: Callable[[int], Exception] | None, size: int | None) -> None:
        super().__init__()
        self._error_of, self._size = error_of, size

    def write(self, data: Any, /) -> int:
        """Keep all of it, or as much as fits."""
        size = memoryview(data).nbytes
        if self._size is not None and self.tell() + size > self._size:
            if self._error_of is not None:
                raise self._error_of(self._size)
            super().write(memoryview(data)[: max(0, self._size - self.tell())])
            return size
        return super().write(data)


@dataclass(frozen=True, slots=True, eq=False)
class Connection:
    """A verified and logged-in connection. Several threads may use it."""

    target: Target
    transport: SshTransport = field(repr=False)
    # Open channels to cloudgpu's program on the machine, which the next request uses again: `ProgramChannel`s of
    # access/jobs/program_channel.py, which this package does not import.
    idle_channels: list[object] = field(default_factory=list, repr=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def is_open(self) -> bool:
        """Whether the connection is open, as far as this side knows: `Keepalive` detects a frozen machine."""
        return self.transport.is_active()

    def is_usable(self) -> bool:
        """Tell, after a failure, whether the connection can still be used; waits a moment for one that is closing."""
        self.transport.join(0.2)
        return self.is_open

    def capture(
        self,
        command: str,
        *,
        timeout: float,
        input: bytes = b"",  # noqa: A002
        max_bytes: int | None = None,
    ) -> Completed:
        """Run a shell command there and return how it ended.

        `timeout` is the seconds to wait for a session, and then again for the command with its input and output.

        At most `max_bytes` of its output, and as many of its errors, are kept. Raises Unreachable when the connection
        is lost, the command takes longer, or prints more (its channel is then closed).
        """
        from cloudgpu.access.ssh.streams import exchange

        stdout, stderr = _LimitedBuffer(self._output_too_long_error, max_bytes), _LimitedBuffer(None, max_bytes)
        with self.session(timeout) as channel, self._deadline(channel, timeout) as timed_out:
            try:
                with self.explain_errors():
                    channel.exec_command(command)
                    status = exchange(channel, BytesIO(input), stdout, stderr)
            except Unreachable:
                if not timed_out.is_set():
                    raise
                status = None
        if status is None:
            raise self._timed_out_error(timeout) if timed_out.is_set() else self.lost_error()
        return Completed(status, stdout.getvalue(), stderr.getvalue())

    @contextlib.contextmanager
    def session(self, timeout: float = OPEN_CHANNEL_S) -> Iterator[Channel]:
        """Yield a session channel and close it afterwards. Raises Unreachable."""
        from cloudgpu.access.ssh.transport import close_channel

        with self.explain_errors():
            channel = self.transport.open_session(timeout=timeout)
        try:
            yield channel
        finally:
            close_channel(channel)

    def sftp(self) -> SFTPClient:
        """Return a file transfer session, to be closed by the caller. Raises Unreachable."""
        from cloudgpu.access.ssh.streams import BytePathSftp

        with self.explain_errors():
            client = BytePathSftp.from_transport(self.transport)
        if client is None:
            raise self.lost_error()
        return client

    @contextlib.contextmanager
    def explain_errors(self) -> Iterator[None]:
        """Turn what paramiko raises about this connection into Unreachable."""
        from cloudgpu.access.ssh.transport import CONNECTION_ERRORS

        try:
            yield
        except CONNECTION_ERRORS as error:
            raise self.lost_error(error) from error

    def lost_error(self, error: Exception | None = None) -> Unreachable:
        """Return the error for a lost connection, or for one refused request while the connection is still usable."""
        name = self.target.name
        if error is not None and self.is_usable():
            return Unreachable(f"{name} refused the request: {reason(error)}.", field="name", value=name)
        return Unreachable(
            f"The connection to {name} was lost.",
            field="name",
            value=name,
            next=f"Try again. If that fails, run: cloudgpu show {name} --refresh",
        )

    def close(self) -> None:
        """Close the connection with all its channels; safe to call twice and from any thread."""
        # The socket first: that is what frees a thread stuck in a write to a frozen machine.
        with contextlib.suppress(OSError):
            self.transport.sock.shutdown(socket.SHUT_RDWR)
        self.transport.close()
        if self.transport is not threading.current_thread():
            self.transport.join(5)

    @contextlib.contextmanager
    def _deadline(self, channel: Channel, timeout: float) -> Iterator[threading.Event]:
        from cloudgpu.access.ssh.transport import close_channel

        timed_out = threading.Event()

        def give_up() -> None:
            timed_out.set()
            close_channel(channel)

        with call_after(timeout, give_up):
            yield timed_out

    def _output_too_long_error(self, size: int) -> Unreachable:
        name = self.target.name
        return Unreachable(f"A command on {name} printed more than {size} bytes.", field="name", value=name)

    def _timed_out_error(self, timeout: float) -> Unreachable:
        name = self.target.name
        return Unreachable(
            f"A command on {name} was not done after {timeout:g} seconds.", field="name", value=name, next="Try again."
        )


@contextlib.contextmanager
def call_after(seconds: float, function: Callable[[], object]) -> Iterator[None]:
    """Call a function in a thread if the block takes longer than this."""
    timer = threading.Timer(seconds, function)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def connect(target: Target, *, timeout: float, wait: float = 0) -> Connection:
    """Return a connection whose host key is the pinned one, logged in with our key and no other.

    `timeout` is seconds for one attempt; for `wait` seconds, temporary errors (refused, no answer, no banner) are
    retried. Raises WrongHostKey and LoginRefused (never retried), Unreachable, InvalidRequest (our key).
    """
    deadline = time.monotonic() + wait
    pause = FIRST_PAUSE_S
    while True:
        try:
            return _connect_once(target, timeout)
        except Unreachable as error:
            seconds_left = deadline - time.monotonic()
            if seconds_left <= 0 or not is_retryable(error):
                raise
        time.sleep(min(pause, seconds_left))
        pause = min(LONGEST_PAUSE_S, pause * 2)


def is_retryable(error: Exception) -> bool:
    """Tell whether a later attempt may succeed: never after a wrong host key or a refused login."""
    return isinstance(error, (Unreachable, ProviderUnavailable)) and not isinstance(error, (WrongHostKey, LoginRefused))


def _connect_once(target: Target, timeout: float) -> Connection:
    host_key = _pinned_key(target)
    from cloudgpu.access.ssh import handshake  # imports paramiko, a tenth of a second: only when a machine is contacted

    return Connection(target, handshake.open_transport(target, host_key, time.monotonic() + timeout))


def _pinned_key(target: Target) -> str:
    host_key = pinned(target.known_hosts, target.id)
    if host_key is not None:
        return host_key
    raise WrongHostKey(
        f"No host key is pinned for {target.name}, so it cannot be verified and was not contacted.",
        field="known_hosts",
        value=target.id,
        next="Connect from the computer that launched it, or add its key's line to known_hosts if you trust it.",
    )
