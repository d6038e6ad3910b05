"""`python -m tests.clouds.vast`: our model of vast.ai for a shell, until it is killed; prints what to export."""

from __future__ import annotations

from tests.clouds.byhand import main
from tests.clouds.vast.server import VastServer

if __name__ == "__main__":
    main("vast", lambda port, _ssh_port: VastServer(port), __doc__)
