"""One forwarded connection: a local socket on this side, an SSH channel on the other, a thread per direction."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paramiko.channel import Channel

CHUNK = 128 * 1024  # bytes moved at once; what bounds memory is SSH's window and the socket's buffers
RESET_ON_CLOSE = struct.pack("ii", 1, 0)


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
        self._channel.close()
        if not self._delivered_all:
            reset(self._client)

    def _outward(self) -> None:
        try:
            while data := self._client.recv(CHUNK):
                self._channel.sendall(data)
            self._channel.shutdown_write()
        except (OSError, EOFError):
            self._channel.close()
        self._sent_all.set()
        if self._channel.eof_received:
            self._channel.close()

    def _inward(self) -> None:
        try:
            while data := self._channel.recv(CHUNK):
                self._client.sendall(data)
            self._delivered_all = bool(self._channel.eof_received)
        except (OSError, EOFError):
            self._channel.close()
        if self._delivered_all:
            self._end_of_data()
        with contextlib.suppress(OSError):
            self._client.shutdown(socket.SHUT_RD)  # wakes the other direction without telling the client "all is said"

    def _end_of_data(self) -> None:
        """Tell the client that all was said; it may go on sending until the channel is closed."""
        with contextlib.suppress(OSError):
            self._client.shutdown(socket.SHUT_WR)
        if self._sent_all.is_set():
            self._channel.close()
        self._channel.status_event.wait()


def reset(client: socket.socket) -> None:
    """Make the coming `close` of this socket a reset: an error on the other side, not an end of data."""
    with contextlib.suppress(OSError):
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
