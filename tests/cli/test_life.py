"""One local machine from `up` to `down`, through the real command line."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess

import pytest

from tests.cli.program import until


def test_a_machine_lives_from_up_to_down(cloudgpu):
    up = cloudgpu("up", "--yes", "--name", "amber-fox", "-o", "json")
    assert up.code == 0, up.err
    machine = up.json["machine"]
    assert (machine["name"], machine["state"], up.json["found"]) == ("amber-fox", "running", False)
    assert machine["price"]["source"]
    assert machine["address"]["host"] == "127.0.0.1"

    listed = cloudgpu("ls", "-o", "json")
    assert [item["name"] for item in listed.json["machines"]] == ["amber-fox"]
    assert listed.json["view_as_of"] is not None

    ran = cloudgpu("exec", "amber-fox", "--", "sh", "-c", "cat; echo oops >&2; exit 7", stdin=b"\x00\xffhello")
    assert (ran.code, ran.err, ran.out) == (7, "oops\n", b"\x00\xffhello".decode(errors="surrogateescape"))

    stopped = cloudgpu("stop", "amber-fox", "--yes", "-o", "json")
    assert stopped.code == 0, stopped.err
    assert (stopped.json["state"], stopped.json["billed"]) == ("stopped", False)
    assert cloudgpu("exec", "amber-fox", "--", "true").code == 255

    started = cloudgpu("start", "amber-fox", "--yes", "-o", "json")
    assert (started.code, started.json["state"]) == (0, "running"), started.err
    assert cloudgpu("exec", "amber-fox", "--", "true").code == 0

    down = cloudgpu("down", "amber-fox", "--yes", "-o", "json")
    assert down.code == 0, down.err
    assert down.json["terminated"][0]["state"] == "terminated"
    assert cloudgpu.machines() == []


WHOSE = {"identities.json", "providers/local/local/place.json"}  # by which this home knows its machines


def test_down_leaves_only_the_ledger_and_the_clients_key(cloudgpu):
    assert cloudgpu("up", "--yes", "--name", "amber-fox").code == 0
    assert cloudgpu("down", "--yes").code == 0
    left = {str(path.relative_to(cloudgpu.home)) for path in cloudgpu.home.rglob("*") if path.is_file()}
    assert {name for name in left if name.partition("/")[0] not in ("ledger", "keys")} <= WHOSE, left


def test_the_same_request_returns_the_same_machine(cloudgpu):
    first = cloudgpu("up", "--yes", "-o", "json").json["machine"]
    again = cloudgpu("up", "--yes", "-o", "json")
    assert (again.json["machine"]["id"], again.json["found"]) == (first["id"], True)
    other = cloudgpu("up", "--yes", "--new", "-o", "json").json["machine"]
    assert other["id"] != first["id"]
    assert len(cloudgpu.machines()) == 2


def test_a_stopped_machine_of_the_same_request_is_returned_untouched(cloudgpu):
    first = cloudgpu("up", "--yes", "-o", "json").json["machine"]
    assert cloudgpu("stop", "--yes").code == 0
    again = cloudgpu("up", "--yes", "-o", "json")
    assert again.code == 0, again.err
    assert (again.json["machine"]["id"], again.json["machine"]["state"]) == (first["id"], "stopped")


def test_a_key_launches_one_machine_once(cloudgpu):
    first = cloudgpu("up", "--yes", "--key", "run-7", "-o", "json").json["machine"]
    assert cloudgpu("up", "--yes", "--key", "run-7", "-o", "json").json["machine"]["id"] == first["id"]
    other = cloudgpu("up", "--yes", "--key", "run-7", "--spot", "-o", "json")
    assert (other.code, other.json["error"]["field"]) == (2, "--key")
    assert cloudgpu("down", "--yes").code == 0
    ended = cloudgpu("up", "--yes", "--key", "run-7", "-o", "json")
    assert (ended.code, ended.json["error"]["field"]) == (2, "--key")


def test_two_ups_at_once_with_one_key_make_one_machine(cloudgpu):
    both = [cloudgpu.start("up", "--yes", "--key", "twin", "-o", "json") for _ in range(2)]
    answers = [process.communicate(timeout=60) for process in both]
    assert [process.returncode for process in both] == [0, 0], answers
    found = [json.loads(out) for out, _ in answers]
    assert len({answer["machine"]["id"] for answer in found}) == 1
    assert sorted(answer["found"] for answer in found) == [False, True]
    assert len(cloudgpu.machines()) == 1


def test_a_dry_run_does_nothing(cloudgpu):
    plan = cloudgpu("up", "--dry-run", "-o", "json")
    assert plan.code == 0
    assert plan.json["plan"]["price"]["as_of"]
    assert not cloudgpu.home.exists() or not any(path.is_file() for path in cloudgpu.home.rglob("*"))
    text = cloudgpu("up", "--dry-run").out
    assert len(text.splitlines()) <= 8
    for word in ("what", "where", "price", "ends", "cost", "ended by"):
        assert f"  {word}" in text
    text = cloudgpu("up", "--dry-run", "-v").out
    for word in ("price", "lease", "cost", "stop", "where"):
        assert f"  {word}" in text


def test_what_spends_or_destroys_needs_yes_without_a_terminal(cloudgpu):
    assert cloudgpu("up").code == 2
    assert cloudgpu.machines() == []
    assert cloudgpu("up", "--yes", "--name", "amber-fox").code == 0
    for verb in (["stop"], ["down"], ["extend", "amber-fox", "1h"], ["hold", "amber-fox", "1h"]):
        refused = cloudgpu(*verb, "-o", "json")
        assert (refused.code, refused.json["error"]["field"]) == (2, "--yes"), verb
    assert cloudgpu.machines()[0]["state"] == "running"


def test_extend_and_hold_reach_the_machine(cloudgpu):
    before = cloudgpu("up", "--yes", "--name", "amber-fox", "--lease", "1h", "-o", "json").json["machine"]
    after = cloudgpu("extend", "amber-fox", "2h", "--yes", "-o", "json").json
    assert after["expires"] > before["expires"]
    held = cloudgpu("hold", "amber-fox", "3h", "--yes", "-o", "json").json
    assert held["held_until"]
    seen = cloudgpu("show", "amber-fox", "--refresh", "-o", "json").json
    assert (seen["expires"], seen["held_until"]) == (after["expires"], held["held_until"])
    agent = ("exec", "amber-fox", "--", "sh", "-c", '"$HOME/.cloudgpu/agent" status')
    assert until(lambda: json.loads(cloudgpu(*agent).out)["hold_until"]), "the agent never saw the hold"
    assert cloudgpu("hold", "amber-fox", "--release", "-o", "json").json["held_until"] is None


def test_cp_goes_both_ways(cloudgpu, tmp_path):
    (tmp_path / "tree" / "deep").mkdir(parents=True)
    (tmp_path / "tree" / "deep" / "data.bin").write_bytes(os.urandom(300_000))
    assert cloudgpu("up", "--yes", "--name", "amber-fox").code == 0
    sent = cloudgpu("cp", str(tmp_path / "tree"), "amber-fox:", "-o", "json")
    assert sent.code == 0, sent.err
    back = cloudgpu("cp", "amber-fox:tree/deep/data.bin", str(tmp_path / "back.bin"))
    assert back.code == 0, back.err
    assert (tmp_path / "back.bin").read_bytes() == (tmp_path / "tree" / "deep" / "data.bin").read_bytes()


@pytest.mark.skipif(shutil.which("ssh") is None, reason="the system's ssh is not installed")
def test_the_systems_ssh_works_with_ours_and_with_the_included_config(cloudgpu):
    assert cloudgpu("up", "--yes", "--name", "amber-fox").code == 0
    ours = cloudgpu("ssh", "amber-fox", "echo $((6*7))")
    assert (ours.code, ours.out) == (0, "42\n"), ours.err
    config = cloudgpu.home / "ssh_config"
    assert stat.S_IMODE(config.stat().st_mode) == 0o600
    plain = subprocess.run(["ssh", "-F", str(config), "amber-fox", "exit 5"], capture_output=True, check=False)
    assert plain.returncode == 5


def test_show_tells_the_history(cloudgpu):
    assert cloudgpu("up", "--yes", "--name", "amber-fox").code == 0
    assert cloudgpu("down", "--yes").code == 0
    kinds = [line["kind"] for line in cloudgpu("show", "amber-fox", "--history", "-o", "json").json["history"]]
    assert kinds[:2] == ["launch_intended", "launch_settled"]
    assert kinds[-1] == "instance_vanished"
    assert "terminate_requested" in kinds


def test_a_machine_that_is_gone_is_said_to_be_gone(cloudgpu):
    assert cloudgpu("up", "--yes", "--name", "amber-fox").code == 0
    assert cloudgpu("down", "--yes").code == 0
    assert cloudgpu("down", "amber-fox", "--yes").code == 0
    gone = cloudgpu("stop", "amber-fox", "--yes", "-o", "json")
    assert (gone.code, gone.json["error"]["kind"]) == (7, "not_found")
