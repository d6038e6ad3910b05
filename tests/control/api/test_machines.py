"""The library's machines on the fake cloud: what the ledger has of a request."""

from __future__ import annotations

import json

import pytest

import cloudgpu
from cloudgpu.errors import InvalidRequest
from cloudgpu.testing import FAKE, write_plugin


def test_the_ledger_says_who_asked_for_a_stop(tmp_path, monkeypatch):
    home = tmp_path / "home"
    home.mkdir()
    state = json.dumps(str(tmp_path / "cloud.json"))
    (home / "config.toml").write_text(f'[accounts.lab]\nprovider = "fake"\nstate_file = {state}\n')
    monkeypatch.syspath_prepend(str(write_plugin(tmp_path / "plugin", {"fake": FAKE})))
    with cloudgpu.connect(home=home) as gpu:
        gpu.machines.up(provider="fake", gpu="v100", name="fox", wait=False)
        gpu.machines.stop("fox")
        history = gpu.machines.show("fox", history=True)["history"]
        gpu.machines.down("fox")
    assert [line["body"]["why"] for line in history if line["kind"] == "stop_requested"] == ["asked by the user"]


def test_an_empty_name_of_a_key_does_not_remove_every_shared_key(tmp_path):
    """Only a key that is left out means all of them; an unset variable of a script does not."""
    with cloudgpu.connect(home=tmp_path) as gpu, pytest.raises(InvalidRequest, match="cannot be read"):
        gpu.machines.share("fox", "", remove=True)
