"""`doctor`, `doctor --live` and `init` on our model of Azure, with machines that answer SSH. Not on Azure."""

from __future__ import annotations

import tomllib

import pytest

from tests.address_service import AddressService
from tests.cli.azure_line import Line
from tests.cli.line import on_time_of
from tests.clouds.azure.fixtures import azure_arm, azure_process

__all__ = ["azure_arm", "azure_process"]
LIVE = "doctor --live --provider azure"
GRANTED = ("RoleDefinitions.CreateOrUpdate", "RoleDefinitions.Delete")


@pytest.fixture
def line(own_home, capsys, azure_arm, monkeypatch):
    azure_arm.serve_ssh()
    on_time_of(monkeypatch, azure_arm)
    made = Line(own_home, capsys, azure_arm)
    with AddressService(b"198.51.100.7") as service:
        made.config(
            f'owner = "ada"\naddress_services = ["{service.url}"]\n'
            f'[accounts.azure]\nssh_port = {azure_arm.ssh_port}\nregions = ["eastus"]\n'
        )
        yield made


def account(line):
    return tomllib.loads((line.home / "config.toml").read_text())["accounts"]["azure"]


@pytest.mark.soak
def test_a_prepared_account_is_tried_by_a_machine_s_whole_life_and_nothing_is_left(line, azure_arm):
    made, calls = line.calls("init azure --yes -o json")
    assert made.code == 0, made.err
    assert made.json["created"] == ["custom role"]
    assert GRANTED[0] in calls
    assert "/roleDefinitions/" in account(line)["machine_role"]
    assert account(line)["timers"] is True
    said = line(f"{LIVE} --yes -o json")
    assert said.code == 0, said.out + said.err
    (one,) = said.json["live"]["machines"]
    assert [stage["name"] for stage in one["stages"] if stage["ok"]] == [
        "launch", "listed", "permitted", "timer", "ssh", "stop", "start", "ssh again", "down", "leftovers",
    ]  # fmt: skip
    assert (one["instance_type"], one["remaining"], said.json["live"]["ok"]) == ("Standard_B1ms", [], True)
    assert 0 < float(one["cost_usd"]) < float(said.json["live"]["at_most_usd"]) < 0.06
    assert azure_arm.billable() == []


def test_init_shows_what_it_makes_makes_it_once_and_takes_it_away_again(line):
    said, calls = line.calls("init azure")
    assert said.code == 2
    for sentence in ("makes the custom role cloudgpu", "deallocate itself", "Add --yes", "+machine_role = "):
        assert sentence in said.err
    assert "Run: cloudgpu init azure" not in said.err
    assert not set(calls) & set(GRANTED)
    assert line("init azure --yes --region eastus").code == 0
    again, calls = line.calls("init azure")  # nothing to ask about
    assert (again.code, set(calls) & set(GRANTED)) == (0, set())
    gone, calls = line.calls("init azure --remove --yes -o json")
    assert (gone.code, gone.json["removed"]) == (0, ["custom role"])
    assert GRANTED[1] in calls
    assert "machine_role" not in account(line)
    assert "timers" not in account(line)
    assert line("init azure --remove").code == 0


def test_what_is_not_prepared_is_a_note_with_the_command_that_does_it(line):
    said = line("doctor --provider azure -o json")
    found = {check["name"]: check for check in said.json["checks"]}
    assert said.code == 0
    for name in ("machine role azure", "timers azure"):
        assert (found[name]["verdict"], found[name]["next"]) == ("warn", "Run: cloudgpu init azure")


def test_a_subscription_may_be_named_and_nothing_is_written_where_nobody_may_look_into_it(line):
    line.config("")
    other = "99999999-2222-4333-8444-555555555555"
    said = line(f"init azure --yes --subscription {other} -o json")
    assert said.code == 6
    assert other in said.json["error"]["message"] + str(said.json["error"]["value"])
    assert (line.home / "config.toml").read_text() == ""


def test_an_option_of_another_cloud_is_refused(line):
    refused = line("init azure --yes --project mine -o json")
    assert (refused.code, refused.json["error"]["field"]) == (2, "--project")
