"""An image without cloud-init on our model of Google Cloud: a startup script, and a host key that is read first.

The model answers the API; the SSH server is a real one at the machine's address, with a key that no launch gave it.
"""

from __future__ import annotations

import os

import pytest

from tests.cli.gcp_line import Line
from tests.cli.line import on_time_of
from tests.clouds.gcp.fixtures import gcp, gcp_process
from tests.control.agents import Agents

__all__ = ["gcp", "gcp_process"]
DEBIAN = "projects/debian-cloud/global/images/family/debian-12"


@pytest.fixture
def line(own_home, capsys, gcp, monkeypatch):
    on_time_of(monkeypatch, gcp)
    made = Line(own_home, capsys, gcp)
    config = own_home / "config.toml"
    config.write_text(f"{config.read_text()}ssh_port = {gcp.ssh_port}\n")
    return made


@pytest.fixture
def debian(line, gcp, tmp_path):
    """The id of a machine of Debian's, and the SSH server at its address."""
    said = line(f"up --gpu t4 --image {DEBIAN} --yes --no-wait --ssh-from 203.0.113.7 --name otter")
    assert said.code == 0, said.err
    (id_,) = gcp.instances(live=True)
    gcp.advance(60)
    host = gcp.instance(id_)["networkInterfaces"][0]["accessConfigs"][0]["natIP"]
    served = Agents(tmp_path / "agents", line.home / "keys", user="cloudgpu", hosts=(host,), port=gcp.ssh_port)
    assert line("ls --refresh").code == 0
    yield id_, served
    served.end()


def test_its_boot_data_are_a_startup_script_and_bring_no_host_key(debian, gcp):
    given = gcp.metadata(debian[0])
    assert given["startup-script"].startswith("#!/bin/sh\n")
    assert "user-data" not in given
    assert "PRIVATE KEY" not in given["startup-script"]
    assert given["enable-guest-attributes"] == "TRUE"


@pytest.mark.soak
def test_nobody_connects_before_the_machine_has_told_its_key_through_the_api(debian, line, gcp, monkeypatch):
    monkeypatch.setattr("sys.stdin", open(os.devnull))  # noqa: SIM115, PTH123
    id_, served = debian
    said = line("exec otter -- echo hello")
    assert (said.code, said.out) == (255, "")
    assert "otter has not reported its host key yet, so cloudgpu cannot verify it and did not connect" in said.err
    kind, blob = served.host_key.public_line.split(" ")[:2]
    gcp.say(id_, f"hostkeys/{kind}", blob)
    said = line("exec otter -- echo hello")
    assert said.code == 0, said.err
    assert blob in (line.home / "known_hosts").read_text()
