"""Why a real machine counts as what it does, by the command line: the agent, SSH, the samples kept here, a replay."""

from __future__ import annotations

import time

SIGNALS = {"terminal input", "terminal output", "kernel", "busy kernel", "start"}


def asked(cloudgpu):
    """Ask until the agent has looked for the first time."""
    deadline = time.monotonic() + 60
    while True:
        value = cloudgpu("show", "box", "--why", "--refresh", "-o", "json").json["why"]
        if value["source"]["at"] or time.monotonic() > deadline:
            return value
        time.sleep(0.2)


def test_a_real_machine_says_what_it_does_and_a_replay_knows_that_nothing_is_known_yet(cloudgpu):
    assert cloudgpu("up", "--yes", "--name", "box").code == 0
    unasked = cloudgpu("show", "--why")
    assert (unasked.code, unasked.err) == (0, "")
    assert "cloudgpu show box --why --refresh" in " ".join(unasked.out.split())
    value = asked(cloudgpu)
    assert value["source"]["error"] == ""
    assert {one["what"] for one in value["signals"]} >= SIGNALS
    assert value["decision"]["do"] == "keep"
    replayed = cloudgpu("policy", "backtest", "default", "-o", "json").json
    assert (replayed["unsampled_share"], replayed["ends"]) == (1, 0)
    history = cloudgpu("show", "box", "--history")
    assert "the launch is accepted" in history.out
    assert all(len(line) <= 80 or len(line.split()) == 1 for line in history.out.splitlines())  # a path stays whole
    assert cloudgpu("down", "--yes").code == 0


def test_what_cannot_be_replayed_is_refused(cloudgpu):
    near = cloudgpu("policy", "backtest", "defualt")
    assert near.code == 2
    assert "did you mean 'default'?" in near.err
