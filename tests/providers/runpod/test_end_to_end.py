"""A pod's life on our model, whose containers really run: sshd and the agent, started by the very start script."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import cloudgpu
from cloudgpu.access.ssh.client_files import new_host_key
from cloudgpu.errors import WrongHostKey
from cloudgpu.providers.runpod import request
from tests.access.sshserver import wait_for
from tests.clouds.runpod.containers import Containers
from tests.clouds.runpod.fixtures import runpod, runpod_process
from tests.providers.machine.containers import free_port

RUNPOD_KEY = "rpa_scoped"  # how the model's own keys of pods begin
__all__ = ["runpod", "runpod_process"]


@pytest.fixture
def volume(tmp_path, monkeypatch):
    """Where the pod mounts /workspace, and the port of its SSH: there is neither a namespace nor a mapping here."""
    monkeypatch.setattr(request, "WORKSPACE", str(tmp_path / "workspace"))
    monkeypatch.setattr(request, "SSH_PORT", free_port())
    return tmp_path / "workspace"


@pytest.fixture
def lab(runpod, tmp_path, volume):
    """A home with an account at the model, as the library."""
    home = tmp_path / "lab"
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text('provider = "runpod"\naddress_services = []\n')
    containers = Containers(runpod, tmp_path / "pods")
    runpod.dwell(PROVISIONING=0.2, STARTING=0.2)
    with cloudgpu.connect(home=home) as found:
        yield found
    containers.close()


def said(lab, command):
    done = lab.machines.exec("bear", ["sh", "-c", command])
    assert done.status == 0, done
    return done.stdout.decode().strip()


def test_a_pod_is_reached_under_the_host_key_that_its_log_tells_and_its_agent_is_heard(lab, runpod, volume):
    made = lab.machines.up(gpu="h100", name="bear", no_guard=True)["machine"]
    (pinned,) = {line.split()[-1] for line in (Path(lab.home) / "known_hosts").read_text().splitlines()}
    assert any(pinned in line for line in runpod.pod(runpod.pods()[0]).read_log())
    tells = '"$HOME"/.cloudgpu/agent status'
    assert wait_for(lambda: json.loads(said(lab, tells)).get("id")) == made["id"]  # none before its first heartbeat
    assert RUNPOD_KEY not in said(lab, "env")
    lab.machines.down("bear")
    assert runpod.pods() == []


@pytest.mark.soak
def test_a_stop_keeps_the_workspace_and_the_pin_and_another_key_is_refused(lab, runpod, volume):
    lab.machines.up(gpu="h100", name="bear", no_guard=True)
    said(lab, f"echo lost >~/work; echo safe >{volume}/work")
    pod = runpod.pod(runpod.pods()[0])
    lab.machines.stop("bear")
    assert pod.read_log() == []
    lab.machines.start("bear", no_guard=True)
    assert said(lab, f"cat {volume}/work; ls ~/work 2>/dev/null || echo gone").split() == ["safe", "gone"]
    with lab.machines.tunnel("bear") as link:
        assert link.document()["url"].startswith("http://127.0.0.1:")
        assert "42" in str(link.run("6 * 7"))
    lab.machines.stop("bear")
    (key,) = volume.glob(".cloudgpu-*/host_key")
    key.write_text(new_host_key().private_pem)
    with pytest.raises(WrongHostKey):
        lab.machines.start("bear", no_guard=True)
    lab.machines.down("bear")
    assert runpod.pods() == []
