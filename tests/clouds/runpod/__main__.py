"""`python -m tests.clouds.runpod`: our model of RunPod for a shell, until it is killed; prints what to export."""

from __future__ import annotations

from tests.clouds.byhand import main
from tests.clouds.runpod.server import RunpodServer

if __name__ == "__main__":
    main("runpod", lambda port, _ssh: RunpodServer(port), __doc__)
