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

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 2.0
OPEN_CHANNEL_S = 20.0  # how long a server may take to open a channel


@dataclass(frozen=True, slots=True)
class Completed:
    """How a command ended: its status (128 + n after signal n) and all it wrote."""

    status: int
    stdout: bytes
    stderr: bytes


class _LimitedBuffer(BytesIO):
    """A buffer for a command's output up to a size; more raises `fault(size)`, or is dropped if `fault` is None."""

    def __init__(self, fault: Callable[[int], Exception] | None, size: int | None) -> None:
        super().__init__()
        self._fault, self._size = fault, size

    def write(self, data: Any, /) -> int:
        """Keep all of it, or as much as fits."""
        taken = memoryview(data).nbytes
        if self._size is not None and self.tell() + taken > self._size:
            if self._fault is not None:
                raise self._fault(self._size)
            super().write(memoryview(data)[: max(0, self._size - self.tell())])
            return taken
        return super().write(data)


@dataclass(frozen=True, slots=True, eq=False)
class Connection:
    """A verified and logged-in connection. Several threads may use it."""

    target: Target
    transport: SshTransport = field(repr=False)
    idle_channels: list[object] = field(default_factory=list, repr=False)  # for the next request; see access/jobs

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
        """Run a shell command there and return how it ended; `timeout` is seconds for all of it.

        Of a machine that is not trusted, at most `max_bytes` of output, and as many of its errors, are read.
        Raises Unreachable when the connection is lost or the command takes longer, or prints more (its channel
        is then closed).
        """
        from cloudgpu.access.ssh.streams import exchange

        stdout, stderr = _LimitedBuffer(self._overlong, max_bytes), _LimitedBuffer(None, max_bytes)
        with self.session(timeout) as channel, self._deadline(channel, timeout) as timed_out, self.explain_errors():
            channel.exec_command(command)
            status = exchange(channel, BytesIO(input), stdout, stderr)
        if status is None:
            raise self._timed_out(timeout) if timed_out.is_set() else self.lost()
        return Completed(status, stdout.getvalue(), stderr.getvalue())

    @contextlib.contextmanager
    def session(self, timeout: float = OPEN_CHANNEL_S) -> Iterator[Channel]:
        """Yield a session channel and close it afterwards. Raises Unreachable."""
        from cloudgpu.access.ssh.transport import hang_up

        with self.explain_errors():
            channel = self.transport.open_session(timeout=timeout)
        try:
            yield channel
        finally:
            hang_up(channel)

    def sftp(self) -> SFTPClient:
        """Return a file transfer session, to be closed by the caller. Raises Unreachable."""
        from cloudgpu.access.ssh.streams import Files

        with self.explain_errors():
            client = Files.from_transport(self.transport)
        if client is None:
            raise self.lost()
        return client

    @contextlib.contextmanager
    def explain_errors(self) -> Iterator[None]:
        """Turn what paramiko raises about this connection into Unreachable."""
        from cloudgpu.access.ssh.transport import CONNECTION_ERRORS

        try:
            yield
        except CONNECTION_ERRORS as error:
            raise self.lost(error) from error

    def lost(self, error: Exception | None = None) -> Unreachable:
        """Return the error that says that this connection is over, or that one request on it was refused."""
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
        """Close the connection and all that runs over it; safe to call twice and from any thread."""
        # The socket first: a thread that is stuck writing to a frozen machine lets go only then.
        with contextlib.suppress(OSError):
            self.transport.sock.shutdown(socket.SHUT_RDWR)
        self.transport.close()
        if self.transport is not threading.current_thread():
            self.transport.join(5)

    @contextlib.contextmanager
    def _deadline(self, channel: Channel, timeout: float) -> Iterator[threading.Event]:
        from cloudgpu.access.ssh.transport import hang_up

        timed_out = threading.Event()

        def give_up() -> None:
            timed_out.set()
            hang_up(channel)

        timer = threading.Timer(timeout, give_up)
        timer.daemon = True
        timer.start()
        try:
            yield timed_out
        finally:
            timer.cancel()

    def _overlong(self, size: int) -> Unreachable:
        name = self.target.name
        return Unreachable(f"A command on {name} printed more than {size} bytes.", field="name", value=name)

    def _timed_out(self, timeout: float) -> Unreachable:
        name = self.target.name
        return Unreachable(
            f"A command on {name} was not done after {timeout:g} seconds.", field="name", value=name, next="Try again."
        )


def connect(target: Target, *, timeout: float, wait: float = 0) -> Connection:
    """Return a connection whose host key is the pinned one, logged in with our key and no other.

    `timeout` is seconds for one attempt; for `wait` seconds, temporary errors (refused, no answer, no banner) are
    retried. Raises WrongHostKey, LoginRefused (both at once, never retried), Unreachable, InvalidRequest (our key).
    """
    deadline = time.monotonic() + wait
    pause = FIRST_PAUSE_S
    while True:
        try:
            return _connect_once(target, timeout)
        except Unreachable as error:
            left = deadline - time.monotonic()
            if left <= 0 or not retryable(error):
                raise
        time.sleep(min(pause, left))
        pause = min(LONGEST_PAUSE_S, pause * 2)


def retryable(error: Exception) -> bool:
    """Tell whether a later attempt may succeed: never after a wrong host key or a refused login."""
    return isinstance(error, (Unreachable, ProviderUnavailable)) and not isinstance(error, (WrongHostKey, LoginRefused))


def _connect_once(target: Target, timeout: float) -> Connection:
    known = _pinned_key(target)
    from cloudgpu.access.ssh import handshake  # paramiko: a tenth of a second, for what is contacted alone

    return Connection(target, handshake.open_transport(target, known, time.monotonic() + timeout))


def _pinned_key(target: Target) -> str:
    known = pinned(target.known_hosts, target.id)
    if known is not None:
        return known
    raise WrongHostKey(
        f"No host key is pinned for {target.name}, so it cannot be verified and was not contacted.",
        field="known_hosts",
        value=target.id,
        next="Connect from the computer that launched it, or add its key's line to known_hosts if you trust it.",
    )
