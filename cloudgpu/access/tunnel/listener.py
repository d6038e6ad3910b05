"""The local end of a tunnel: a port on this computer's loopback, bound at once."""

from __future__ import annotations

import contextlib
import errno
import socket
import struct
import sys

from cloudgpu.errors import InvalidRequest

LOOPBACK = "127.0.0.1"
MAX_TRIES = 100  # before the system chooses a port
BACKLOG = 256
RESET_ON_CLOSE = struct.pack("ii", 1, 0)
BUSY = (errno.EADDRINUSE, errno.EACCES)


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
    ports = range(first_port, min(first_port + MAX_TRIES, 65536)) if first_port else ()
    for port in (*ports, 0):
        # Bound at once: a port that was only checked may be in use a moment later.
        listener = _bind_port(port)
        if listener is not None:
            return listener
    raise InvalidRequest(
        "No local port is free.", field="port", value=str(first_port), next="Close some connections and try again."
    )


def reset(client: socket.socket) -> None:
    """Make the next `close` of this socket send a reset: an error on the other side, not an end of data."""
    with contextlib.suppress(OSError):
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)


def _bind_port(port: int) -> socket.socket | None:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        if sys.platform == "linux":
            # On Linux this allows ports with closed connections; elsewhere it could take a port that is in use.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((LOOPBACK, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        if error.errno in BUSY:
            return None
        raise
    return listener
