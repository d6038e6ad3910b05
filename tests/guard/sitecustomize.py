"""Python reads this at its start in every child of the suite."""

import os
import sys

if os.environ.get("CLOUDGPU_TEST_NETWORK_LOG"):
    import loopback_only

    loopback_only.install()

if os.environ.get("CLOUDGPU_TEST_COMPILED") and sys.orig_argv[1:2] == ["-c"] and "stdin" in sys.orig_argv[2]:
    import compiled

    compiled.run(os.environ["CLOUDGPU_TEST_COMPILED"])
