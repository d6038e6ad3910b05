"""`doctor` and `doctor --live` on our model of Google Cloud, with machines that answer SSH. Not on Google Cloud."""

from __future__ import annotations

import pytest

from tests.address_service import AddressService
from tests.cli.gcp_line import Line
from tests.cli.line import on_time_of
from tests.clouds.gcp.fixtures import gcp, gcp_process

__all__ = ["gcp", "gcp_process"]
LIVE = "doctor --live --provider gcp"


@pytest.fixture
def line(own_home, capsys, gcp, monkeypatch):
    gcp.serve_ssh()
    on_time_of(monkeypatch, gcp)
    made = Line(own_home, capsys, gcp)
    with AddressService(b"198.51.100.7") as service:
        made.config(
            f'owner = "ada"\naddress_services = ["{service.url}"]\n'
            f'[accounts.gcp]\nssh_port = {gcp.ssh_port}\nregions = ["us-central1"]\n'
        )
        yield made


def checks(said):
    return {check["name"]: check for check in said.json["checks"]}


@pytest.mark.soak
def test_a_small_machine_lives_its_whole_life_and_nothing_is_left(line, gcp):
    said = line(f"{LIVE} --yes -o json")
    assert said.code == 0, said.out + said.err
    (one,) = said.json["live"]["machines"]
    assert [stage["name"] for stage in one["stages"] if stage["ok"]] == [
        "launch", "listed", "permitted", "timer", "ssh", "stop", "start", "ssh again", "down", "leftovers",
    ]  # fmt: skip
    assert (one["instance_type"], one["remaining"], said.json["live"]["ok"]) == ("e2-small", [], True)
    assert 0 < float(one["cost_usd"]) < float(said.json["live"]["at_most_usd"]) < 0.05
    assert (gcp.billable(), gcp.instances(live=True)) == ([], [])
    assert "(Compute Engine pricing, from memory)" in said.err


@pytest.mark.soak
def test_it_shows_the_ceiling_and_launches_nothing_unasked(line, gcp):
    said = line(f"{LIVE} --gpu t4")
    assert said.code == 2
    assert "e2-small in us-central1-a" in said.err
    assert "n1-standard-4+t4:1 in us-central1-" in said.err
    assert "Add --yes" in said.err
    assert gcp.instances() == []


def test_no_gpu_quota_stands_in_the_way_with_the_page_where_more_is_asked_for(line, gcp):
    gcp.limit("GPUS_ALL_REGIONS", 0)
    said = line("doctor --provider gcp -o json")
    found = checks(said)["GPU quota gcp"]
    assert (said.code, found["verdict"]) == (2, "fail")
    assert "https://console.cloud.google.com/" in found["next"]


def test_os_login_and_a_door_that_is_open_to_all_are_notes(line):
    line.config("")
    said = line("doctor --provider gcp -o json")
    assert said.code == 0
    assert checks(said)["SSH from anywhere gcp"]["verdict"] == "warn"
    assert checks(said)["OS Login gcp"]["verdict"] == "ok"


def test_a_permission_that_is_denied_keeps_everything_from_being_launched(line, gcp):
    gcp.faults.deny("compute.instances.insert")
    said = line(f"{LIVE} --yes")
    assert said.code == 6
    assert "compute.instances.create is denied: it is needed to" in " ".join(said.out.split())
    assert "gcp-launch.json" in said.out
    assert gcp.instances() == []


def test_init_makes_nothing_there_says_what_is_not_right_and_writes_the_account_down(line, gcp):
    line.config("")
    said = line("init gcp --yes --account lab --project cloudgpu-test --region us-central1 -o json")
    assert said.code == 0, said.err
    assert (said.json["role"], said.json["created"], said.json["written"]) == (None, [], True)
    assert "SSH from anywhere: default-allow-ssh" in said.err
    assert "gcp-launch.json" in said.err
    text = (line.home / "config.toml").read_text()
    wanted = '[accounts.lab] provider = "gcp" project = "cloudgpu-test" regions = [ "us-central1", ]'
    assert text.split() == wanted.split()
    again = line("init gcp --account lab")
    assert (again.code, again.out) == (0, "Nothing to change.\n")
    assert {call.action.rpartition(".")[2] for call in gcp.calls} <= {"get", "list"}


def test_an_option_of_another_cloud_is_refused(line):
    said = line("init gcp --yes --profile work -o json")
    assert (said.code, said.json["error"]["field"]) == (2, "--profile")
