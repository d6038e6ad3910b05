"""Which clouds an answer is about: those of config.toml, those whose credentials are found here, or none at all."""

from __future__ import annotations

import json
import os

import pytest

from cloudgpu.control.outage.opening import open_session
from tests.cli.aws_line import Line
from tests.clouds.aws.fixtures import aws, aws_process

__all__ = ["aws", "aws_process"]
ASKING = ["ls --refresh", "orphans", "reap --dry-run", "down --all --yes"]
NONE = "No cloud was queried"


@pytest.fixture
def bare(own_home, capsys, aws):
    """A laptop with credentials and a ledger, and without a config.toml."""
    line = Line(own_home, capsys, aws)
    (line.home / "config.toml").unlink()
    session = open_session(os.environ)
    session.ledger.settle("A verb that answers for every machine refuses where there never was a ledger.")
    session.ledger.close()
    return line


@pytest.fixture
def stranger(bare, monkeypatch, tmp_path):
    """A laptop without any credential."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return bare


@pytest.mark.soak
@pytest.mark.parametrize("verb", ["ls --refresh", "reap --dry-run"])  # all regions are asked: seconds each
def test_a_cloud_whose_credentials_are_found_is_asked_without_a_config(bare, verb):
    said = bare(verb)
    assert said.code == 0, said.err
    assert "DescribeInstances" in [call.action for call in bare.server.calls]
    assert "Queried: aws, local." in said.out
    assert NONE not in said.out


@pytest.mark.parametrize("verb", ASKING)
def test_where_no_cloud_can_be_asked_every_answer_says_so(stranger, verb):
    said = stranger(f"{verb} -o json")
    assert said.code == 0, said.err
    assert said.json["queried"] == [{"account": "local", "provider": "local"}]
    assert NONE in " ".join(stranger(verb).out.split())
    assert stranger.server.calls == []


@pytest.mark.parametrize("verb", ASKING)
def test_credentials_that_open_nothing_are_named_and_make_no_answer_incomplete(bare, verb, monkeypatch):
    monkeypatch.setenv("AWS_PROFILE", "gone")
    said = bare(f"{verb} -o json")
    assert said.code == 0, said.err
    assert [one["scope"] for one in said.json["not_queried"]] == ["aws"]
    assert "Not queried: aws" in bare(verb).out
    bare.config('[accounts.aws]\nprovider = "aws"\n')
    assert bare(f"{verb} -o json").code == 8, "who names the account wants to know of it"


def test_an_account_on_which_something_was_launched_has_to_answer(bare, monkeypatch):
    assert bare("up --provider aws --gpu t4 --yes --no-wait --ssh-from 203.0.113.7").code == 0
    monkeypatch.setenv("AWS_PROFILE", "gone")
    said = bare("ls --refresh -o json")
    assert (said.code, said.json["not_queried"]) == (8, [])
    assert said.json["queried"] == [{"account": name, "provider": name} for name in ("aws", "local")]


def test_the_ledger_alone_does_not_say_that_there_is_no_machine(stranger):
    said = stranger("ls")
    assert "as far as this ledger knows" in said.out
    assert stranger("ls -o json").json["queried"] == []
    assert "no cloud was queried" in stranger("cost").out


def test_doctor_says_that_no_cloud_is_asked(stranger):
    checks = {one["name"]: one for one in json.loads(stranger("doctor -o json").out)["checks"]}
    assert (checks["clouds"]["verdict"], "No cloud is queried" in checks["clouds"]["message"]) == ("note", True)


@pytest.mark.soak
def test_an_account_without_a_table_is_looked_at_before_it_is_forgotten_and_asked_no_more_from_then_on(bare):
    up = "up --provider aws --gpu t4 --yes --no-wait --ssh-from 203.0.113.7"
    assert bare(up).code == 0
    assert bare("down --all --yes").code == 0
    before = len(bare.server.calls)
    said = bare("init --forget aws --yes")
    assert said.code == 0, said.err
    assert "DescribeInstances" in [call.action for call in bare.server.calls[before:]]
    assert "is removed and no longer queried" in said.out
    before = len(bare.server.calls)
    assert bare("reap --dry-run -o json").json["queried"] == [{"account": "local", "provider": "local"}]
    assert bare.server.calls[before:] == []
    said = bare(up)
    assert "account aws was forgotten: from this launch on, it is synced again" in said.err
