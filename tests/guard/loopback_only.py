"""Refuses every connection and name look-up that leaves this machine, in any Python that installs it.

An audit hook, so that code in C cannot pass it by. Not seen: `socket.connect` with a host name looks the name up
before the hook is asked (`socket.create_connection`, which everybody uses, does not).
"""

from __future__ import annotations

import os
import sys

LOG = "CLOUDGPU_TEST_NETWORK_LOG"
_LOOK_UPS = ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr")
_SENDS = ("socket.connect", "socket.sendto", "socket.sendmsg")


class NetworkBlocked(RuntimeError):
    """No OSError: nobody shall take it for a network that is down."""


def install():
    """Watch this process from now on; it cannot be undone."""
    sys.addaudithook(_watch)


def _watch(event, args):
    if not event.startswith("socket."):
        return
    if event in _SENDS and args[1] is not None:
        import socket  # whoever sends has it; most processes never do, and with ipaddress it took half of their start

        if args[0].family in (socket.AF_INET, socket.AF_INET6):
            _check(event, args[1][0])
    elif event in _LOOK_UPS:
        _check(event, args[0])


def _check(event, host):
    if host and not is_loopback(host):
        line = f"{event} {host!r} by {os.getpid()} {' '.join(sys.orig_argv)[:200]}\n"
        if os.environ.get(LOG):
            with open(os.environ[LOG], "a", encoding="utf-8") as log:  # noqa: PTH123  (starts before pathlib)
                log.write(line)
        raise NetworkBlocked(line.strip())


def is_loopback(host):
    """Say whether a host name or address is this machine's loopback; the machine's own name is looked up here."""
    import ipaddress
    import socket

    name = host.decode("ascii", "replace") if isinstance(host, bytes) else str(host)
    if name in ("localhost", "localhost.localdomain", socket.gethostname()):
        return True
    try:
        address = ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified
