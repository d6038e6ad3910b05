"""`cloudgpu spot serve` through a pipe of its own process: lines in, lines out, little imported."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.cli.program import Program
from tests.cli.test_hot_path import HEAVY

JOB = {
    "total_work_h": 2.0,
    "deadline_h": 3.0,
    "tick_h": 0.25,
    "changeover_h": 0.1,
    "price_spot": 1.0,
    "price_on_demand": 3.0,
}
UP = [1, 1, 0, 0, 1, 1, 1, 0, 1, 1, 1, 1]

CHILD = """
import json, sys
from cloudgpu.cli.app import run
code = run(sys.argv[1:])
json.dump({"code": code, "modules": sorted(sys.modules)}, sys.stderr)
"""


@pytest.fixture
def serving(tmp_path):
    """A process that serves a policy; asked one line, it answers one."""
    program = Program(tmp_path / "home")
    process = program.start("spot", "serve", "uniform-progress", stdin=subprocess.PIPE)

    def ask(line):
        process.stdin.write((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n")
        process.stdin.flush()
        return json.loads(process.stdout.readline())

    yield ask
    process.stdin.close()
    assert process.wait(timeout=20) == 0
    assert process.stderr.read() == b""
    assert not program.home.exists()  # neither settings nor a ledger
    process.stdout.close()
    process.stderr.close()


def test_a_whole_job_runs_through_a_pipe_line_by_line(serving):
    assert serving({"op": "reset", "job": JOB}) == {"ok": True}
    work, mode, pending, elapsed = 2.0, "wait", 0.0, 0.0
    for up in UP:
        if mode == "spot" and not up:
            mode, pending = "wait", 0.0
        state = {
            "elapsed_h": elapsed,
            "work_left_h": work,
            "time_left_h": 3.0 - elapsed,
            "spot_available": bool(up),
            "zones_available": None,
            "mode": mode,
            "zone": None,
            "pending_h": pending,
        }
        answer = serving({"op": "decide", "state": state})
        assert answer["zone"] is None
        if answer["action"] != mode and answer["action"] != "wait":
            pending = 0.1
        mode, elapsed = answer["action"], elapsed + 0.25
        assert mode != "spot" or up
        used = 0.25 if mode != "wait" else 0.0
        work, pending = max(0.0, work - max(0.0, used - pending)), max(0.0, pending - used)
    assert work < 1e-6  # in time


def test_a_wrong_line_is_answered_and_the_process_goes_on(serving):
    assert "not JSON" in serving(b"what?")["error"]
    assert "No job has begun" in serving({"op": "decide", "state": {}})["error"]
    assert "not JSON" in serving(b"\xff\xfe")["error"]
    assert serving({"op": "reset", "job": JOB}) == {"ok": True}
    assert "mode null" in serving({"op": "decide", "state": {}})["error"]


def test_a_line_without_anything_has_no_answer(tmp_path):
    done = Program(tmp_path / "home")("spot", "serve", "greedy", stdin=b"\n  \n\r\n")
    assert (done.code, done.out, done.err) == (0, "", "")


def test_a_last_line_without_its_end_is_answered_too(tmp_path):
    done = Program(tmp_path / "home")("spot", "serve", "greedy", stdin=json.dumps({"op": "reset", "job": JOB}).encode())
    assert (done.code, done.json, done.err) == (0, {"ok": True}, "")


def test_little_is_imported_and_no_ledger_and_no_sdk(tmp_path):
    lines = json.dumps({"op": "reset", "job": JOB}) + "\n"
    argv = [sys.executable, "-c", CHILD, "spot", "serve", "uniform-progress"]
    done = subprocess.run(argv, input=lines, capture_output=True, text=True, env=Program(tmp_path).env(), check=True)
    told = json.loads(done.stderr)
    assert (told["code"], json.loads(done.stdout)) == (0, {"ok": True})
    assert not set(HEAVY) & {name.partition(".")[0] for name in told["modules"]}
    rooms = {name.split(".")[1] for name in told["modules"] if name.startswith("cloudgpu.")}
    assert not rooms & {"ledger", "control", "providers", "config", "access"}


def test_an_unknown_policy_is_refused_with_the_known_ones(many, tmp_path):
    done = many.done(Program(tmp_path / "home"), ["spot", "serve", "gready"], tmp_path)
    assert (done.code, done.out) == (2, "")
    assert "There is no spot policy 'gready'; did you mean 'greedy'?" in done.err
    assert "on-demand, greedy, uniform-progress, adaptive" in done.err


def test_a_reader_that_goes_away_ends_it_without_a_word(tmp_path):
    process = Program(tmp_path / "home").start("spot", "serve", "greedy", stdin=subprocess.PIPE)
    process.stdout.close()
    line = json.dumps({"op": "reset", "job": JOB}).encode() + b"\n"
    process.stdin.write(line)
    process.stdin.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(timeout=20) in (1, 141)  # the parser has its own code for it
