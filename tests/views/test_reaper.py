"""A pass as a value and as text: each thing that happened is there once, in words."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from cloudgpu.cli.automation.reap import problems_text, run_text, summary
from cloudgpu.cli.machines.why_text import why_text
from cloudgpu.core.model.identity import QueriedAccount
from cloudgpu.core.policies.policy import ReaperAction, Rule
from cloudgpu.core.reaper.decide import decide
from cloudgpu.core.reaper.decisions import Decision
from cloudgpu.core.reaper.result import ReaperRun
from cloudgpu.views.reaper import run_document
from tests.core.past import TEN
from tests.views.a_pass import NOW, a_pass


def test_a_pass_is_plain_values_with_one_entry_for_each_thing_that_happened():
    value = run_document(a_pass(), explain=True)
    assert json.loads(json.dumps(value)) == value
    lists = ("decisions", "ended", "renewed", "warned", "skipped", "unconfirmed", "unanswered", "errors", "explained")
    assert {key: len(value[key]) for key in lists} == dict.fromkeys(lists, 1)
    assert (value["exit_code"], value["decided"], value["ended"][0]["state"]) == (9, {"warn": 1}, "stopped")


def test_without_explain_nothing_is_explained():
    assert run_document(a_pass())["explained"] == []


def test_what_happened_is_a_line_each_and_what_is_wrong_stands_apart():
    found = a_pass()
    (name,) = (one.name for one in found.decisions)
    assert run_text(found, verbose=False).splitlines() == [
        "fox is gone",
        f"{name}: stopped (idle): idle for 2h",
        f"{name}: renewed (lease): it is in use",
        f"{name}: warned (idle): idle for 2h (by alert and terminal)",
        f"{name}: left, it is in use",
        "1 machine; 1 ended, 1 renewed, 1 warned, 1 left in the end, 1 not proved (2.5 s)",
    ]
    assert problems_text(found).splitlines() == [
        f"{name} may still be billed: its stop was refused",
        "us-east-1 did not answer: it did not answer",
        "No policy is called 'mine'.",
        "An alert was not delivered: mailto-1a2b3c: did not answer.",
    ]


def test_the_gravest_code_counts():
    assert a_pass().exit_code == 9
    assert a_pass(unconfirmed=()).exit_code == 8
    assert a_pass(unconfirmed=(), unanswered=()).exit_code == 8
    assert a_pass(unconfirmed=(), unanswered=(), faults=()).exit_code == 0


def test_a_pass_in_which_nothing_happened_says_nothing_unless_it_is_to():
    found = ReaperRun(NOW)
    assert (run_text(found, verbose=False), problems_text(found)) == ("", "")
    first, *asked = run_text(found, verbose=True).splitlines()
    assert first == summary(found) == "0 machines (0.0 s)"
    assert asked[0].startswith("No cloud was queried")
    (_, said) = run_text(ReaperRun(NOW, queried=(QueriedAccount("lab", "aws"),)), verbose=True).splitlines()
    assert said == "Queried: lab (aws)."


def test_what_would_be_done_is_said_with_the_use_of_what_runs():
    runs, off = (
        Decision("cg-1", "fox", ReaperAction.KEEP, Rule.HOLD, "held", activity="IDLE"),
        Decision("cg-2", "owl", ReaperAction.KEEP, Rule.NONE, "nothing runs there", runs=False),
    )
    told = Decision("cg-3", "elk", ReaperAction.WARN, Rule.NONE, "it is silent")
    found = ReaperRun(NOW, dry_run=True, decisions=(runs, off, told))
    assert run_text(found, verbose=True).splitlines()[:3] == [
        "fox: would be kept (hold): IDLE, held",
        "owl: would be kept: nothing runs there",
        "elk: would be warned: UNKNOWN, it is silent",
    ]


@pytest.mark.parametrize(("state", "runs"), [("running", True), ("stopped", False), ("stopping", False)])
def test_a_decision_says_whether_the_machine_runs(state, runs):
    seen = a_pass().views[0]
    machine = seen.machine._replace(state=state, billed=state == "running")
    (decision,) = decide([replace(seen, machine=machine)], [], NOW, interval=TEN)
    assert (decision.runs, decision.do) == (runs, ReaperAction.WARN if runs else ReaperAction.KEEP)


def test_the_headline_of_what_runs_and_what_does_not_depends_on_no_word_of_the_reason():
    (shown,) = run_document(a_pass(), explain=True)["explained"]
    silent = {**shown, "activity": "UNKNOWN", "why": "it is silent"}
    first, *_ = why_text(silent, NOW).splitlines()
    assert first.endswith(": not known whether it is used (it is silent)")
    first, *_ = why_text({**silent, "running": False, "why": "stopped by hand"}, NOW).splitlines()
    assert first.endswith(": stopped by hand")
