"""Runs a model of a cloud for a shell: `python -m tests.clouds.NAME` starts it and says what to export."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any


def main(name: str, server_of: Callable[[int, int], Any], words: str | None) -> None:
    """Start a server, say how to reach it, wait; `server_of` takes its port and that of SSH, 0 for a free one."""
    parser = argparse.ArgumentParser(prog=f"python -m tests.clouds.{name}", description=words)
    parser.add_argument("--port", type=int, default=0, help="0 is a free one")
    parser.add_argument("--ssh-port", type=int, help="let machines answer SSH at this port of their addresses")
    asked = parser.parse_args()
    server = server_of(asked.port, asked.ssh_port or 0).start()
    if asked.ssh_port is not None:
        server.serve_ssh()
    for key, value in server.environ.items():
        sys.stdout.write(f"export {key}={value}\n")
    if asked.ssh_port is not None:
        sys.stdout.write(f"# SSH on machines: port {server.ssh_port}\n")
    sys.stdout.flush()
    told = threading.Event()  # no mask of signals: what machines run would inherit it
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: told.set())
    told.wait()
    server.stop()
