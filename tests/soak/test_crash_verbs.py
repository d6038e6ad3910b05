"""`stop`, `start`, `down`, a machine's own start-up and Jupyter's, killed at every write and send of theirs."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from cloudgpu.access.jupyter.client import program as jupyter_program
from cloudgpu.providers.local.build import MODULE, _environ
from cloudgpu.providers.local.layout import Layout, hold_lifetime_lock
from cloudgpu.providers.local.processes import MARKER_VARIABLE
from tests.soak.crash import (
    FORKS,
    Life,
    calls_of,
    check_each,
    needs_strace,
    point_at,
    points_of,
    processes_of,
    strace,
    words_of,
)

CHUNKS = 2
JUPYTER_POINTS = 5  # a start of Jupyter takes four seconds
pytestmark = [pytest.mark.soak, pytest.mark.timeout(900), needs_strace]
VERBS = {"stop": ("stop", "--yes"), "start": ("start", "--yes", "--no-wait"), "down": ("down", "--yes")}


@pytest.fixture
def life(tmp_path):
    made = Life(tmp_path / "home")
    yield made
    made.end()


def ready_for(verb, life):
    life.launch()
    if verb == "start":
        life.done("stop", "--yes")


@pytest.mark.parametrize("chunk", range(CHUNKS))
@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_killed_anywhere_leaves_one_known_machine_at_most(life, verb, chunk):
    ready_for(verb, life)
    calls = life.counted(*VERBS[verb])
    life.check_down_leaves_nothing()
    points = points_of(calls)[chunk::CHUNKS]

    def case(point):
        try:
            ready_for(verb, life)
            died = life.traced(*VERBS[verb], at=point)
            life.check_after_a_kill(machine_expected=verb != "down")
        finally:
            life.end()
        return died

    # what a wait polls differs from run to run, so the last points may lie beyond the end
    assert check_each(points, case) >= 0.8 * len(points)


def accepted_but_not_begun(life):
    """Kill `up` just before it starts the machine's process, its last one; return that machine."""
    if not hasattr(life, "spawning"):
        calls = life.counted("up", "--yes", "--no-wait")
        forks = [number for number, call in enumerate(calls, 1) if call.partition(" ")[0] in FORKS]
        life.spawning = point_at(calls, forks[-1])
        life.check_down_leaves_nothing()
    assert life.traced("up", "--yes", "--no-wait", at=life.spawning)
    (root,) = life.directories()
    return Layout(root)


def begin(layout, log, at):
    """Start the machine's process as the provider does, under strace."""
    descriptor = hold_lifetime_lock(layout)
    environ = _environ(layout)
    mark = environ.pop(MARKER_VARIABLE)  # strace itself is no process of the machine
    words = [sys.executable, "-P", "-m", MODULE, str(layout.root), "--alive", str(descriptor)]
    traced = strace(words, log, at=at)
    traced[1:1] = ["-E", f"{MARKER_VARIABLE}={mark}"]
    try:
        return subprocess.Popen(
            traced,
            env=environ,
            cwd=layout.home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[descriptor],
        )
    finally:
        os.close(descriptor)


def test_a_machine_killed_anywhere_in_its_own_start_up_is_known_and_can_be_ended(life):
    layout = accepted_but_not_begun(life)
    process = begin(layout, life.log, None)
    life.wait(lambda: layout.run.exists() and '"on_start": {' in layout.run.read_text())
    points = points_of(calls_of(life.log))
    life.check_down_leaves_nothing()
    process.wait(20)
    assert len(points) > 3, points

    def case(point):
        try:
            process = begin(accepted_but_not_begun(life), life.log, point)
            life.wait(lambda: process.poll() is not None or '"on_start": {' in _run_of(life))
            died = process.poll() is not None
            life.check_after_a_kill(machine_expected=True)
            process.wait(20)
        finally:
            life.end()
        return died

    assert check_each(points, case) >= 0.5 * len(points)  # while it looks around, some calls come in another order


def _run_of(life):
    found = [root / "run.json" for root in life.directories()]
    return found[0].read_text() if found and found[0].exists() else ""


def start_jupyter(life, name, *, at=None, trace=False):
    """Do what `tunnel` does first, on the machine; return (status, answer)."""
    ask = ["python", "-", "ensure", "--wait", "60"]
    words = ["sh", "-c", '"$HOME"/.cloudgpu/agent "$@"', "sh", *ask]
    if at or trace:
        words[2] = " ".join([*strace([], life.home.parent / "jupyter.calls", at=at), '"$HOME"/.cloudgpu/agent', '"$@"'])
    done = life.program("exec", name, "--", *words, stdin=jupyter_program(), timeout=90)
    return done.code, json.loads(done.out) if done.code == 0 else done.err


def jupyters(life):
    return [one for one in processes_of(life.home) if "jupyterlab" in words_of(one)]


def test_jupyters_start_killed_anywhere_is_finished_by_the_next(life):
    life.launch()
    name = life.done("ls")["machines"][0]["name"]
    code, answer = start_jupyter(life, name, trace=True)
    assert code == 0, answer
    points = points_of(calls_of(life.home.parent / "jupyter.calls"))
    life.check_down_leaves_nothing()
    died = 0
    for point in points[:: max(1, len(points) // JUPYTER_POINTS)]:
        life.launch()
        name = life.done("ls")["machines"][0]["name"]
        code, _ = start_jupyter(life, name, at=point)
        died += code != 0
        code, answer = start_jupyter(life, name)
        assert code == 0, (point, answer)
        assert len(jupyters(life)) == 1, (point, jupyters(life))
        life.check_after_a_kill(machine_expected=True)
    assert died >= 2
