"""A tunnel that outlives its SSH connection: the local port stays, whatever happens on the way."""

from __future__ import annotations

import contextlib
import errno
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import TYPE_CHECKING, Self

from cloudgpu.access.ssh.connection import OPEN_CHANNEL_S, Connection, connect, is_retryable
from cloudgpu.access.ssh.keepalive import DEADLINE_S, PING_AFTER_S, Keepalive
from cloudgpu.access.ssh.target import Target
from cloudgpu.access.tunnel.listener import LOOPBACK, listen, reset
from cloudgpu.errors import CloudgpuError

if TYPE_CHECKING:
    from paramiko.channel import Channel

FIRST_PORT = 8888
PATIENCE_S = 60.0  # how long a connection begun during an outage waits for the machine
CONNECT_S = 10.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0
POLL_S = 0.5  # how often the listener looks whether it is to end

RemotePort = int | Callable[[Connection], int]


class TunnelChange(StrEnum):
    """What can happen to a tunnel."""

    CONNECTED = "connected"
    LOST = "lost"
    TRIED = "tried"  # a try to reconnect failed; the next one comes
    RECONNECTED = "reconnected"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class TunnelEvent:
    """What happened, on which local port, and the fault that caused it (None: none did)."""

    kind: TunnelChange
    port: int
    fault: CloudgpuError | None = None


@dataclass(frozen=True, slots=True, eq=False)
class _Link:
    """Where the bytes go: one connection, and the port on the machine's loopback that was asked over it."""

    connection: Connection
    remote_port: int


class Tunnel:
    """Forwards a local port to a port of the machine's loopback.

    `target_source` and a callable `remote_port` are asked again at every new connection: a machine may have moved,
    and what listens there may have another port. A connection begun while the machine is away waits `patience`
    seconds for it; one that was open when it was lost is reset. A wrong host key or a refused login ends the tunnel.
    `tell` is called from the tunnel's threads. `timeout` bounds one try to connect; after `ping_after` seconds of
    silence the machine has `deadline` seconds to answer.
    """

    def __init__(
        self,
        target_source: Callable[[], Target],
        remote_port: RemotePort,
        *,
        first_port: int = FIRST_PORT,
        tell: Callable[[TunnelEvent], None] = lambda _event: None,
        patience: float = PATIENCE_S,
        timeout: float = CONNECT_S,
        ping_after: float = PING_AFTER_S,
        deadline: float = DEADLINE_S,
    ) -> None:
        self._target_source = target_source
        self._remote_port = remote_port
        self._first_port = first_port
        self._tell = tell
        self._patience = patience
        self._timeout = timeout
        self._ping_after = ping_after
        self._deadline = deadline
        self._changed = threading.Condition()
        self._link: _Link | None = None
        self._ended = threading.Event()
        self._asking = threading.Lock()
        self._clients: dict[socket.socket, threading.Thread] = {}
        self._threads: list[threading.Thread] = []
        self._listener: socket.socket | None = None
        self.fault: CloudgpuError | None = None
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
        self._tell(TunnelEvent(TunnelChange.CONNECTED, self.port))
        self._threads = [
            threading.Thread(target=self._accept, args=(listener,), name="tunnel-accept", daemon=True),
            threading.Thread(target=self._keep, args=(link,), name="tunnel-keep", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def wait(self, timeout: float | None = None) -> CloudgpuError | None:
        """Wait until the tunnel has ended, and return the fault that ended it (None: `close` did, or time is up)."""
        self._ended.wait(timeout)
        return self.fault

    def close(self) -> None:
        """End the tunnel and every connection in it, and wait for its threads.

        A try to connect that is under way ends by itself, within the timeout of `connect`.
        """
        self._end(None)
        for thread in [*self._threads, *list(self._clients.values())]:
            if thread is not threading.current_thread():
                thread.join(2)

    # The keeper: one thread that holds the SSH connection and makes a new one when it is lost.

    def _keep(self, first: _Link) -> None:
        try:
            link: _Link | None = first
            while link is not None:
                link = self._reconnect(self._watch(link.connection))
        except CloudgpuError as error:
            self._end(error)
        except Exception as bug:  # noqa: BLE001  (waiting clients must never be left hanging)
            self._end(CloudgpuError(f"The tunnel failed: {type(bug).__name__}: {bug}.", next="Report this."))

    def _watch(self, connection: Connection) -> CloudgpuError:
        """Wait until the connection is lost, and return why."""
        with Keepalive(connection, ping_after=self._ping_after, deadline=self._deadline) as alive:
            connection.transport.join()
        connection.close()
        alive.join(5)
        return alive.error or connection.lost_error()

    def _reconnect(self, error: CloudgpuError) -> _Link | None:
        """Return the next link, however long it takes; None when the tunnel is to end. Raises what does not pass."""
        if self._ended.is_set():
            return None
        self._adopt(None)
        self._tell(TunnelEvent(TunnelChange.LOST, self.port, error))
        pause = FIRST_PAUSE_S
        while not self._ended.wait(pause):
            pause = min(LONGEST_PAUSE_S, pause * 2)
            try:
                link = self._new_link()
            except CloudgpuError as why:
                if not is_retryable(why):
                    raise
                self._tell(TunnelEvent(TunnelChange.TRIED, self.port, why))
                continue
            if not self._adopt(link):
                link.connection.close()
                return None
            self._tell(TunnelEvent(TunnelChange.RECONNECTED, self.port))
            return link
        return None

    def _new_link(self) -> _Link:
        connection = connect(self._target_source(), timeout=self._timeout)
        try:
            return _Link(connection, self._ask_port(connection))
        except BaseException:
            connection.close()
            raise

    def _ask_port(self, connection: Connection) -> int:
        return self._remote_port(connection) if callable(self._remote_port) else self._remote_port

    def _adopt(self, link: _Link | None) -> bool:
        """Make this the link that clients get; False when the tunnel has ended meanwhile."""
        with self._changed:
            if not self._ended.is_set():
                self._link = link
            self._changed.notify_all()
            return not self._ended.is_set()

    def _end(self, error: CloudgpuError | None) -> None:
        """Close everything once; waiting clients get a reset."""
        with self._changed:
            if self._ended.is_set():
                return
            self.fault = error
            self._ended.set()
            link, self._link = self._link, None
            self._changed.notify_all()
        if self._listener is not None:
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)  # wakes `accept` where the system allows it
        if link is not None:
            link.connection.close()
        self._tell(TunnelEvent(TunnelChange.ENDED, self.port, error))

    # The door: one thread that accepts, and one per client until its bytes flow.

    def _accept(self, listener: socket.socket) -> None:
        with listener:
            while not self._ended.is_set():
                try:
                    client, _ = listener.accept()
                except OSError as error:
                    if error.errno in (errno.EMFILE, errno.ENFILE):
                        self._ended.wait(POLL_S)  # too many open files: new clients wait in the system's queue
                    continue
                thread = threading.Thread(target=self._serve, args=(client,), name="tunnel-client", daemon=True)
                self._clients[client] = thread
                thread.start()

    def _serve(self, client: socket.socket) -> None:
        from cloudgpu.access.tunnel.relay import Relay

        try:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            channel = self._channel(client.getpeername())
            if channel is None:
                reset(client)
            else:
                Relay(client, channel).run()
        except OSError:
            pass  # the client went away while it waited
        finally:
            client.close()
            del self._clients[client]

    def _channel(self, caller: tuple[str, int]) -> Channel | None:
        """Open a way to the remote port, over the next connection where this one is lost; None when there is none.

        Nothing of the client has been sent before a channel stands, so trying again repeats nothing.
        """
        deadline = time.monotonic() + self._patience
        asked_port_again = False
        link: _Link | None = None
        while (link := self._next_link(link, deadline)) is not None:
            channel = _open_channel(link, caller)
            if channel is not None:
                return channel
            if link.connection.is_usable():  # the machine is there, but nobody listens on that port
                if asked_port_again:
                    return None
                asked_port_again = True
                self._ask_again(link)
                link = None
        return None

    def _next_link(self, used: _Link | None, deadline: float) -> _Link | None:
        """Wait for a link other than the one that was lost; None when time is up or the tunnel has ended."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._ended.is_set() or self._link not in (None, used), deadline - time.monotonic()
            )
            return None if self._ended.is_set() or self._link is used else self._link

    def _ask_again(self, link: _Link) -> None:
        """Ask once more which port it is: what listened there may have been started anew."""
        with self._asking:
            if self._link is not link or not callable(self._remote_port):
                return
            with contextlib.suppress(CloudgpuError):
                self._adopt(_Link(link.connection, self._ask_port(link.connection)))


def _open_channel(link: _Link, caller: tuple[str, int]) -> Channel | None:
    from cloudgpu.access.ssh.transport import CONNECTION_ERRORS

    try:
        return link.connection.transport.open_channel(
            "direct-tcpip", (LOOPBACK, link.remote_port), caller, timeout=OPEN_CHANNEL_S
        )
    except CONNECTION_ERRORS:
        return None
