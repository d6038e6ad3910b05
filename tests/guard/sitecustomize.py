"""Python reads this at its start in every child of the suite."""

import os

if os.environ.get("CLOUDGPU_TEST_NETWORK_LOG"):
    import loopback_only

    loopback_only.install()
