"""A ledger that is old, cut, garbage or gone; a clock that is wrong; a home that cannot be written to."""

from __future__ import annotations

import os
import shutil
from datetime import UTC, datetime, timedelta

import pytest

from cloudgpu.control.lifecycle.lifecycle import terminate_one
from cloudgpu.control.outage.opening import open_session
from cloudgpu.control.setup.ledger_admin import settle_ledger
from cloudgpu.errors import LedgerUnavailable
from tests.cli.program import Program
from tests.faults.said import check_document, check_said
from tests.soak.crash import processes_of

DAMAGES = {
    "garbage": lambda file: file.write_bytes(os.urandom(30_000)),
    "cut": lambda file: os.truncate(file, 9_000),
    "empty": lambda file: os.truncate(file, 0),
    "missing": lambda file: file.unlink(),
}


@pytest.fixture
def fox(cloudgpu):
    assert cloudgpu("up", "--yes", "--no-wait", "--name", "amber-fox").code == 0
    return cloudgpu


def file_of(program):
    return program.home / "ledger" / "ledger.db"


def put_back(program, copy):
    for old in file_of(program).parent.glob("ledger.db*"):
        old.unlink()
    shutil.copy(copy, file_of(program))


@pytest.mark.soak
def test_an_old_copy_of_the_ledger_is_noticed_until_it_is_settled(fox, tmp_path):
    shutil.copy(file_of(fox), tmp_path / "old.db")
    assert fox("up", "--yes", "--no-wait", "--new", "--name", "loyal-jay").code == 0
    put_back(fox, tmp_path / "old.db")
    refused = check_document(fox("up", "--yes", "--new", "-o", "json"), 8)
    assert "cost --verify --yes" in refused["next"]
    assert [row["name"] for row in fox.machines()] == ["amber-fox"]
    assert fox("stop", "amber-fox", "--yes").code == 0
    assert check_said(fox("start", "amber-fox", "--yes"), 8)
    assert fox("down", "amber-fox", "--yes").code == 0
    assert check_said(fox("up", "--yes", "--new"), 8), "lines that were appended since do not end the doubt"
    assert check_document(fox("cost", "--verify", "-o", "json"), 2)["field"] == "--yes"
    settled = fox("cost", "--verify", "--yes", "-o", "json")
    assert (settled.code, settled.json["settled"]) == (0, True), settled.err
    assert [row["name"] for row in fox.machines()] == ["loyal-jay"]
    assert fox("up", "--yes", "--no-wait", "--new", "--name", "third-owl").code == 0


LONG = ("garbage", "empty")


@pytest.mark.parametrize(
    "damage", [pytest.param(damage, marks=pytest.mark.soak if damage in LONG else ()) for damage in DAMAGES]
)
def test_a_damaged_ledger_is_said_and_its_machine_is_found_again(fox, damage):
    file = file_of(fox)
    DAMAGES[damage](file)
    for words in (("up", "--yes", "--new"), ("ls",), ("cost",)):
        assert str(file) in check_said(fox(*words), 8), words
    stopped = fox("stop", "amber-fox", "--yes")  # what ends a bill goes on
    assert (stopped.code, str(file) in stopped.err) == (8, True), stopped.err
    assert "Wait until" not in stopped.err, "it does not come back by itself"
    if damage in ("garbage", "cut"):
        assert "Move the damaged file away, then restore a backup" in " ".join(stopped.err.split())
    assert check_document(fox("ls", "--refresh", "-o", "json"), 8)["field"] == "ledger"
    if damage in ("garbage", "cut"):
        file.rename(file.with_suffix(".broken"))  # what the sentence says is to be done
    settled = fox("cost", "--verify", "--yes")
    assert settled.code == 0, settled.err
    assert [row["name"] for row in fox.machines()] == ["amber-fox"]
    assert fox("down", "--all", "--yes").code == 0
    assert processes_of(fox.home) == []


def environ(program):
    return {"CLOUDGPU_HOME": str(program.home)}


@pytest.mark.soak
def test_a_clock_far_in_the_past_refuses_launches_only(fox):
    long_ago = datetime.now(UTC) - timedelta(days=4000)
    session = open_session(environ(fox), clock=lambda: long_ago)
    with pytest.raises(LedgerUnavailable, match="clock says") as refused:
        session.check_launchable()
    assert "cost --verify" in refused.value.next
    row = terminate_one(session, session.find("amber-fox"), why="asked")
    assert row.terminated_at
    session.ledger.close()
    assert processes_of(fox.home) == []


@pytest.mark.soak
def test_a_clock_that_was_ahead_is_settled(cloudgpu):
    ahead = datetime.now(UTC) + timedelta(days=400)
    session = open_session(environ(cloudgpu), clock=lambda: ahead)
    settle_ledger(session, "made in a test")
    session.ledger.close()
    assert "clock says" in check_said(cloudgpu("up", "--yes", "--no-wait"), 8)
    settled = cloudgpu("cost", "--verify", "--yes")
    assert settled.code == 0, settled.err
    assert cloudgpu("up", "--yes", "--no-wait").code == 0


def test_a_home_that_is_a_file_is_said(cloudgpu):
    cloudgpu.home.write_text("in the way")
    for verb in (("up", "--yes"), ("ls",), ("down", "--all", "--yes"), ("cost",), ("stop", "--yes")):
        assert str(cloudgpu.home) in check_said(cloudgpu(*verb), 2), verb
    assert check_document(cloudgpu("ls", "-o", "json"), 2)["value"] == str(cloudgpu.home)


class WithoutRights(Program):
    """The program without the rights that root has over files that forbid writing."""

    def argv(self, *args):
        drop = "-dac_override,-dac_read_search,-fowner"
        given_up = ["setpriv", f"--bounding-set={drop}", f"--inh-caps={drop}"] if os.geteuid() == 0 else []
        return [*given_up, *super().argv(*args)]


@pytest.mark.soak
@pytest.mark.skipif(os.geteuid() == 0 and shutil.which("setpriv") is None, reason="root cannot give up its rights here")
def test_a_home_that_may_not_be_written_to_is_said(cloudgpu):
    cloudgpu.home.mkdir(mode=0o500)
    program = WithoutRights(cloudgpu.home)
    assert str(program.home) in check_said(program("up", "--yes"), 2, 6, 8)
    assert program("ls").code == 0
    assert "never was one" in check_said(program("down", "--all", "--yes"), 2)
    assert check_document(program("up", "--yes", "-o", "json"), 2, 6, 8)
    cloudgpu.home.chmod(0o700)
