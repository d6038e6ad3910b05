"""One forwarded connection: a local socket on this side, an SSH channel on the other, a thread per direction.

Importing this imports paramiko: do it inside functions.
"""

from __future__ import annotations

import contextlib
import socket
import threading

from paramiko.channel import Channel

from cloudgpu.access.ssh.transport import CONNECTION_ERRORS, close_channel
from cloudgpu.access.tunnel.listener import reset

CHUNK = 128 * 1024  # bytes moved at once; what bounds memory is SSH's window and the socket's buffers


class Relay:
    """Carries bytes both ways until both sides are done. Each side's end of data is handed on by itself.

    Where the other side is lost in the middle, the client gets a reset and not an end of data: half an answer
    must not look like a whole one.
    """

    def __init__(self, client: socket.socket, channel: Channel) -> None:
        self._client = client
        self._channel = channel
        self._sent_all = threading.Event()
        self._delivered_all = False

    def run(self) -> None:
        """Carry everything; return when both directions have ended. The channel is closed, the client is not."""
        inward = threading.Thread(target=self._inward, name="tunnel-inward", daemon=True)
        inward.start()
        self._outward()
        inward.join()
        close_channel(self._channel)
        if not self._delivered_all:
            reset(self._client)

    def _outward(self) -> None:
        try:
            while data := self._client.recv(CHUNK):
                self._channel.sendall(data)
            self._channel.shutdown_write()
        except CONNECTION_ERRORS:
            close_channel(self._channel)
        self._sent_all.set()
        if self._channel.eof_received:
            close_channel(self._channel)

    def _inward(self) -> None:
        try:
            while data := self._channel.recv(CHUNK):
                self._client.sendall(data)
            self._delivered_all = bool(self._channel.eof_received)
        except CONNECTION_ERRORS:
            close_channel(self._channel)
        if self._delivered_all:
            self._end_of_data()
        with contextlib.suppress(OSError):
            self._client.shutdown(
                socket.SHUT_RD
            )  # wakes the other direction without telling the client that all data has come

    def _end_of_data(self) -> None:
        """Tell the client that all data has come; it may go on sending until the channel is closed."""
        with contextlib.suppress(OSError):
            self._client.shutdown(socket.SHUT_WR)
        if self._sent_all.is_set():
            close_channel(self._channel)
        self._channel.status_event.wait()
