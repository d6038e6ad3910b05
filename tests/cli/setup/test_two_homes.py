"""Two people with a home each and one ledger, on one computer: nobody speaks for another's machines."""

from __future__ import annotations

import os

import pytest

from tests.cli.conftest import processes_of
from tests.cli.many import QuickProgram
from tests.cli.program import until


@pytest.fixture
def homes(tmp_path, many):
    """Ada and Bob, who share a ledger."""
    (tmp_path / "shared").mkdir()
    ledger = f"sqlite://{tmp_path}/shared/ledger.db"
    made = [QuickProgram(tmp_path / one, {"CLOUDGPU_LEDGER": ledger, "USER": one}, many) for one in ("ada", "bob")]
    yield made
    for one in made:
        one("down", "--all", "--yes", timeout=120)
        assert processes_of(f"{one.home}/") == []


def launched(program, name, *words):
    done = program("up", "--yes", "--name", name, "--template", "bare", *words, timeout=90)
    assert done.code == 0, done.err


def told_of(program, name):
    """Return what the ledger has been told of a machine, as kinds of its lines."""
    return [line["kind"] for line in program("show", name, "--history", "-o", "json").json["history"]]


@pytest.mark.soak
def test_a_stranger_says_nothing_of_a_local_machine_and_is_told_whose_computer_it_runs_on(homes):
    ada, bob = homes
    launched(ada, "amber-fox")
    place = f"{os.uname().nodename} (user root, home {ada.home})".replace("root", ada.machines()[0]["address"]["user"])
    before = told_of(ada, "amber-fox")
    listed = bob("ls", "--refresh", "-o", "json")
    assert (listed.code, [one["state"] for one in listed.json["machines"]]) == (0, ["running"])
    assert listed.json["unanswered"] == []
    (gap,) = listed.json["elsewhere"]
    assert "It is shown as last seen." in " ".join(listed.err.split())
    assert gap["scope"] == place
    assert "not reachable from here: amber-fox is a machine of ada's `local`" in gap["why"]
    assert bob("reap", "-o", "json").code == 8
    for words in "down|stop|start|hold 1h|extend 1h|show --refresh".split("|"):
        verb, *more = words.split()
        yes = ["--yes"] if verb in ("down", "stop", "start", "hold", "extend") else []
        said = bob(verb, "amber-fox", *more, *yes, "-o", "json")
        error = said.json["error"]
        assert (said.code, error["kind"]) == (8, "not_reachable_here"), error
        assert f"amber-fox runs on {place}" in error["message"]
        assert error["next"] == f"Ask ada, or run this on {place}."
    every = bob("down", "--all", "--yes", "-o", "json")
    assert every.code == 8
    assert '"not_reachable_here"' in every.out
    assert bob("exec", "amber-fox", "--", "true").code == 255
    assert bob("tunnel", "amber-fox", "-o", "json").code == 10
    shown = bob("show", "amber-fox", "-o", "json").json
    assert (shown["identity"]["text"], shown["reachable"]) == (place, False)
    assert "not reachable from here" in " ".join(bob("show", "amber-fox").out.split())  # a long path wraps it
    assert [one["reachable"] for one in bob.machines()] == [False]
    assert [one["reachable"] for one in ada.machines()] == [True]
    assert [kind for kind in told_of(ada, "amber-fox") if kind != "decision_made"] == before  # to keep it, for now
    words = ("down", "amber-fox", "--lost", "the computer burned", "--yes", "-o", "json")
    for one, why in ((ada, "can be reached from here"), (bob, "only they may record")):
        refused = one(*words)
        assert (refused.code, refused.json["error"]["field"]) == (2, "--lost")
        assert why in refused.json["error"]["message"]
    elsewhere = QuickProgram(bob.home, {**bob.environ, "USER": "ada"}, bob.many)
    assert [one["name"] for one in elsewhere(*words).json["terminated"]] == ["amber-fox"]
    assert "ada says so: the computer burned" in bob("show", "amber-fox", "--history").out
    assert [one["state"] for one in ada("ls", "--refresh", "-o", "json").json["machines"]] == ["running"]
    assert ada("down", "amber-fox", "--yes").code == 0


@pytest.mark.soak
def test_a_strangers_look_frees_no_money_of_a_budget(homes):
    """The reservation of the first machine stays, so that a second one does not fit beside it."""
    ada, bob = homes
    assert ada("budget", "set", "lab", "--amount", "1", "--period", "month", "--yes").code == 0
    launched(ada, "amber-fox")
    assert bob("reap").code == 8
    assert bob("ls", "--refresh").code == 0
    refused = bob("up", "--yes", "--name", "birch-owl", "--template", "bare", "-o", "json")
    assert (refused.code, refused.json["error"]["kind"]) == (3, "budget_refused")


def test_a_restored_ledger_is_settled_without_a_word_about_others_machines(homes, tmp_path):
    ada, bob = homes
    launched(ada, "amber-fox")
    before = told_of(ada, "amber-fox")
    (bob.home / "ledger").mkdir(parents=True, exist_ok=True)
    assert bob("cost", "--verify", "--yes", "-o", "json").code in (0, 8)
    assert told_of(ada, "amber-fox") == before


def test_ones_own_machine_of_another_home_on_this_computer_is_an_open_question(homes):
    ada, bob = homes
    launched(ada, "amber-fox")
    second = QuickProgram(bob.home, {**bob.environ, "USER": "ada"}, bob.many)
    listed = second("ls", "--refresh", "-o", "json")
    assert (listed.code, listed.json["elsewhere"], len(listed.json["unanswered"])) == (8, [], 1)
    assert [one["state"] for one in listed.json["machines"]] == ["running"]
    assert bob("ls", "--refresh").code == 0


@pytest.mark.soak
def test_a_moved_home_goes_on_with_its_machines(homes):
    ada, _ = homes
    launched(ada, "amber-fox")
    moved = QuickProgram(ada.home.with_name("ada-moved"), ada.environ, ada.many)
    ada.home.rename(moved.home)
    (seen,) = moved("ls", "--refresh", "-o", "json").json["machines"]
    assert seen["state"] == "running"
    assert until(lambda: moved("exec", "amber-fox", "--", "true").code == 0)  # the machine notices within a second
    assert moved("down", "amber-fox", "--yes").code == 0
    assert processes_of(f"{ada.home}/") == []
