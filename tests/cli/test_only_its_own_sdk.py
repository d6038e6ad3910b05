"""A command of one cloud loads that cloud's SDK alone, and `ls` of its machine none, in processes of their own."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.cli.azure_line import CONFIG as AZURE
from tests.cli.gcp_line import CONFIG as GCP
from tests.clouds.azure.fixtures import azure_arm, azure_process
from tests.clouds.gcp.fixtures import gcp, gcp_process

__all__ = ["azure_arm", "azure_process", "gcp", "gcp_process"]
SDKS = {"azure": "azure", "boto3": "aws", "botocore": "aws", "google": "gcp", "msal": "azure"}
CHILD = """
import json, sys
from cloudgpu.cli.app import run
code = run(sys.argv[1:])
json.dump([code, sorted({name.partition(".")[0] for name in sys.modules})], sys.stderr)
"""
UP = "up --yes --no-wait --ssh-from 203.0.113.7 --gpu t4".split()


def loaded(*words):
    """Run a command; return whose SDKs it has loaded."""
    done = subprocess.run([sys.executable, "-c", CHILD, *words], capture_output=True, text=True, check=True)
    code, modules = json.loads(done.stderr.splitlines()[-1])
    assert code == 0, done.stderr
    return {SDKS[name] for name in modules if name in SDKS}


@pytest.fixture(params=[("gcp", GCP), ("azure", AZURE)], ids=lambda param: param[0])
def cloud(request, own_home):
    """An account of one cloud among accounts of all, as `config.toml` names them."""
    kind, config = request.param
    server = request.getfixturevalue({"gcp": "gcp", "azure": "azure_arm"}[kind])
    others = "".join(f'[accounts.of-{one}]\nprovider = "{one}"\n' for one in ("aws", "azure", "gcp") if one != kind)
    (own_home / "config.toml").write_text(config + others)
    return kind, server


@pytest.mark.soak
def test_a_launch_loads_the_sdk_of_its_own_cloud_alone_and_a_list_none(cloud):
    kind, server = cloud
    assert loaded(*UP, "--provider", kind) == {kind}
    assert len(server.instances()) == 1
    assert loaded("ls") == set()
