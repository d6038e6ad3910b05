"""The TCP connection to a machine, straight or through its jump host. Imports no paramiko."""

from __future__ import annotations

import socket
import time

from cloudgpu.access.ssh import jump
from cloudgpu.access.ssh.target import Target, reason
from cloudgpu.errors import Unreachable


def dial(target: Target, deadline: float) -> socket.socket:
    """Return a connection to the machine's SSH server; `deadline` is in monotonic seconds. Raises Unreachable.

    Through a jump host it may not stand yet: that shows when the server is to introduce itself.
    """
    if target.jump:
        return jump.open_through(target)
    address = target.address
    try:
        connected = socket.create_connection((address.host, address.port), max(0.1, deadline - time.monotonic()))
    except OSError as error:
        raise no_answer(target, reason(error)) from error
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connected


def knock(target: Target, *, timeout: float) -> None:
    """Return when something answers at the machine's SSH port, reached straight; raise Unreachable otherwise."""
    dial(target, time.monotonic() + timeout).close()


def no_answer(target: Target, why: str) -> Unreachable:
    """Return the error for a machine that does not answer; `why` ends its sentence."""
    return Unreachable(
        f"{target.name} does not answer at {target.place}: {why}.",
        field="name",
        value=target.name,
        next=f"Run: cloudgpu show {target.name} --refresh",
    )
