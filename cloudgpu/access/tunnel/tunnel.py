"""A tunnel that keeps its local port while its SSH connections are lost and made again."""

from __future__ import annotations

import contextlib
import errno
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import TYPE_CHECKING, Self

from cloudgpu.access.ssh.connection import OPEN_CHANNEL_S, Connection, connect, is_retryable
from cloudgpu.access.ssh.keepalive import ANSWER_TIMEOUT_S, PING_AFTER_S, Keepalive
from cloudgpu.access.ssh.target import Target
from cloudgpu.errors import CloudgpuError, InvalidRequest

if TYPE_CHECKING:
    from paramiko.channel import Channel

FIRST_PORT = 8888
OUTAGE_WAIT_S = 60.0  # how long a new connection waits for the machine during an outage
CONNECT_TIMEOUT_S = 10.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0
POLL_S = 0.5  # how often the listener checks whether the tunnel has ended
LOOPBACK = "127.0.0.1"
_MAX_PORTS = 100  # tried before the system chooses a port
_BACKLOG = 256
_PORT_TAKEN_ERRORS = (errno.EADDRINUSE, errno.EACCES)

# A port of the machine, or a function that looks it up over a connection.
RemotePort = int | Callable[[Connection], int]


class TunnelChange(StrEnum):
    """What happened to a tunnel."""

    CONNECTED = "connected"
    LOST = "lost"
    TRIED = "tried"  # an attempt to reconnect failed; the next one follows
    RECONNECTED = "reconnected"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class TunnelEvent:
    """What happened, on which local port, and the error that caused it, if any."""

    kind: TunnelChange
    port: int
    error: CloudgpuError | None = None


@dataclass(frozen=True, slots=True, eq=False)
class _Link:
    """A connection, and the port on the machine's loopback to which it forwards."""

    connection: Connection
    remote_port: int


class Tunnel:
    """Forwards a local port to a port of the machine's loopback.

    `target_source` and a callable `remote_port` are called again for every new SSH connection: address and port may
    have changed. A client that connects while the machine is unreachable waits `outage_wait_s` seconds; connected
    clients are reset. A wrong host key or a refused login ends the tunnel. `on_event` is called from the tunnel's
    threads. `timeout` limits one attempt to connect; after `ping_after_s` seconds of silence the machine has
    `answer_timeout_s` seconds to answer.
    """

    def __init__(
        self,
        target_source: Callable[[], Target],
        remote_port: RemotePort,
        *,
        first_port: int = FIRST_PORT,
        on_event: Callable[[TunnelEvent], None] = lambda _event: None,
        outage_wait_s: float = OUTAGE_WAIT_S,
        timeout: float = CONNECT_TIMEOUT_S,
        ping_after_s: float = PING_AFTER_S,
        answer_timeout_s: float = ANSWER_TIMEOUT_S,
    ) -> None:
        self._target_source = target_source
        self._remote_port = remote_port
        self._first_port = first_port
        self._on_event = on_event
        self._outage_wait_s = outage_wait_s
        self._timeout = timeout
        self._ping_after_s = ping_after_s
        self._answer_timeout_s = answer_timeout_s
        self._link_changed = threading.Condition()
        self._link: _Link | None = None
        self._ended = threading.Event()
        self._port_lock = threading.Lock()
        self._clients: dict[socket.socket, threading.Thread] = {}
        self._threads: list[threading.Thread] = []
        self._listener: socket.socket | None = None
        self.error: CloudgpuError | None = None
        self.port = 0

    def __enter__(self) -> Self:
        """Open it."""
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    def open(self) -> None:
        """Connect, then take the local port (`self.port`) and serve it.

        Raises what the connection, the target source or the remote port raise, and InvalidRequest without a port.
        """
        link = self._new_link()
        try:
            listener = listen(self._first_port)
        except BaseException:
            link.connection.close()
            raise
        listener.settimeout(POLL_S)
        self.port = listener.getsockname()[1]
        self._link, self._listener = link, listener
        self._on_event(TunnelEvent(TunnelChange.CONNECTED, self.port))
        self._threads = [
            threading.Thread(target=self._accept, args=(listener,), name="tunnel-accept", daemon=True),
            threading.Thread(target=self._keep_connected, args=(link,), name="tunnel-keep", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def wait(self, timeout: float | None = None) -> CloudgpuError | None:
        """Wait until the tunnel has ended, and return the error that ended it (None: `close`, or the timeout)."""
        self._ended.wait(timeout)
        return self.error

    def close(self) -> None:
        """End the tunnel and every connection in it, and wait for its threads.

        An attempt to connect ends by itself, within its timeout.
        """
        self._end(None)
        for thread in [*self._threads, *list(self._clients.values())]:
            if thread is not threading.current_thread():
                thread.join(2)

    # One thread keeps the SSH connection, and makes a new one when it is lost.

    def _keep_connected(self, first_link: _Link) -> None:
        try:
            link: _Link | None = first_link
            while link is not None:
                link = self._reconnect(self._watch(link.connection))
        except CloudgpuError as error:
            self._end(error)
        except Exception as bug:  # noqa: BLE001  (waiting clients must never be left hanging)
            self._end(CloudgpuError(f"The tunnel failed: {type(bug).__name__}: {bug}.", next="Report this."))

    def _watch(self, connection: Connection) -> CloudgpuError:
        """Wait until the connection is lost, and return why."""
        with Keepalive(
            connection, ping_after_s=self._ping_after_s, answer_timeout_s=self._answer_timeout_s
        ) as keepalive:
            connection.transport.join()
        connection.close()
        keepalive.join(5)
        return keepalive.error or connection.lost_error()

    def _reconnect(self, error: CloudgpuError) -> _Link | None:
        """Return the next link, however long it takes; None when the tunnel has ended. Raises errors that are final."""
        if self._ended.is_set():
            return None
        self._set_link(None)
        self._on_event(TunnelEvent(TunnelChange.LOST, self.port, error))
        pause = FIRST_PAUSE_S
        while not self._ended.wait(pause):
            pause = min(LONGEST_PAUSE_S, pause * 2)
            try:
                link = self._new_link()
            except CloudgpuError as retryable_error:
                if not is_retryable(retryable_error):
                    raise
                self._on_event(TunnelEvent(TunnelChange.TRIED, self.port, retryable_error))
                continue
            if not self._set_link(link):
                link.connection.close()
                return None
            self._on_event(TunnelEvent(TunnelChange.RECONNECTED, self.port))
            return link
        return None

    def _new_link(self) -> _Link:
        connection = connect(self._target_source(), timeout=self._timeout)
        try:
            return _Link(connection, self._find_port(connection))
        except BaseException:
            connection.close()
            raise

    def _find_port(self, connection: Connection) -> int:
        return self._remote_port(connection) if callable(self._remote_port) else self._remote_port

    def _set_link(self, link: _Link | None) -> bool:
        """Set the link that clients use; return False if the tunnel has ended."""
        with self._link_changed:
            if not self._ended.is_set():
                self._link = link
            self._link_changed.notify_all()
            return not self._ended.is_set()

    def _end(self, error: CloudgpuError | None) -> None:
        """Close everything once; waiting clients get a reset."""
        with self._link_changed:
            if self._ended.is_set():
                return
            self.error = error
            self._ended.set()
            link, self._link = self._link, None
            self._link_changed.notify_all()
        if self._listener is not None:
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)  # wakes `accept`, on some systems
        if link is not None:
            link.connection.close()
        self._on_event(TunnelEvent(TunnelChange.ENDED, self.port, error))

    # One thread accepts clients, and each client has one thread.

    def _accept(self, listener: socket.socket) -> None:
        with listener:
            while not self._ended.is_set():
                try:
                    client, _ = listener.accept()
                except (TimeoutError, ConnectionAbortedError):  # nobody came, or somebody left again
                    continue
                except OSError:  # too many open files or no memory, say: new clients wait in the system's queue
                    self._ended.wait(POLL_S)
                    continue
                thread = threading.Thread(target=self._serve, args=(client,), name="tunnel-client", daemon=True)
                self._clients[client] = thread
                try:
                    thread.start()
                except RuntimeError:  # no more threads for now: this client is refused, later ones are not
                    del self._clients[client]
                    client.close()

    def _serve(self, client: socket.socket) -> None:
        from cloudgpu.access.tunnel.relay import Relay, reset

        try:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            channel = self._open_client_channel(client.getpeername())
            if channel is None:
                reset(client)
            else:
                Relay(client, channel).run()
        except OSError:
            pass  # the client has disconnected
        finally:
            client.close()
            del self._clients[client]

    def _open_client_channel(self, client_address: tuple[str, int]) -> Channel | None:
        """Open a channel to the remote port, on the next connection if this one is lost; None if that fails.

        No data of the client is sent before the channel is open, so a retry repeats nothing.
        """
        deadline = time.monotonic() + self._outage_wait_s
        has_refreshed = False
        link: _Link | None = None
        while (link := self._next_link(link, deadline)) is not None:
            channel = _open_channel(link, client_address)
            if channel is not None:
                return channel
            if link.connection.is_usable():  # the machine is reachable, but nothing listens on that port
                if has_refreshed:
                    return None
                has_refreshed = True
                self._refresh_port(link)
                link = None
        return None

    def _next_link(self, lost_link: _Link | None, deadline: float) -> _Link | None:
        """Wait for a link other than the lost one; None at the deadline or when the tunnel has ended."""
        with self._link_changed:
            self._link_changed.wait_for(
                lambda: self._ended.is_set() or self._link not in (None, lost_link), deadline - time.monotonic()
            )
            return None if self._ended.is_set() or self._link is lost_link else self._link

    def _refresh_port(self, link: _Link) -> None:
        """Look up the remote port again: its program may have been restarted."""
        with self._port_lock:
            if self._link is not link or not callable(self._remote_port):
                return
            with contextlib.suppress(CloudgpuError):
                refreshed = _Link(link.connection, self._find_port(link.connection))
                with self._link_changed:
                    if self._link is link:  # else the connection was lost meanwhile, and there may be a new one
                        self._link = refreshed
                        self._link_changed.notify_all()


def _open_channel(link: _Link, client_address: tuple[str, int]) -> Channel | None:
    from cloudgpu.access.ssh.transport import CONNECTION_ERRORS

    try:
        return link.connection.transport.open_channel(
            "direct-tcpip", (LOOPBACK, link.remote_port), client_address, timeout=OPEN_CHANNEL_S
        )
    except CONNECTION_ERRORS:
        return None


def listen(first_port: int) -> socket.socket:
    """Return a socket that listens on the first free port from `first_port` on, else on any free port.

    0 lets the system choose. Raises InvalidRequest for an invalid number, or when no port is free.
    """
    if not 0 <= first_port <= 65535:  # noqa: PLR2004  (TCP's own)
        raise InvalidRequest(
            f"{first_port} is not a port.",
            field="port",
            value=str(first_port),
            next="Give a number from 1024 to 65535.",
        )
    ports = range(first_port, min(first_port + _MAX_PORTS, 65536)) if first_port else ()
    for port in (*ports, 0):
        # Bound at once: a port that was only checked may be in use a moment later.
        listener = _bind_port(port)
        if listener is not None:
            return listener
    raise InvalidRequest(
        "No local port is free.", field="port", value=str(first_port), next="Close some connections and try again."
    )


def _bind_port(port: int) -> socket.socket | None:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        if sys.platform == "linux":
            # On Linux this allows ports with closed connections; elsewhere it could take a port that is in use.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((LOOPBACK, port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        if error.errno in _PORT_TAKEN_ERRORS:
            return None
        raise
    return listener
