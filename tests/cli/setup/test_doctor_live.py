"""`doctor` and `doctor --live` by the command line: on our model of AWS with machines that answer SSH. Not on AWS."""

from __future__ import annotations

import json
import os
import re
import sys

import pytest

from cloudgpu.cli.app import run
from tests.address_service import AddressService
from tests.cli.people import Terminal
from tests.clouds.aws.fixtures import aws, aws_process  # noqa: F401

LIVE = ("doctor", "--live", "--provider", "aws")


@pytest.fixture
def model(aws, own_home):  # noqa: F811
    aws.serve_ssh()
    with AddressService(b"198.51.100.7") as service:
        (own_home / "config.toml").write_text(
            f'owner = "ada"\naddress_services = ["{service.url}"]\n'
            f'[accounts.aws]\nssh_port = {aws.ssh_port}\nregions = ["us-east-1"]\n'
        )
        yield aws


@pytest.mark.soak
def test_a_small_machine_lives_its_whole_life_and_nothing_is_left(model, capsys):
    assert run([*LIVE, "--yes", "-o", "json"]) == 0
    told, document = capsys.readouterr()
    answer = json.loads(told)
    (one,) = answer["live"]["machines"]
    assert [stage["name"] for stage in one["stages"] if stage["ok"]] == [
        "launch", "listed", "permitted", "ssh", "stop", "start", "ssh again", "down", "leftovers",
    ]  # fmt: skip
    assert (one["instance_type"], one["remaining"], answer["live"]["ok"]) == ("t3.small", [], True)
    assert 0 <= float(one["cost_usd"]) < float(answer["live"]["at_most_usd"]) < 0.05
    assert [machine.state for machine in model.instances()] == ["terminated"]
    assert "on demand, $0.0208 an hour" in document
    assert "leaves nothing: the machine is ended" in " ".join(document.split())


@pytest.mark.soak
def test_on_a_terminal_each_check_has_its_line(model):
    seen = Terminal.of([sys.executable, "-m", "cloudgpu", *LIVE, "--yes"], dict(os.environ) | {"TERM": "xterm"})
    lines = [line.strip() for line in re.sub(r"\x1b\[[0-9;]*m", "", seen.text).splitlines()]
    assert seen.code == 0, seen.text
    assert any(line.startswith("note deadman ") for line in lines), lines
    assert "All of it works here, and nothing is left." in seen.text


@pytest.mark.soak
def test_it_shows_the_ceiling_and_launches_nothing_unasked(model, capsys):
    assert run([*LIVE, "--gpu", "t4"]) == 2
    said = capsys.readouterr().err
    assert "t3.small in" in said
    assert "g4dn.xlarge in" in said
    assert "at most $0.5" in said
    assert "Add --yes" in said
    assert model.instances() == []


@pytest.mark.soak
def test_a_stop_that_is_denied_is_found_before_it_is_needed_and_the_machine_is_ended(model, capsys):
    model.faults.deny("StopInstances")
    assert run([*LIVE, "--yes"]) == 6
    said = capsys.readouterr().out
    assert "ec2:StopInstances is denied: it is needed to stop machines." in " ".join(said.split())
    assert [machine.state for machine in model.instances()] == ["terminated"]


@pytest.mark.soak
def test_an_end_that_is_denied_says_what_is_left_and_how_to_end_it(model, capsys):
    model.faults.deny("TerminateInstances")
    assert run([*LIVE, "--yes"]) == 6
    (machine,) = model.instances()
    assert machine.state == "running"
    name = next(tag["value"] for tag in machine.get_tags() if tag["key"] == "Name")
    assert f"left: {name} may still be billed: cloudgpu down {name}" in capsys.readouterr().out


def test_a_fault_of_a_check_keeps_everything_from_being_launched(model, capsys):
    model.faults.deny("RunInstances")
    assert run([*LIVE, "--yes"]) == 6
    said = " ".join(capsys.readouterr().out.split())
    assert "ec2:RunInstances is denied: it is needed to launch machines." in said
    assert "aws-launch.json" in said
    assert "Nothing was launched." in said
    assert model.instances() == []


@pytest.mark.soak
def test_what_can_be_done_without_is_a_note(model, capsys):
    model.faults.deny("GetServiceQuota", service="servicequotas")
    assert run(["doctor", "--provider", "aws"]) == 0
    assert "note permissions aws" in capsys.readouterr().out


def test_expired_credentials_are_one_fault(model, capsys):
    model.faults.add(error="ExpiredToken", times=1_000)
    assert run(["doctor", "--provider", "aws"]) == 6
    said = capsys.readouterr().out
    assert said.count("FAIL") == 1
    assert "have expired" in said
    assert said.startswith("1 of "), "the answer comes first"
    assert said.splitlines()[1].startswith("  FAIL "), "and then what failed"


@pytest.mark.soak
def test_doctor_without_trouble_is_short_and_verbose_shows_every_check(model, capsys):
    assert run(["doctor", "--provider", "aws"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("No problem found: ")
    assert len(said.splitlines()) <= 10
    assert "  ok " not in said
    assert run(["doctor", "--provider", "aws", "-v"]) == 0
    assert "  ok   python" in capsys.readouterr().out


@pytest.mark.soak
def test_an_account_that_is_not_in_the_settings_is_the_usual_one(aws, own_home, capsys):  # noqa: F811
    assert run(["doctor", "--provider", "aws", "-o", "json"]) == 0
    names = [check["name"] for check in json.loads(capsys.readouterr().out)["checks"]]
    assert names[-3:] == ["account aws", "rules made by hand aws", "permissions aws"]


@pytest.mark.parametrize(
    ("words", "field"),
    [
        (["doctor", "--gpu", "t4"], "--gpu"),
        (["doctor", "--provider", "asw"], "provider"),
        (["doctor", "--account", "nobody"], "account"),
        ([*LIVE, "--gpu", "t4:0", "--yes"], "--gpu"),
        ([*LIVE, "--region", "us-west-7", "--yes"], None),
    ],
)
def test_bad_words_are_refused_and_nothing_is_launched(model, capsys, words, field):
    assert run([*words, "-o", "json"]) == 2
    assert field is None or json.loads(capsys.readouterr().out)["error"]["field"] == field
    assert model.instances() == []
