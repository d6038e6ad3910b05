"""`python -m tests.clouds.azure`: our model of Azure for a shell, until it is killed; prints what to export."""

from __future__ import annotations

import argparse
import signal
import sys
import threading

from tests.clouds.azure.server import AzureServer


def main() -> None:
    """Start it, say how to reach it, wait."""
    parser = argparse.ArgumentParser(prog="python -m tests.clouds.azure", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 is a free one")
    parser.add_argument("--ssh-port", type=int, help="let machines answer SSH at this port of their addresses")
    asked = parser.parse_args()
    server = AzureServer(asked.port, asked.ssh_port or 0).start()
    if asked.ssh_port is not None:
        server.serve_ssh()
    for name, value in server.environ.items():
        sys.stdout.write(f"export {name}={value}\n")
    if asked.ssh_port is not None:
        sys.stdout.write(f"# SSH on machines: port {server.ssh_port}\n")
    sys.stdout.flush()
    told = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: told.set())
    told.wait()
    server.stop()


if __name__ == "__main__":
    main()
