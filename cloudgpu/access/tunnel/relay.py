"""One forwarded connection: a local socket on this side, an SSH channel on the other, a thread per direction.

Importing this imports paramiko: do it inside functions.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading

from paramiko.channel import Channel

from cloudgpu.access.ssh.transport import CONNECTION_ERRORS, close_channel

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # of SO_LINGER: on, for 0 seconds
CHUNK_BYTES = 128 * 1024  # bytes; SSH's window and the socket's buffers bound the memory


class Relay:
    """Copies bytes in both directions until both have ended. Each side's end of data is passed on.

    If the machine is lost, the client gets a reset and not an end of data: a partial answer must not look complete.
    """

    def __init__(self, client: socket.socket, channel: Channel) -> None:
        self._client = client
        self._channel = channel
        self._sent_all = threading.Event()
        self._has_delivered_all = False

    def run(self) -> None:
        """Copy until both directions have ended. Closes the channel, not the client."""
        to_client = threading.Thread(target=self._copy_to_client, name="tunnel-inward", daemon=True)
        to_client.start()
        self._copy_to_machine()
        to_client.join()
        close_channel(self._channel)
        if not self._has_delivered_all:
            reset(self._client)

    def _copy_to_machine(self) -> None:
        try:
            while data := self._client.recv(CHUNK_BYTES):
                self._channel.sendall(data)
            self._channel.shutdown_write()
        except CONNECTION_ERRORS:
            close_channel(self._channel)
        self._sent_all.set()
        if self._channel.eof_received:
            close_channel(self._channel)

    def _copy_to_client(self) -> None:
        try:
            while data := self._channel.recv(CHUNK_BYTES):
                self._client.sendall(data)
            self._has_delivered_all = bool(self._channel.eof_received)
        except CONNECTION_ERRORS:
            close_channel(self._channel)
        if self._has_delivered_all:
            self._shut_down_client()
        with contextlib.suppress(OSError):
            self._client.shutdown(
                socket.SHUT_RD
            )  # wakes the other direction without telling the client that all data has come

    def _shut_down_client(self) -> None:
        """Pass the end of data on to the client; it may send until the channel is closed."""
        with contextlib.suppress(OSError):
            self._client.shutdown(socket.SHUT_WR)
        if self._sent_all.is_set():
            close_channel(self._channel)
        self._channel.status_event.wait()


def reset(client: socket.socket) -> None:
    """Make the next `close` of this socket send a reset: an error on the other side, not an end of data."""
    with contextlib.suppress(OSError):
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
