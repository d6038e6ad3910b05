"""`python -m tests.clouds.lambdalabs`: our model of Lambda Cloud for a shell; prints what to export."""

from __future__ import annotations

from tests.clouds.byhand import main
from tests.clouds.lambdalabs.server import LambdaServer

if __name__ == "__main__":
    main("lambdalabs", LambdaServer, __doc__)
