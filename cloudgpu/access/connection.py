"""A verified SSH connection to one machine. paramiko is imported by the first `connect`."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import BytesIO
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from cloudgpu.access.keys import check_private
from cloudgpu.access.known_hosts import pinned
from cloudgpu.access.target import Target
from cloudgpu.errors import InvalidRequest, ProviderUnavailable, Unreachable, WrongHostKey

if TYPE_CHECKING:
    from paramiko.channel import Channel
    from paramiko.sftp_client import SFTPClient

    from cloudgpu.access.wire import Wire

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 2.0
OPEN_CHANNEL_S = 20.0  # how long a server may take to open a channel


class LoginRefused(Unreachable):
    """The machine is the right one and does not let us in. Never retried: nothing would change."""


@dataclass(frozen=True, slots=True)
class Completed:
    """How a command ended: its status (128 + n after signal n) and all it wrote."""

    status: int
    stdout: bytes
    stderr: bytes


@dataclass(frozen=True, slots=True, eq=False)
class Connection:
    """A verified and logged-in connection. Several threads may use it."""

    target: Target
    transport: Wire = field(repr=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def alive(self) -> bool:
        """Whether the connection stands, as far as is known here: a frozen machine is noticed by `KeepAlive`."""
        return self.transport.is_active()

    def stands(self) -> bool:
        """Tell, after a failure, whether the connection is still good; a dying one needs a moment to say so."""
        self.transport.join(0.2)
        return self.alive

    def capture(self, command: str, *, timeout: float, input: bytes = b"") -> Completed:  # noqa: A002
        """Run a shell command there and return how it ended; `timeout` is seconds for all of it.

        Raises Unreachable when the connection is lost or the command takes longer (it is then hung up on).
        """
        from cloudgpu.access.streams import converse

        stdout, stderr = BytesIO(), BytesIO()
        with self.session(timeout) as channel, self._deadline(channel, timeout) as passed, self.explained():
            channel.exec_command(command)
            status = converse(channel, BytesIO(input), stdout, stderr)
        if status is None:
            raise self._silent(timeout) if passed.is_set() else self.lost()
        return Completed(status, stdout.getvalue(), stderr.getvalue())

    @contextlib.contextmanager
    def session(self, timeout: float = OPEN_CHANNEL_S) -> Iterator[Channel]:
        """Yield a session channel and close it afterwards. Raises Unreachable."""
        with self.explained():
            channel = self.transport.open_session(timeout=timeout)
        try:
            yield channel
        finally:
            with contextlib.suppress(OSError, EOFError):
                channel.close()

    def sftp(self) -> SFTPClient:
        """Return a file transfer session, to be closed by the caller. Raises Unreachable."""
        from paramiko.sftp_client import SFTPClient

        with self.explained():
            client = SFTPClient.from_transport(self.transport)
        if client is None:
            raise self.lost()
        return client

    @contextlib.contextmanager
    def explained(self) -> Iterator[None]:
        """Turn what paramiko raises about this connection into Unreachable."""
        from cloudgpu.access.wire import SSHException

        try:
            yield
        except (SSHException, EOFError, OSError) as fault:
            raise self.lost(fault) from fault

    def lost(self, fault: Exception | None = None) -> Unreachable:
        """Return the error that says that this connection is over, or that one request on it was refused."""
        name = self.target.name
        if fault is not None and self.stands():
            return Unreachable(f"{name} refused the request: {_why(fault)}.", field="name", value=name)
        return Unreachable(
            f"The connection to {name} was lost.",
            field="name",
            value=name,
            next=f"Try again; if it stays so, run: cloudgpu show {name} --refresh",
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
        passed = threading.Event()

        def give_up() -> None:
            passed.set()
            with contextlib.suppress(OSError, EOFError):
                channel.close()

        timer = threading.Timer(timeout, give_up)
        timer.daemon = True
        timer.start()
        try:
            yield passed
        finally:
            timer.cancel()

    def _silent(self, timeout: float) -> Unreachable:
        name = self.target.name
        return Unreachable(
            f"A command on {name} was not done after {timeout:g} seconds.", field="name", value=name, next="Try again."
        )


def connect(target: Target, *, timeout: float, wait: float = 0) -> Connection:
    """Return a connection whose host key is the pinned one, logged in with our key and no other.

    `timeout` is seconds for one try; for `wait` seconds, what may pass (refused, no answer, no banner) is tried
    again. Raises WrongHostKey, LoginRefused (both at once, never retried), Unreachable, InvalidRequest (our key).
    """
    give_up = time.monotonic() + wait
    pause = FIRST_PAUSE_S
    while True:
        try:
            return _connect_once(target, timeout)
        except Unreachable as fault:
            left = give_up - time.monotonic()
            if left <= 0 or not passing(fault):
                raise
        time.sleep(min(pause, left))
        pause = min(LONGEST_PAUSE_S, pause * 2)


def passing(fault: Exception) -> bool:
    """Tell whether this error may be over after a while: never for a host key or a login."""
    return isinstance(fault, (Unreachable, ProviderUnavailable)) and not isinstance(fault, (WrongHostKey, LoginRefused))


def _connect_once(target: Target, timeout: float) -> Connection:
    from cloudgpu.access.wire import Wire

    deadline = time.monotonic() + timeout
    known, key = _known(target), _own_key(target)
    connected = _dial(target, timeout)
    wire = Wire(connected, known.split(" ", 1)[0])
    connection = Connection(target, wire)
    try:
        _shake_hands(connection, deadline)
        _check_host_key(target, known, wire)
        _log_in(connection, key, deadline)
    except BaseException:
        connection.close()
        connected.close()
        raise
    return connection


def _known(target: Target) -> str:
    known = pinned(target.known_hosts, target.id)
    if known is not None:
        return known
    raise WrongHostKey(
        f"No host key is pinned for {target.name}, so it cannot be verified and was not contacted.",
        field="known_hosts",
        value=target.id,
        next="Connect from the computer that launched it, or add its key's line to known_hosts if you trust it.",
    )


def _own_key(target: Target) -> Any:
    from cloudgpu.access.wire import Ed25519Key, PasswordRequiredException, SSHException

    check_private(target.key_file)
    try:
        return Ed25519Key.from_private_key_file(str(target.key_file))
    except (SSHException, PasswordRequiredException, OSError, ValueError) as fault:
        raise InvalidRequest(
            f"The private key {target.key_file} cannot be used: it is no OpenSSH ed25519 key without a passphrase.",
            field="keys",
            value=str(target.key_file),
            next="Restore it from a backup, or move it away (a new one logs in to new machines only).",
        ) from fault


def _dial(target: Target, timeout: float) -> socket.socket:
    address = target.address
    try:
        connected = socket.create_connection((address.host, address.port), timeout)
    except OSError as fault:
        raise _no_answer(target, _why(fault)) from fault
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connected


def _shake_hands(connection: Connection, deadline: float) -> None:
    """Agree on keys and ciphers; paramiko checks here that the server owns the key that it shows."""
    from cloudgpu.access.wire import IncompatiblePeer, SSHException

    target, wire = connection.target, connection.transport
    left = max(0.1, deadline - time.monotonic())
    wire.banner_timeout = wire.handshake_timeout = left
    try:
        wire.start_client(timeout=left)
    except IncompatiblePeer as fault:
        if "host key" in str(fault):
            raise _wrong_key(target, "a host key of another kind") from fault
        raise _incompatible(target, fault) from fault
    except SSHException as fault:
        if not wire.remote_version:  # no banner yet: a server that is just starting, or no SSH server
            raise _no_answer(target, "it did not introduce itself as an SSH server") from fault
        raise _incompatible(target, fault) from fault
    except (EOFError, OSError) as fault:
        raise _no_answer(target, "it closed the connection") from fault
    if not wire.initial_kex_done:
        raise _no_answer(target, "it stopped answering during the key exchange")


def _check_host_key(target: Target, known: str, wire: Wire) -> None:
    shown = wire.get_remote_server_key()
    if f"{shown.get_name()} {shown.get_base64()}" != known:
        raise _wrong_key(target, "another host key")


def _log_in(connection: Connection, key: Any, deadline: float) -> None:
    from cloudgpu.access.wire import SSHException

    target, wire = connection.target, connection.transport
    answered = threading.Event()
    try:
        wire.auth_publickey(target.address.user, key, answered)
    except (SSHException, EOFError, OSError) as fault:
        raise _no_answer(target, "it closed the connection during the login") from fault
    if not answered.wait(max(0.1, deadline - time.monotonic())):
        raise _no_answer(target, "it stopped answering during the login")
    if wire.is_authenticated():
        return
    if isinstance(wire.get_exception(), (EOFError, OSError)):
        raise _no_answer(target, "it closed the connection during the login")
    raise LoginRefused(
        f"{target.name} does not accept our key for the user {target.address.user}.",
        field="keys",
        value=str(target.key_file),
        next="Connect from the computer that launched it, or add our public key to its ~/.ssh/authorized_keys.",
    )


def _no_answer(target: Target, why: str) -> Unreachable:
    address = target.address
    return Unreachable(
        f"{target.name} does not answer at {address.host}:{address.port}: {why}.",
        field="name",
        value=target.name,
        next=f"Run: cloudgpu show {target.name} --refresh",
    )


def _wrong_key(target: Target, what: str) -> WrongHostKey:
    return WrongHostKey(
        f"The machine at {target.address.host}:{target.address.port} showed {what} than the one pinned for "
        f"{target.name}: it is another machine, or somebody is in between.",
        field="known_hosts",
        value=target.id,
        next=f"Nothing was sent to it. Compare with what the provider says: cloudgpu show {target.name} --refresh",
    )


def _incompatible(target: Target, fault: Exception) -> LoginRefused:
    return LoginRefused(
        f"{target.name} and this computer could not agree on how to encrypt: {_why(fault)}.",
        field="name",
        value=target.name,
        next="Bring the machine's SSH server up to date.",
    )


def _why(fault: Exception) -> str:
    if isinstance(fault, TimeoutError):
        return "no answer in time"
    text = getattr(fault, "strerror", None) or str(fault) or type(fault).__name__
    return str(text).strip().rstrip(".").lower()
