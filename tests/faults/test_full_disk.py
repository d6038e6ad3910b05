"""A full disk under CLOUDGPU_HOME: a sentence, an exit code, nothing left running; `down` works all the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from datetime import datetime

import pytest

from cloudgpu.testing import FAKE, write_plugin
from tests.cli.program import until
from tests.faults.disk import make_disk
from tests.faults.said import check_document, check_said
from tests.soak.crash import machine_processes, processes_of

ROOMY_K = 700
# From no room for a directory to enough for a whole launch: each falls over another file.
LEVELS = (0, 80, 200)
MORE = (16, 60, 130, 160, 180, 190, 210, 220, 240)
# 2: a file that is not the ledger's, named; 4: no room for the machine; 8: the ledger or the saved call.
REFUSED = (2, 4, 8)


@pytest.fixture
def disk(tmp_path):
    made = make_disk(tmp_path / "disk")
    yield made
    made.leave_free(ROOMY_K)
    made.program("ls", "--refresh")
    made.program("down", "--all", "--yes")
    left = processes_of(made.program.home)
    for process in left:
        process.kill()
    made.close()
    assert left == []


@pytest.mark.parametrize("kib", [*LEVELS, *(pytest.param(kib, marks=pytest.mark.soak) for kib in MORE)])
def test_a_launch_on_a_full_disk_is_refused_in_one_sentence_and_leaves_nothing_running(disk, kib):
    disk.leave_free(kib)
    up = disk.program("up", "--yes")
    if up.code == 0:
        assert kib >= 130, "so little room is not enough for a launch"
    else:
        assert check_said(up, *REFUSED)
        assert machine_processes(disk.program.home) == []
    down = disk.program("down", "--all", "--yes")
    if down.code != 0:  # each of what it says stands below the machine's name, where it ended one
        assert down.code in (2, 8)
        nothing, left = ["never was one", "Nothing was ever launched"], ["nothing of it is left", "were not checked"]
        known = nothing if down.code == 2 else left
        assert any(words in down.err for words in known), down.err
    assert processes_of(disk.program.home) == []
    disk.leave_free(ROOMY_K)
    assert disk.program("ls", "--refresh").code == 0
    assert disk.program.machines() == []
    again = disk.program("up", "--yes", "--no-wait", "-o", "json")
    assert again.code == 0, again.err


@pytest.mark.soak
def test_down_ends_the_machine_first_and_tells_the_ledger_as_soon_as_that_has_made_room(disk):
    assert disk.program("up", "--yes", "--name", "amber-fox").code == 0
    disk.leave_free(0)
    assert disk.program("ls").code == 0
    down = disk.program("down", "amber-fox", "--yes", "-o", "json")
    if down.code:  # what was on the machine's own disk was not enough room
        error = check_document(down, 8)
        assert error["kind"] == "ledger_unavailable"
        assert "amber-fox was ended and nothing of it is left" in error["message"]
        assert "ls --refresh" in error["next"]
    assert processes_of(disk.program.home) == []
    disk.leave_free(ROOMY_K)
    assert disk.program("ls", *(["--refresh"] if down.code else [])).code == 0
    assert disk.program.machines() == []
    kinds = [line["kind"] for line in disk.program("show", "amber-fox", "--history", "-o", "json").json["history"]]
    assert kinds[-1] == "instance_vanished"
    assert down.code or "terminate_requested" in kinds


def test_down_all_ends_a_machine_though_the_look_before_it_cannot_be_written(disk):
    assert disk.program("up", "--yes", "--no-wait").code == 0
    disk.leave_free(0)
    down = disk.program("down", "--all", "--yes")
    assert down.code == 8, down.err
    assert "The accounts were not checked for other machines" in down.err
    assert processes_of(disk.program.home) == []


@pytest.mark.parametrize("kib", [0, *(pytest.param(kib, marks=pytest.mark.soak) for kib in (4, 8, 16, 32, 48, 64))])
def test_a_stop_on_a_full_disk_stops_and_says_what_could_not_be_written(disk, kib):
    assert disk.program("up", "--yes", "--name", "amber-fox").code == 0
    disk.leave_free(kib)
    done = disk.program("stop", "amber-fox", "--yes", "-o", "json")
    if kib < 48 or done.code:
        error = check_document(done, 8)
        assert error["field"] == "ledger"
        assert "amber-fox is stopped and not billed, but the ledger does not know it yet" in error["message"]
        assert "the disk is full" in error["message"]
        assert "Free some space" in error["next"]
    assert processes_of(disk.program.home) == [], "it does not run on"
    disk.leave_free(ROOMY_K)
    assert disk.program("ls", "--refresh").code == 0
    (machine,) = disk.program.machines()
    assert (machine["state"], machine["billed"]) == ("stopped", False)
    assert disk.program("start", "amber-fox", "--yes", "--no-wait").code == 0


@pytest.mark.parametrize("verb", [("stop", "amber-fox", "--yes"), ("down", "amber-fox", "--yes"), ("reap",)])
@pytest.mark.parametrize("kib", [0, pytest.param(24, marks=pytest.mark.soak)])
def test_what_ends_a_machine_of_a_cloud_goes_on_with_a_full_disk_and_the_next_look_writes_it(tmp_path, verb, kib):
    cloud = tmp_path / "cloud.json"
    disk = _disk_with_fake_cloud(tmp_path, cloud)
    up = ("up", "--provider", "fake", "--gpu", "v100", "--name", "amber-fox", "--yes", "--no-wait")
    try:
        assert disk.program(*up, "--lease", "1s", "--renew-until", "1s").code == 0
        (machine,) = disk.program.machines()
        due = datetime.fromisoformat(machine["renew_until"]).timestamp()
        disk.leave_free(kib)
        until(lambda: time.time() > due)
        done = disk.program(*verb)
        assert done.code == 8, done.err
        assert "disk is full" in " ".join(done.err.split())
        (machine,) = json.loads(cloud.read_text())["machines"]
        assert machine["requested"] in ("stopped", "terminated"), done.err
        disk.leave_free(ROOMY_K)
        assert disk.program("ls", "--refresh").code == 0
        assert [one["billed"] for one in disk.program.machines()] in ([], [False])
    finally:
        disk.close()


@pytest.mark.parametrize(
    "verb",
    [
        pytest.param(("stop", "amber-fox", "--yes"), marks=pytest.mark.soak),
        ("down", "amber-fox", "--yes"),
        ("reap",),
    ],
)
def test_a_ledger_on_a_server_is_told_of_an_end_though_this_computer_has_no_room_for_a_file(tmp_path, postgres, verb):
    cloud = tmp_path / "cloud.json"
    disk = _disk_with_fake_cloud(tmp_path, cloud)
    disk.program.environ |= {"CLOUDGPU_LEDGER": postgres.schema()}
    up = ("up", "--provider", "fake", "--gpu", "v100", "--name", "amber-fox", "--yes", "--no-wait")
    try:
        assert disk.program(*up, "--lease", "1s", "--renew-until", "1s").code == 0
        (machine,) = disk.program.machines()
        due = datetime.fromisoformat(machine["renew_until"]).timestamp()
        disk.leave_free(0)
        disk.leave_no_file()
        until(lambda: time.time() > due)
        done = disk.program(*verb)
        assert done.code == 0, done.err
        history = disk.program("show", "amber-fox", "--history", "-o", "json").json["history"]
        assert [line["kind"] for line in history][-2:] in (
            ["stop_requested", "instance_observed"],
            ["terminate_requested", "instance_observed"],
        )
        assert history[-1]["body"]["billed"] is False
    finally:
        disk.close()


def _disk_with_fake_cloud(tmp_path, cloud):
    plugin = write_plugin(tmp_path / "plugin", {"fake": FAKE})
    disk = make_disk(tmp_path / "disk")
    disk.program.environ |= {"PYTHONPATH": os.pathsep.join([*sys.path, str(plugin)])}
    text = f'[accounts.lab]\nprovider = "fake"\nstate_file = "{cloud}"\nlacks = ["HasTimer"]\n'
    write = 'mkdir -p "$1"; printf %s "$2" > "$1/config.toml"'
    subprocess.run([*disk.before, "sh", "-c", write, "sh", str(disk.program.home), text], check=True)
    return disk
