"""`init lambda` and `doctor` on our model of Lambda Cloud: the account by name, SSH closed when asked, bad input."""

from __future__ import annotations

import json

import pytest

from cloudgpu.cli.app import run
from cloudgpu.testing import write_plugin
from tests.clouds.lambdalabs.fixtures import lambdalabs, lambdalabs_process
from tests.clouds.lambdalabs.server import KEY

__all__ = ["lambdalabs", "lambdalabs_process"]
LAMBDA = "cloudgpu.providers.lambdalabs.provider:make"
OURS = {"protocol": "tcp", "port_range": [22, 22], "source_network": "203.0.113.7/32", "description": "cloudgpu: SSH"}


@pytest.fixture
def said(lambdalabs, own_home, tmp_path, monkeypatch, capsys):
    """Run a command at the model: its exit code, and what it printed."""
    from cloudgpu.providers.registry import kinds

    if "lambda" not in kinds():  # a copy of the source that was not installed anew
        monkeypatch.syspath_prepend(str(write_plugin(tmp_path / "plugin", {"lambda": LAMBDA})))
    own_home.mkdir(parents=True, exist_ok=True)
    (own_home / "config.toml").write_text('provider = "lambda"\naddress_services = []\n')

    def said(text):
        code = run(text.split())
        out, err = capsys.readouterr()
        assert KEY not in out + err
        return code, out, " ".join((out + err).split())

    return said


def test_init_names_the_account_and_makes_nothing_but_its_ssh_key(said, lambdalabs, own_home):
    code, _, text = said("init lambda --yes")
    assert code == 0, text
    assert "the Lambda account with the SSH key" in text
    assert "makes the SSH key cloudgpu" in text
    assert "LAMBDA_API_KEY" in text
    assert "permissions" not in text
    assert "[accounts.lambda]" in (own_home / "config.toml").read_text()
    assert [call.action for call in lambdalabs.calls if call.action not in ("keys", "types", "global-firewall")] == [
        "add-key"
    ]
    assert said("init lambda --yes")[0] == 0
    assert len(lambdalabs.called("add-key")) == 1


def test_ssh_is_closed_to_all_but_the_networks_that_are_named_and_nothing_else_changes(said, lambdalabs):
    other = {"protocol": "tcp", "port_range": [8000, 8080], "source_network": "0.0.0.0/0", "description": "theirs"}
    lambdalabs.state.rules.append(other)
    icmp = lambdalabs.state.rules[0]
    code, _, text = said("init lambda --ssh-from 203.0.113.7 --yes")
    assert code == 0, text
    assert "to 203.0.113.7/32 alone; now it is open to 0.0.0.0/0" in text
    assert lambdalabs.state.rules == [icmp, other, OURS]
    doctor = json.loads(said("doctor --provider lambda -o json")[1])
    (check,) = [one for one in doctor["checks"] if one["name"] == "SSH at Lambda lambda"]
    assert check["verdict"] == "ok", check
    assert said("init lambda --ssh-from 203.0.113.7 --yes")[0] == 0
    assert len(lambdalabs.called("patch-global-firewall")) == 1


def test_a_rule_for_more_than_ssh_keeps_the_rest(said, lambdalabs):
    lambdalabs.state.rules = [{"protocol": "all", "source_network": "0.0.0.0/0", "description": "all"}]
    assert said("init lambda --ssh-from 203.0.113.7 --yes")[0] == 0
    kept = {(one["protocol"], *one.get("port_range", ())) for one in lambdalabs.state.rules if one != OURS}
    assert kept == {("udp",), ("icmp",), ("tcp", 1, 21), ("tcp", 23, 65535)}


@pytest.mark.parametrize("sources", [["0.0.0.0/0"], ["0.0.0.0/1", "128.0.0.0/1"], ["203.0.113.7/32", "::/0"]])
def test_doctor_names_the_rule_that_lets_everybody_in_and_what_closes_it(said, lambdalabs, sources):
    lambdalabs.state.rules = [{**OURS, "source_network": source} for source in sources]
    code, out, _ = said("doctor --provider lambda -o json")
    (check,) = [one for one in json.loads(out)["checks"] if one["name"] == "SSH at Lambda lambda"]
    assert "whole internet" in check["message"]
    assert "cloudgpu init lambda --ssh-from" in check["next"]
    assert not [call for call in lambdalabs.calls if call.action in ("patch-global-firewall", "launch")]
    assert code == 0


@pytest.mark.parametrize(
    ("line", "says", "code"),
    [
        ("init lambda --ssh-from 0.0.0.0/0 --yes", "would let everybody", 2),
        ("init lambda --ssh-from 203.0.113.7/24 --yes", "names an address inside a network", 2),
        ("init lambda --ssh-from home --yes", "is not an IPv4 address", 2),
        ("init lambda --ssh-from 203.0.113.7 --remove --yes", "does not go with --remove", 2),
        ("init --ssh-from 203.0.113.7 --yes", "is for a cloud", 2),
        ("init lambda --budget 300 --email ada@example.org --yes", "cloudgpu can make no budget at lambda", 2),
        ("init lambada --yes", "did you mean 'lambda'", 2),
        ("up --gpu a10 --disk 100 --no-wait --yes", "has no system disk of a chosen size", 2),
        ("up --gpu a10 --image mine --no-wait --yes", "has no images", 2),
        ("up --gpu a10 --volume data:10 --no-wait --yes", "has no data disks", 2),
        ("up --gpu a10 --ssh-from 203.0.113.7 --no-wait --yes", "has no rules about who may connect", 2),
        ("up --gpu a10 --spot --no-wait --yes", "only on demand", 2),
        ("up --gpu a10 --region us-esat-1 --no-wait --yes", "does not launch 1x a10 in us-esat-1", 4),
        ("up --gpu impossible --no-wait --yes", "impossible", 2),
        ("up --gpu a10:3 --no-wait --yes", "a10", 4),
        ("up --gpu a10 --max-price 0.5 --no-wait --yes", "1.29", 4),
        ("stop nobody --yes", "nobody", 7),
        ("quota --provider lambda", "has no limits that could be read", 2),
    ],
)
def test_bad_input_is_named_and_launches_nothing(said, lambdalabs, line, says, code):
    found, _, text = said(line)
    assert says in text
    assert found == code, text
    assert lambdalabs.called("launch") == []
    assert lambdalabs.called("patch-global-firewall") == []
