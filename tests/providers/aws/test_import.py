"""Making an account of AWS loads no SDK: only a question does."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import sys
from datetime import UTC, datetime
from pathlib import Path
from cloudgpu.providers.base import ProviderSettings
from cloudgpu.providers.registry import open_provider
made = open_provider("aws", ProviderSettings("aws", {}, Path("nowhere"), lambda: datetime.now(UTC)))
assert made.kind == "aws"
sys.exit(", ".join({"boto3", "botocore", "cloudgpu.catalog.read"} & set(sys.modules)) or 0)
"""


def test_an_account_is_made_without_the_sdk_and_the_catalogue():
    done = subprocess.run([sys.executable, "-c", CODE], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
