"""The startup script of images without cloud-init, run by sh below a directory: what changes the system takes notes."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace

import pytest

from cloudgpu.core.model.launch import BootPart, Volume
from cloudgpu.core.model.offers import MachineConfiguration, Market
from cloudgpu.providers.machine.user_data import BootOptions, startup_script
from cloudgpu.testing import make_attempt
from tests.providers.aws.attempts import USUAL

GIVEN = BootOptions("gcp", reports=True, volume="cloudgpu-data")
ITEM = MachineConfiguration("gcp", "lab", "us-central1", "us-central1-a", "g2-standard-4", Market.ON_DEMAND)
STANDS_IN = ("systemctl", "useradd", "chown", "apt-get")
PLACES = ("/usr/local/", "/etc/", "/var/lib/", "/home/", "/run/")


def attempt(*parts, **more):
    made = make_attempt(ITEM, parts=parts, agent_source="print('agent')\n", **more)
    return replace(made, request=replace(made.request, setup=replace(USUAL, volume=Volume("data"))))


@pytest.fixture
def system(tmp_path):
    for place in ("bin", "usr/local/lib", "etc/systemd/system", "etc/sudoers.d", "var/lib", "home/cloudgpu"):
        (tmp_path / place).mkdir(parents=True)
    for name in STANDS_IN:
        (tmp_path / "bin" / name).write_text(f'#!/bin/sh\necho "{name} $*" >>{tmp_path}/done\nexit ${{FAILS:-0}}\n')
    (tmp_path / "bin" / "id").write_text(f"#!/bin/sh\ngrep -qs useradd {tmp_path}/done\n")
    (tmp_path / "bin" / "install").write_text('#!/bin/sh\nfor last; do :; done\nmkdir -p "$last"\n')
    for file in (tmp_path / "bin").iterdir():
        file.chmod(0o755)
    return tmp_path


def boot(system, made, **more):
    """Run the script as it runs at a boot, with its places below `system`; return what was done to that."""
    text = startup_script(made, GIVEN)
    for place in PLACES:
        text = text.replace(f" {place}", f" {system}{place}").replace(f">{place}", f">{system}{place}")
    before = (system / "done").read_text() if (system / "done").exists() else ""
    environ = {"PATH": f"{system}/bin:{os.environ['PATH']}", **more}
    done = subprocess.run(["/bin/sh"], input=text, env=environ, capture_output=True, text=True, check=False, timeout=30)
    assert done.stderr == ""
    return (system / "done").read_text().removeprefix(before).splitlines()


def test_the_lease_s_timer_starts_before_anything_else(system):
    done = boot(system, attempt(BootPart("packages", "git curl")))
    wanted = "cloudgpu-agent.service cloudgpu-volume.service"
    assert [line for line in done if not line.startswith("chown")] == [
        "systemctl daemon-reload",
        "systemctl enable cloudgpu-lease.timer",
        "systemctl start --no-block cloudgpu-lease.timer",
        f"useradd -m -d {system}/home/cloudgpu -s /bin/bash -c cloudgpu cloudgpu",
        "systemctl daemon-reload",
        f"systemctl enable {wanted}",
        f"systemctl start --no-block {wanted}",
        "apt-get -q -o DPkg::Lock::Timeout=600 update",
        "apt-get -q -o DPkg::Lock::Timeout=600 install -y git curl",
        "systemctl start --no-block cloudgpu-start.service",
    ]


def test_the_files_are_those_that_cloud_init_would_write(system):
    words = "echo 'grüße'\ncat <<'CLOUDGPU-END'\nCLOUDGPU-END\n"
    made = attempt(BootPart("on_start", words), jupyter=("jupyter", "lab"))
    boot(system, made)
    here = system / "usr/local/lib/cloudgpu"
    names = {
        "launch",
        "cloud",
        "lease",
        "agent.py",
        "agent.json",
        "agent",
        "settle",
        "start",
        "jupyter",
        "on_start.sh",
        "volume",
    }
    assert {file.name for file in here.iterdir()} == names
    assert (here / "on_start.sh").read_text() == words
    assert (here / "agent.py").read_text() == "print('agent')\n"
    assert json.loads((here / "agent.json").read_text())["id"] == made.machine
    assert os.access(here / "lease", os.X_OK)
    assert (system / "run/cloudgpu/began").exists()
    unit = (system / "etc/systemd/system/cloudgpu-volume.service").read_text()
    assert "/usr/local/lib/cloudgpu/volume cloudgpu-data\n" in unit


def test_the_user_has_our_key_and_keeps_those_that_were_added(system):
    made = attempt()
    boot(system, made)
    keys = system / "home/cloudgpu/.ssh/authorized_keys"
    assert keys.read_text().splitlines() == [line.strip() for line in made.boot.client_public_keys]
    assert keys.stat().st_mode & 0o777 == 0o600
    keys.write_text("of a friend\n")
    assert not any(line.startswith("useradd") for line in boot(system, made))
    assert keys.read_text() == "of a friend\n"
    boot(system, replace(made, token="another-launch"))
    assert "of a friend" not in keys.read_text()


def test_the_host_s_private_key_does_not_travel(system):
    made = attempt()
    assert made.boot.host_private_key
    assert made.boot.host_private_key.splitlines()[1] not in startup_script(made, GIVEN)


def test_packages_are_installed_once_and_tried_again_where_that_failed(system):
    made = attempt(BootPart("packages", "git"))
    assert sum("install -y" in line for line in boot(system, made, FAILS="1")) == 1
    assert sum("install -y" in line for line in boot(system, made)) == 1
    assert sum("install -y" in line for line in boot(system, made)) == 0


def test_the_same_attempt_makes_the_same_script():
    made = attempt(BootPart("packages", "git"))
    assert startup_script(made, GIVEN) == startup_script(made, GIVEN)
    assert len(startup_script(made, GIVEN).encode()) < 256 << 10
