"""Google's SDK is loaded by the first call, not by making a provider: it takes a second and 150 MB."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import sys
from datetime import UTC, datetime
from pathlib import Path
from cloudgpu.providers.base import ProviderSettings
from cloudgpu.providers.gcp.provider import make
make(ProviderSettings("lab", {}, Path("."), lambda: datetime.now(UTC)))
heavy = {"google", "boto3", "azure", "requests"}
print(sorted(name for name in sys.modules if name.split(".")[0] in heavy or name == "cloudgpu.catalog.read"))
"""


def test_making_the_provider_loads_no_sdk():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
