"""What goes wrong at Azure, by the command line on our model of it: exit code, one sentence, nothing left running."""

from __future__ import annotations

import math
import re

import pytest

from tests.cli.azure_line import Line
from tests.cli.line import on_time_of
from tests.clouds.azure.fixtures import azure_arm, azure_process
from tests.clouds.azure.model import DISKS
from tests.clouds.rest_faults import FOREVER
from tests.faults.said import check_document

__all__ = ["azure_arm", "azure_process"]
T4 = "Standard_NC4as_T4_v3"
UP = f"up --yes --no-wait --ssh-from 203.0.113.7 --instance-type {T4}"
PUT = "VirtualMachines.CreateOrUpdate"


@pytest.fixture
def waited(azure_arm, monkeypatch):
    """Let waits run the model's clock ahead, and tell how long they were."""
    return on_time_of(monkeypatch, azure_arm)


@pytest.fixture
def line(own_home, capsys, azure_arm, waited):
    return Line(own_home, capsys, azure_arm)


def refused(said, code):
    """Check that this was refused in one sentence with a way out; return the error."""
    assert len(said.err.split("Traceback")) == 1
    error = check_document(said, code)
    assert re.fullmatch(r"[^\n]+[.?]", error["message"]), error
    return error


def nothing_left(line):
    """Nothing of it is there, and the ledger has no machine, nor one that is not settled."""
    assert (line.azure.billable(), line.azure.resources()) == ([], [])
    assert line("ls -o json").json["machines"] == []


def regions_tried(line):
    return [call.body["location"] for call in line.azure.called(PUT)]


# No capacity.


@pytest.mark.soak
@pytest.mark.parametrize("error", ["ZonalAllocationFailed", "SkuNotAvailable"])
def test_no_capacity_in_the_first_region_is_told_and_the_next_is_launched(line, error):
    if error.endswith("AllocationFailed"):
        line.azure.fail(PUT, error)
    else:
        line.azure.faults.add(PUT, error=error)
    said = line(UP)
    assert said.code == 0, said.err
    first, second = regions_tried(line)
    assert {first, second} == {"eastus", "westus2"}
    (made,) = line.azure.instances()
    assert (made.region, f"{first}: " in said.err) == (second, True)
    assert {name for _, name in line.azure.billable() if not name.startswith(made.group)} == set()


@pytest.mark.soak
def test_no_capacity_anywhere_tries_every_offer_once_and_leaves_nothing_that_a_failed_create_left(line):
    line.azure.stockout()
    error = refused(line(UP, "--spot --or-on-demand -o json"), 4)
    assert "AllocationFailed" in error["message"]
    assert sorted(regions_tried(line)) == ["eastus", "eastus", "westus2", "westus2"]
    nothing_left(line)


@pytest.mark.soak
def test_what_a_failed_create_left_and_would_not_go_stops_the_next_offer(line):
    """Two machines for one wish would cost twice: the first attempt is settled before anything else is tried."""
    line.azure.fail(PUT, "AllocationFailed")
    line.azure.faults.deny("ResourceGroups.Delete")
    said = line(UP, "-o json")
    assert said.code != 0
    assert len(line.azure.called(PUT)) == 1
    assert [kind for kind, _ in line.azure.billable()] == ["address", "disk"]
    line.azure.faults.clear()
    assert line("down --all --yes").code == 0
    nothing_left(line)


@pytest.mark.soak
def test_a_deallocated_machine_that_finds_no_capacity_stays_and_says_so(line):
    assert line(UP, "--name otter").code == 0
    assert line("stop otter --yes").code == 0
    line.azure.stockout()
    error = refused(line("start otter --yes --no-wait -o json"), 4)
    assert "AllocationFailed" in error["message"]
    (machine,) = line("ls --refresh -o json").json["machines"]
    assert (machine["state"], machine["billed"]) == ("deallocated", False)


# Limits, credentials, permissions.


def test_a_quota_that_could_not_be_read_beforehand_is_named_by_the_launch(line):
    line.azure.faults.deny("Usage.List")
    line.azure.quota("eastus", "Standard NCASv3_T4 Family", 3)
    line.azure.quota("westus2", "Standard NCASv3_T4 Family", 3)
    error = refused(line(UP, "--region eastus -o json"), 5)
    assert "NCASv3_T4" in error["message"]
    assert "portal.azure.com" in error["next"] or "cloudgpu quota" in error["next"]
    nothing_left(line)


@pytest.mark.parametrize("action", [PUT, "NetworkSecurityGroups.CreateOrUpdate"])
def test_a_denied_action_is_named_and_nothing_was_made(line, action):
    line.azure.faults.deny(action)
    error = refused(line(UP, "--region eastus -o json"), 6)
    assert re.search(r"Microsoft\.\w+/\w+/(\w+/)?write", error["message"]), error
    nothing_left(line)


def test_credentials_that_are_refused_are_named_and_nothing_was_made(line, monkeypatch):
    monkeypatch.setenv("AZURE_CLIENT_SECRET", "another")
    error = refused(line(UP, "-o json"), 6)
    assert "credential" in error["message"].lower()
    assert "another" not in str(error)
    assert all(call.action.startswith("Token.") for call in line.azure.calls)


@pytest.mark.parametrize("status", [429, 503])
def test_a_sign_in_service_that_is_busy_is_no_missing_login(line, status):
    line.azure.faults.add("Token.Get", status=status, times=FOREVER)
    said = line("ls --refresh")
    assert (said.code, f"answered with the status {status}" in said.err) == (8, True)
    assert "az login" not in refused(line(UP, "-o json"), 8)["next"]


@pytest.mark.parametrize("read", ["Operations.Get", "VirtualMachines.Get"])
def test_a_read_that_finds_nothing_after_the_call_was_taken_loses_no_machine(line, read):
    line.azure.faults.add(read, error="ResourceNotFound", times=1 if read == "Operations.Get" else 2)
    said = line(UP)
    assert said.code == 0, said.err
    (made,) = line.azure.instances(live=True)
    (row,) = line("ls -o json").json["machines"]
    assert (row["state"], row["region"]) == ("running", made.region)


@pytest.mark.soak
def test_a_pass_stops_a_machine_that_one_read_does_not_find(line):
    assert line(UP, "--region eastus").code == 0
    line.azure.advance(3600)
    assert line("budget set small --amount 0.01 --period month --action stop --yes").code == 0
    line.azure.faults.add("VirtualMachines.Get", error="ResourceNotFound")
    said = line("reap")
    assert (said.code, [one.state for one in line.azure.instances()]) == (0, ["deallocated"]), said.err
    assert [row["state"] for row in line("ls -o json").json["machines"]] == ["deallocated"]


def test_a_token_that_expires_on_the_way_is_named(line):
    line.azure.faults.add(PUT, error="ExpiredAuthenticationToken", status=401, times=FOREVER)
    error = refused(line(UP, "--region eastus -o json"), 6)
    assert "credential" in error["message"].lower()
    nothing_left(line)


@pytest.mark.soak
def test_an_end_that_is_denied_is_no_end(line):
    assert line(UP).code == 0
    line.azure.faults.deny("ResourceGroups.Delete")
    error = refused(line("down --all --yes -o json"), 6)
    assert "resourceGroups/delete" in error["message"]
    assert len(line("ls --refresh -o json").json["machines"]) == len(line.azure.instances(live=True)) == 1
    line.azure.faults.clear()
    assert line("down --all --yes").code == 0
    nothing_left(line)


def test_a_subscription_that_is_switched_off_is_named(line):
    line.azure.model.subscription["state"] = "Disabled"
    error = refused(line(UP, "--region eastus -o json"), 6)
    assert "disabled" in error["message"].lower() or "switched off" in error["message"], error
    nothing_left(line)


# The wire.


@pytest.mark.soak
def test_throttling_is_waited_out_by_our_clock(line, waited):
    line.azure.faults.add(PUT, error="TooManyRequests", retry_after=30, times=3)
    said = line(UP)
    assert said.code == 0
    assert said.err.count("Azure is asked again in 30 seconds, as it says.") == 3
    assert len(line.azure.called(PUT)) == 4
    assert len(line.azure.instances()) == 1
    assert waited.seconds >= 90


@pytest.mark.parametrize("action", [PUT, "Operations.Get"])
def test_a_lost_reply_of_a_launch_makes_no_second_machine(line, action):
    line.azure.faults.lose_reply(action)
    said = line(UP, "--region eastus -o json")
    again = line(UP, "--region eastus -o json")
    assert again.code == 0, again.out + again.err
    assert len(line.azure.instances()) == 1
    assert line.azure.instances()[0].tags["cloudgpu-id"] == again.json["machine"]["id"]
    assert said.code in {0, 8}
    assert line("down --all --yes").code == 0
    nothing_left(line)


@pytest.mark.parametrize("action", ["ResourceGroups.Delete", "VirtualMachines.Deallocate"])
def test_a_lost_reply_of_an_end_is_settled_by_looking(line, action):
    assert line(UP, "--name otter").code == 0
    line.azure.faults.lose_reply(action)
    verb = "down" if action == "ResourceGroups.Delete" else "stop"
    said = line(f"{verb} otter --yes")
    assert said.code == 0, said.err
    assert [kind for kind, _ in line.azure.billable()] == ([] if verb == "down" else ["address", "disk"])


@pytest.mark.soak
def test_an_operation_that_does_not_end_is_not_taken_for_a_launch_and_is_settled_later(line):
    line.azure.dwell(creating=math.inf)
    said = line(UP, "--region eastus -o json")
    assert said.code in {0, 8}, said.out + said.err
    (made,) = line.azure.instances()
    line.azure.finish(made.id)
    again = line(UP, "--region eastus -o json")
    assert again.code == 0, again.out
    assert (
        len(line.azure.instances()) == len(line.azure.called(PUT)) == 1 or line.azure.instances()[0].group == made.group
    )
    assert line("ls --refresh -o json").json["machines"][0]["state"] == "running"


@pytest.mark.soak
def test_a_slow_end_is_proved_before_it_is_said(line, waited):
    assert line(UP).code == 0
    line.azure.dwell(deleting=60, group=150)
    said = line("down --all --yes")
    assert said.code == 0, said.err
    assert waited.seconds >= 60
    assert not line.azure.instances()
    line.azure.advance(150)
    nothing_left(line)


@pytest.mark.soak
def test_the_network_is_made_and_the_machine_is_not(line):
    line.azure.faults.add(PUT, error="InternalServerError", times=FOREVER)
    said = line(UP, "--region eastus -o json")
    assert said.code != 0
    line.azure.faults.clear()
    assert line("down --all --yes").code == 0
    nothing_left(line)


# What lies around.


def test_a_disk_of_somebody_else_in_a_launchs_group_is_said_and_not_lost(line):
    from tests.clouds.azure.sdk import Sdk

    assert line(UP, "--name otter").code == 0
    group = line.azure.instances()[0].group
    body = {"location": line.azure.instances()[0].region}
    body["properties"] = {"creationData": {"createOption": "Empty"}, "diskSizeGB": 10}
    Sdk(line.azure).compute.disks.begin_create_or_update(group, "thesis", body).result()
    said = line("down otter --yes")
    assert line.azure.instances() == []
    assert [name for kind, name in line.azure.billable() if kind == "disk"] == ["thesis"], said.err
    line.azure.advance(3 * 3600)
    assert line("orphans --clean --yes").code == 0
    assert line.azure.resources(DISKS)[0].endswith("/thesis")


def test_a_region_that_does_not_answer_is_no_offer_and_the_other_is_used(line):
    line.azure.faults.offline(region="eastus")
    said = line(UP)
    assert said.code == 0, said.err
    assert line.azure.instances()[0].region == "westus2"
