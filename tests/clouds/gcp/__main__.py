"""`python -m tests.clouds.gcp`: our model of Google Cloud for a shell, until it is killed; prints what to export."""

from __future__ import annotations

from tests.clouds.byhand import main
from tests.clouds.gcp.server import GcpServer

if __name__ == "__main__":
    main("gcp", GcpServer, __doc__)
