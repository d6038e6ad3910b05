"""What launches leave at Azure, by the command line on our model of it: found, told apart, removed."""

from __future__ import annotations

import pytest

from tests.cli.azure_line import Line
from tests.cli.line import on_time_of
from tests.clouds.azure.fixtures import azure_arm, azure_process
from tests.clouds.azure.others import made
from tests.clouds.azure.sdk import Sdk

__all__ = ["azure_arm", "azure_process"]
UP = "up --instance-type Standard_NC4as_T4_v3 --yes --no-wait --ssh-from 203.0.113.7 --name otter"
DAY = 86_400


@pytest.fixture
def line(own_home, capsys, azure_arm, monkeypatch):
    on_time_of(monkeypatch, azure_arm)
    return Line(own_home, capsys, azure_arm)


def left(line):
    found = line("orphans -o json").json["orphans"]
    return {one["kind"]: one for one in found}


@pytest.mark.soak
def test_what_stays_when_somebody_deletes_the_machine_by_hand_is_told_with_its_price_and_removed(line):
    assert line(UP).code == 0
    group = line.azure.instances()[0].group
    keep = {"properties": {"storageProfile": {"osDisk": {"createOption": "FromImage", "deleteOption": "Detach"}}}}
    machines = Sdk(line.azure).compute.virtual_machines
    machines.begin_update(group, group, keep).result()
    machines.begin_delete(group, group).result()
    assert [one["state"] for one in line("ls --refresh -o json").json["machines"]] == ["terminated"]
    line.azure.advance(DAY)
    found = left(line)
    assert "disk" in found, found
    assert found["disk"]["launch"] == "otter" or "otter" in str(found["disk"])
    cleaned = line("orphans --clean --yes --older-than 1h")
    assert cleaned.code == 0, cleaned.out + cleaned.err
    assert (line.azure.billable(), line.azure.resources()) == ([], [])
    assert left(line) == {}


@pytest.mark.soak
def test_what_a_refused_launch_could_not_take_away_is_found_and_removed(line):
    line.azure.fail("VirtualMachines.CreateOrUpdate", "AllocationFailed")
    line.azure.faults.deny("ResourceGroups.Delete", times=9)
    assert line(UP).code != 0
    assert line.azure.billable() != []
    line.azure.faults.clear()
    line.azure.advance(DAY)
    line("ls --refresh")
    cleaned = line("orphans --clean --yes --older-than 1h")
    assert cleaned.code == 0, cleaned.out + cleaned.err
    line("down --all --yes")
    assert (line.azure.billable(), line.azure.resources()) == ([], [])


def test_a_group_of_another_ledger_is_shown_and_stays(line):
    tags = {"cloudgpu-id": "cg-x", "cloudgpu-ledger": "another", "cloudgpu-name": "theirs"}
    group = f"cloudgpu-{7:020x}"
    made(line.azure, group, tags=tags)
    home = line.azure.model.get(line.azure.resource(group).id.partition("/providers/")[0])
    home.body["tags"] = tags
    sdk = Sdk(line.azure)
    sdk.compute.virtual_machines.begin_delete(group, group).result()
    line.azure.advance(DAY)
    assert line("orphans --clean --yes").code == 0
    assert sdk.resources.resource_groups.check_existence(group)
    line("down --all --yes")
    assert sdk.resources.resource_groups.check_existence(group)
