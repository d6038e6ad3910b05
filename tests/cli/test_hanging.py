"""A region, a zone or a service that takes requests and answers none, by the command line on our models of clouds."""

from __future__ import annotations

import threading
from datetime import timedelta
from functools import partial

import pytest

from cloudgpu.control.outage import opening as sessions
from tests.cli import aws_line, azure_line, gcp_line
from tests.cli.line import on_time_of
from tests.clouds.aws.fixtures import aws, aws_process
from tests.clouds.azure.fixtures import azure_arm, azure_process
from tests.clouds.gcp.fixtures import gcp, gcp_process
from tests.providers.aws.accounts import impatient

__all__ = ["aws", "aws_process", "azure_arm", "azure_process", "gcp", "gcp_process"]
UP = "up --yes --no-wait --new --ssh-from 203.0.113.7"
BOUND_S = 20.0  # then what hangs is let go, so that a test without the mend fails, and does not wait
PATIENCE_S = "3"  # for a server in this process, on a computer that may be busy


def let_hang(server, monkeypatch, action=None, **where):
    """Let something hang; return the fault, and a list that gets, for each stop that is asked, whether it hangs."""
    monkeypatch.setenv("CLOUDGPU_PATIENCE", PATIENCE_S)
    fault = server.faults.hang(action, **where)
    bound = threading.Timer(BOUND_S, fault.over.set)
    bound.daemon = True
    bound.start()
    seen = []

    def note(_number, asked, phase):
        if phase == "before" and asked in {"StopInstances", "compute.instances.stop", "VirtualMachines.Deallocate"}:
            seen.append(not fault.over.is_set())

    server.on_call = note
    return fault, seen


@pytest.fixture
def on_aws(own_home, capsys, aws, monkeypatch):
    impatient(monkeypatch)
    here = partial(sessions.open_session, clock=aws.model.now)
    monkeypatch.setattr(sessions, "open_session", here)
    line = aws_line.Line(own_home, capsys, aws)
    assert line(UP, "--zone us-west-2a --instance-type g4dn.xlarge --name fox").code == 0
    assert line(UP, "--zone us-east-1b --instance-type g4dn.xlarge --name owl").code == 0
    aws.advance(80 * 3600)
    return line


@pytest.mark.soak
def test_a_region_of_aws_that_hangs_delays_no_stop_elsewhere(on_aws, aws, monkeypatch):
    _, stops = let_hang(aws, monkeypatch, region="us-east-1")
    said = on_aws("reap")
    assert (said.code, stops) == (8, [True])
    assert "us-east-1 did not answer" in said.err
    listed = on_aws("ls --refresh")
    assert (listed.code, "us-east-1 did not answer" in listed.err) == (8, True)


@pytest.mark.soak
def test_which_regions_there_are_need_not_be_said_for_a_stop(on_aws, aws, monkeypatch):
    on_aws.config('provider = "aws"\nowner = "ada"\naddress_services = []\n[accounts.lab]\nprovider = "aws"\n')
    _, stops = let_hang(aws, monkeypatch, "DescribeRegions")
    said = on_aws("reap")
    assert (said.code, stops) == (8, [True, True])


@pytest.mark.soak
def test_which_regions_there_are_is_remembered_where_that_is_not_said(on_aws, aws, monkeypatch):
    on_aws.config('provider = "aws"\nowner = "ada"\naddress_services = []\n[accounts.lab]\nprovider = "aws"\n')
    on_aws("ls --refresh")
    _, stops = let_hang(aws, monkeypatch, "DescribeRegions")
    said = on_aws("reap")
    assert (said.code, stops) == (0, [True, True])


@pytest.fixture
def on_gcp(own_home, capsys, gcp, monkeypatch):
    on_time_of(monkeypatch, gcp)
    line = gcp_line.Line(own_home, capsys, gcp)
    assert line(UP, "--gpu t4 --zone us-west1-a --name fox").code == 0
    assert line(UP, "--gpu t4 --zone us-central1-a --name owl").code == 0
    return line


@pytest.mark.parametrize("where", [{"zone": "us-central1-a"}, {"action": "compute.instances.aggregatedList"}])
def test_a_zone_or_a_list_of_google_that_hangs_ends_a_command_soon(on_gcp, gcp, monkeypatch, where):
    fault, _ = let_hang(gcp, monkeypatch, **where)
    said = on_gcp("down owl --yes")
    assert not fault.over.is_set()
    assert said.code == (9 if "zone" in where else 0), said.err
    assert not said.err.count("Traceback")
    assert on_gcp("ls --refresh").code == 8 if "action" in where else True


@pytest.fixture
def on_azure(own_home, capsys, azure_arm, monkeypatch):
    on_time_of(monkeypatch, azure_arm)
    line = azure_line.Line(own_home, capsys, azure_arm)
    assert line(UP, "--gpu t4 --region eastus --name owl").code == 0
    return line


@pytest.mark.soak
def test_a_subscription_of_azure_that_hangs_ends_each_command_soon_and_is_named(on_azure, azure_arm, monkeypatch):
    let_hang(azure_arm, monkeypatch)
    listed = on_azure("ls --refresh")
    assert (listed.code, "lab did not answer" in listed.err) == (8, True)
    begun = azure_arm.clock.now()
    ended = on_azure("down owl --yes")
    assert (ended.code, "may still be billed" in ended.err) == (9, True), ended.err
    assert azure_arm.clock.now() - begun < timedelta(minutes=1)
