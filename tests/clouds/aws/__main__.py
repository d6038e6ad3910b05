"""`python -m tests.clouds.aws`: our model of AWS for a shell, until it is killed; prints what to export."""

from __future__ import annotations

import argparse
import signal
import sys

from tests.clouds.aws.server import AwsServer


def main() -> None:
    """Start it, say how to reach it, wait."""
    parser = argparse.ArgumentParser(prog="python -m tests.clouds.aws", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 is a free one")
    server = AwsServer(parser.parse_args().port).start()
    for name, value in server.environ.items():
        sys.stdout.write(f"export {name}={value}\n")
    sys.stdout.flush()
    signal.sigwait({signal.SIGINT, signal.SIGTERM})
    server.stop()


if __name__ == "__main__":
    main()
