"""A container's whole life on our model, where it really runs: sshd and the agent, begun by the very start script."""

from __future__ import annotations

import json
import os
import pwd
import time
from pathlib import Path

import pytest

import cloudgpu
from cloudgpu.access.ssh.client_files import new_host_key
from cloudgpu.errors import WrongHostKey
from cloudgpu.providers.vast import request
from tests.access.sshserver import wait_for
from tests.clouds.vast.running import Containers
from tests.clouds.vast.server import KEY
from tests.providers.machine.containers import free_port


@pytest.fixture
def volume(tmp_path, monkeypatch):
    """Where the container keeps its files, its port and its user: there is no namespace and no mapping here."""
    monkeypatch.setattr(request, "PERSISTENT_DIR", str(tmp_path / "workspace"))
    monkeypatch.setattr(request, "SSH_PORT", free_port())
    monkeypatch.setattr(request, "USER", pwd.getpwuid(os.getuid()).pw_name)
    (tmp_path / "workspace").mkdir()
    return tmp_path / "workspace"


@pytest.fixture
def home(vast, tmp_path, volume):
    """A home with an account at the model, as the library."""
    place = tmp_path / "lab"
    place.mkdir(mode=0o700)
    (place / "config.toml").write_text('provider = "vast"\naddress_services = []\n')
    containers = Containers(vast, tmp_path / "hosts")
    with cloudgpu.connect(home=place) as found:
        yield found
    containers.close(vast)


def said(home, command):
    done = home.machines.exec("bear", ["sh", "-c", command])
    assert done.status == 0, done
    return done.stdout.decode().strip()


def heard(home):
    """Return what the agent says once it has begun; None before."""
    status = json.loads(said(home, '"$HOME"/.cloudgpu/agent status'))
    return status if "id" in status else None


def test_a_container_is_reached_under_the_host_key_that_its_log_tells_and_its_agent_answers(home, vast):
    made = home.machines.up(gpu="rtx4090", name="bear", no_guard=True)["machine"]
    (contract,) = vast.living()
    (pinned,) = {line.split()[-1] for line in (Path(home.home) / "known_hosts").read_text().splitlines()}
    assert pinned in contract.read_log()
    status = wait_for(lambda: heard(home), 60)
    assert status["id"] == made["id"]
    shown = said(home, "env")
    assert KEY not in shown + json.dumps(contract.body)
    assert contract.key not in shown
    home.machines.down("bear")
    assert vast.living() == []


@pytest.mark.soak
def test_a_container_stops_itself_by_its_own_key_when_its_label_says_that_the_lease_is_over(home, vast):
    home.machines.up(gpu="rtx4090", name="bear", no_guard=True)
    (contract,) = vast.living()
    over = {"expires": str(int(time.time()) - 5), "renew-until": str(int(time.time()) - 5)}
    contract.label = f"{contract.label.split()[0]} {json.dumps(over)}"
    wait_for(lambda: contract.intended == "stopped", 60)
    wait_for(lambda: contract.actual == "exited" or vast.living()[0].actual == "exited", 60)
    assert all(call.status == 200 for call in vast.called("change"))
    home.machines.down("bear")


@pytest.mark.soak
def test_a_stop_keeps_files_and_the_pin_and_another_host_key_is_refused(home, vast, volume):
    home.machines.up(gpu="rtx4090", name="bear", no_guard=True)
    said(home, f"echo safe >{volume}/work")
    home.machines.stop("bear")
    home.machines.start("bear", no_guard=True)
    assert said(home, f"cat {volume}/work") == "safe"
    home.machines.stop("bear")
    (key,) = volume.glob(".cloudgpu-*/host_key")
    key.write_text(new_host_key().private_pem)
    with pytest.raises(WrongHostKey):
        home.machines.start("bear", no_guard=True)
    home.machines.down("bear")
    assert vast.living() == []
