"""The fake cloud behind the real command line: known by an entry point, shared by a state file."""

from __future__ import annotations

import json
import os
import sys

import pytest

from cloudgpu.errors import QuotaExceeded
from cloudgpu.providers.base import ProviderSettings
from cloudgpu.testing import FAKE, ManualClock, make, write_plugin
from tests.cli.many import QuickProgram, shared


@pytest.fixture
def cloudgpu(tmp_path, own_home):
    """Run the real command with an account at the fake cloud; return its exit status and its JSON document."""
    state = tmp_path / "cloud.json"
    (own_home / "config.toml").write_text(f'[accounts.lab]\nprovider = "fake"\nstate_file = {json.dumps(str(state))}\n')
    plugin = write_plugin(tmp_path / "plugin", {"fake": FAKE})
    program = QuickProgram(own_home, {"PYTHONPATH": os.pathsep.join([*sys.path, str(plugin)])}, shared())

    def run(*words):
        done = program(*words, "-o", "json")
        return done.code, json.loads(done.out or "null")

    run.cloud = lambda: json.loads(state.read_text())
    return run


@pytest.mark.soak
def test_every_command_sees_the_same_fake_cloud(cloudgpu):
    up = ("up", "--provider", "fake", "--account", "lab", "--gpu", "v100", "--name", "quiet-owl", "--yes", "--no-wait")
    assert cloudgpu(*up)[0] == 0
    assert cloudgpu(*up)[0] == 0, "the same request finds its machine"
    (machine,) = cloudgpu.cloud()["machines"]
    assert machine["tags"]["cloudgpu-name"] == "quiet-owl"
    _, listed = cloudgpu("ls")
    assert [(item["name"], item["instance_type"]) for item in listed["machines"]] == [("quiet-owl", "fake.v100.1")]
    assert cloudgpu("stop", "quiet-owl", "--yes")[0] == 0
    assert cloudgpu.cloud()["machines"][0]["requested"] == "stopped"


def test_a_fault_that_was_ordered_reaches_the_command(cloudgpu, tmp_path):
    settings = ProviderSettings("lab", {"state_file": str(tmp_path / "cloud.json")}, tmp_path, ManualClock())
    make(settings).fail_next("launch", QuotaExceeded("no GPU is allowed", next="ask for one"))
    status, said = cloudgpu("up", "--provider", "fake", "--account", "lab", "--gpu", "v100", "--yes", "--no-wait")
    assert (status, said["error"]["kind"], said["error"]["next"]) == (5, "quota_exceeded", "ask for one")
