"""`python -m tests.clouds.aws`: our model of AWS for a shell, until it is killed; prints what to export."""

from __future__ import annotations

from tests.clouds.aws.server import AwsServer
from tests.clouds.byhand import main

if __name__ == "__main__":
    main("aws", AwsServer, __doc__)
