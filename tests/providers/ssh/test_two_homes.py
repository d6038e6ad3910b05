"""Two people on one ledger, whose accounts and hosts bear the same names: whose host is whose, by its own word."""

from __future__ import annotations

import json
import os

import pytest

from cloudgpu.testing import write_plugin
from tests.cli.many import QuickProgram, shared


@pytest.fixture
def homes(tmp_path):
    """Ada and Bob, who share a ledger."""
    (tmp_path / "shared").mkdir()
    plugin = write_plugin(tmp_path / "plugin", {"ssh": "cloudgpu.providers.ssh.provider:make"})
    environ = {
        "PYTHONPATH": os.pathsep.join([str(plugin), os.environ.get("PYTHONPATH", "")]),
        "CLOUDGPU_LEDGER": f"sqlite://{tmp_path}/shared/ledger.db",
    }
    return [QuickProgram(tmp_path / one, {**environ, "USER": one}, shared()) for one in ("ada", "bob")]


def config(program, host, name):
    facts = {**host.options, "name": name}
    table = ", ".join(f"{key} = {json.dumps(value)}" for key, value in facts.items())
    program.config(f'provider = "ssh"\n[accounts.lab]\nprovider = "ssh"\nhosts = [{{{table}}}]\n')


def decisions_on(program, name):
    """Return what passes have decided about a machine."""
    history = program("show", name, "--history", "-o", "json").json["history"]
    return [line for line in history if line["kind"] == "decision_made"]


def test_a_host_of_the_same_name_says_nothing_and_the_same_host_under_another_name_does(homes, own):
    ada, bob = homes
    host, other = own(), own("other")
    config(ada, host, "bigbox")
    config(bob, other, "bigbox")
    up = ada("up", "--yes", "--name", "amber-fox", "--template", "bare", timeout=90)
    assert up.code == 0, up.err
    listed = bob("ls", "--refresh", "-o", "json")
    assert (listed.code, [one["state"] for one in listed.json["machines"]]) == (8, ["running"])
    assert [one["reachable"] for one in listed.json["machines"]] == [False]
    refused = bob("down", "amber-fox", "--yes", "-o", "json")
    assert (refused.code, refused.json["error"]["kind"]) == (8, "not_reachable_here")
    other.off()
    assert bob("reap", "-o", "json").code == 8
    assert bob("down", "amber-fox", "--yes").code == 8
    config(bob, host, "gpu1")
    listed = bob("ls", "--refresh", "-o", "json")
    assert (listed.code, [one["state"] for one in listed.json["machines"]]) == (0, ["running"])
    assert [one["kind"] for one in ada("show", "amber-fox", "--history", "-o", "json").json["history"]].count(
        "machine_adopted"
    ) == 0
    assert bob("down", "amber-fox", "--yes", timeout=90).code == 0
    assert host.processes() == []
    assert ada("ls", "--refresh", "-o", "json").json["machines"] == []


@pytest.mark.soak
def test_a_host_that_is_not_configured_here_is_no_host_of_this_account_once_all_have_answered(homes, own):
    ada, bob = homes
    host, other = own(), own("other")
    config(ada, host, "bigbox")
    config(bob, other, "other")
    assert ada("up", "--yes", "--name", "amber-fox", "--template", "bare", timeout=90).code == 0
    passed = bob("reap", "-o", "json")
    assert (passed.code, "not reachable from here: amber-fox is a machine of ada's" in passed.out) == (8, True)
    assert bob("reap", "--cron").code == 0, "its owner looks after it"
    refused = bob("down", "amber-fox", "--yes", "-o", "json").json["error"]
    assert (refused["kind"], refused["next"].startswith("Ask ada")) == ("not_reachable_here", True)
    config(ada, other, "other")
    assert "Put it back into config.toml" in ada("down", "amber-fox", "--yes").err
    decided = decisions_on(ada, "amber-fox")
    other.off()
    assert bob("down", "amber-fox", "--yes", "-o", "json").json["error"]["kind"] == "provider_unavailable"
    assert bob("reap", "--cron").code == 8, "the host that is silent may be that one"
    assert decisions_on(ada, "amber-fox") == decided, "it last said that it is another one, and the machine is ada's"
    other.start()
    config(ada, host, "bigbox")
    assert ada("down", "amber-fox", "--yes", timeout=90).code == 0
