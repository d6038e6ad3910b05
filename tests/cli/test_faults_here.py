"""What is wrong with this computer and not with a cloud, on our models of Google Cloud and Azure: it is said."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any, NamedTuple

import pytest

from cloudgpu.control.outage import opening as sessions
from tests.cli import azure_line, gcp_line
from tests.cli.line import on_time_of
from tests.clouds.azure.fixtures import azure_arm, azure_process
from tests.clouds.gcp.fixtures import gcp, gcp_process
from tests.faults.disk import make_disk
from tests.faults.said import check_document, check_said
from tests.providers.gcp.accounts import key_file_in

__all__ = ["azure_arm", "azure_process", "gcp", "gcp_process"]
HOUR = 3600


class Cloud(NamedTuple):
    """One of the two: its model, how `up` is called there, and what in it goes wrong by which call."""

    name: str
    fixture: str
    lines: Any
    region: str
    launch: str
    refuses: str

    @property
    def up(self):
        return f"up --yes --no-wait --ssh-from 203.0.113.7 --gpu t4 --name otter --region {self.region}"


GCP = Cloud("gcp", "gcp", gcp_line, "us-central1", "compute.instances.insert", "authError")
AZURE = Cloud(
    "azure",
    "azure_arm",
    azure_line,
    "eastus",
    "VirtualMachines.CreateOrUpdate",
    "ExpiredAuthenticationToken",
)


@pytest.fixture(params=[GCP, AZURE], ids=lambda cloud: cloud.name)
def cloud(request):
    return request.param


@pytest.fixture
def server(cloud, request):
    return request.getfixturevalue(cloud.fixture)


@pytest.fixture
def line(cloud, server, own_home, capsys, monkeypatch):
    on_time_of(monkeypatch, server)
    return cloud.lines.Line(own_home, capsys, server)


def nothing_runs(line):
    assert line.server.billable() == []
    assert line("ls -o json").json["machines"] == []


@pytest.mark.soak
@pytest.mark.parametrize("hours", [1, -1])
def test_a_wrong_clock_is_named(cloud, line, monkeypatch, tmp_path, hours):
    """Every answer of a cloud's bears its time; a token that is refused is then no fault of the token."""
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(key_file_in(tmp_path)))
    opened = sessions.open_session
    wrong = lambda: line.server.clock.now() + timedelta(hours=hours)  # noqa: E731
    monkeypatch.setattr(sessions, "open_session", lambda *args, **more: opened(*args, **{"clock": wrong, **more}))
    line.server.faults.add(cloud.launch, error=cloud.refuses, status=401, times=99)
    error = check_document(line(cloud.up, "-o json"), 6)
    assert "clock of this machine is wrong" in error["message"]
    assert "timedatectl" in error["next"]
    nothing_runs(line)


def test_what_a_launch_that_died_half_way_has_cost_meanwhile_is_in_the_bill(cloud, line):
    """Its answers are lost, as to a process that is killed: three hours later `down` ends it, and the hours count."""
    sent = []

    def lost(_number, action, phase):
        sent.extend([action] if (action, phase) == (cloud.launch, "after") else [])
        return "drop" if sent else None

    line.server.on_call = lost
    died = line(cloud.up, "-o json")
    line.server.on_call = None
    assert (died.code, len(line.server.instances(live=True))) == (8, 1), died.out
    line.server.advance(3 * HOUR)
    assert line("down --all --yes").code == 0
    nothing_runs(line)
    bill = line("cost -o json").json
    (machine,) = line("ls --all -o json").json["machines"]
    per_hour = Decimal(machine["price"]["usd_per_hour"])
    assert 3 * per_hour <= Decimal(bill["total"]["usd"]) < 4 * per_hour


def test_without_credentials_nothing_is_sent(cloud, line, monkeypatch, tmp_path):
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "gone.json"))
    for name in ("CLIENT_SECRET", "AUTHORITY_HOST"):
        monkeypatch.delenv(f"AZURE_{name}", raising=False)
    error = check_document(line(cloud.up, "-o json"), 6)
    assert error["field"] == "credentials"
    assert line.server.resources() == [] if cloud is AZURE else line.server.calls == []


@pytest.fixture
def disk(cloud, server, tmp_path):
    """A small disk with the settings of one account on it."""
    made = make_disk(tmp_path / "disk")
    made.program.config(cloud.lines.CONFIG)
    yield made
    made.close()


@pytest.mark.soak
@pytest.mark.parametrize("kib", [0, 120])
def test_a_launch_on_a_full_disk_leaves_nothing_running(cloud, server, disk, kib):
    disk.leave_free(kib)
    check_said(disk.program(*cloud.up.split()), 2, 8)
    assert server.billable() == []
