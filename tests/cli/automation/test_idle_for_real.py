"""A real machine that nobody uses any more is warned at a real terminal, stopped and proved, by the command line."""

from __future__ import annotations

import pytest

from tests.cli.people import Shell, until

LEASE = "lease: 3h\nrenew_until: 4h\n"
LAUNCH = LEASE + "idle: {do: off}\n"  # what the agent is told: it ends nothing, and leaves that to the passes
QUICK = LEASE + "idle: {after: 2s, grace: 1s, uptime: 1s, samples: 1}\n"


def policy(cloudgpu, text):
    file = cloudgpu.home / "policies" / "quick.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


@pytest.fixture
def box(cloudgpu):
    """A machine whose policy is a stricter one by now: passes go by that."""
    policy(cloudgpu, LAUNCH)
    up = cloudgpu("up", "--yes", "--name", "box", "--policy", "quick")
    assert up.code == 0, up.err
    return cloudgpu


@pytest.fixture
def shell(box):
    made = Shell(box, "box")
    made.type("echo he''re\n")
    until(lambda: "here" in made.text)
    yield made
    made.end()


def test_a_quiet_shell_is_warned_at_its_terminal_and_the_machine_stopped_and_proved(box, shell):
    policy(box, QUICK)
    warned = until(lambda: box("reap", "-o", "json").json["warned"])
    assert [(one["name"], one["rule"], one["how"]) for one in warned] == [("box", "idle", ["ledger", "terminal"])]
    until(lambda: "[cloudgpu] box: idle for" in shell.text)

    # A pass takes what is as old as itself for use since the warning, and then warns anew.
    done = until(lambda: "stopped" in (said := box("reap")).out and said)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("box: stopped (idle): idle for ")
    (machine,) = box.machines()
    assert (machine["state"], machine["billed"]) == ("stopped", False)
