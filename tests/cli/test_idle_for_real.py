"""A real machine that nobody uses any more is warned at a real terminal, stopped and proved, by the command line."""

from __future__ import annotations

import pytest

from tests.cli.people import Shell, Site, until

LEASE = "lease: 3h\nrenew_until: 4h\n"
LAUNCH = LEASE + "idle: {do: off}\n"  # what the agent is told: it ends nothing, and leaves that to the passes
USUAL = LEASE + "idle: {after: 1h}\n"
QUICK = LEASE + "idle: {after: 2s, grace: 1s, uptime: 1s, samples: 1, network: 1 GB/s, disk: 1 GB/s}\n"
FETCH = "import urllib.request as u; u.urlretrieve('{url}', 'data')"


def policy(cloudgpu, text):
    file = cloudgpu.home / "policies" / "quick.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


@pytest.fixture
def site():
    made = Site(rate=10_000_000)
    yield made
    made.end()


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


def why(cloudgpu):
    return cloudgpu("show", "box", "--why", "--refresh", "-o", "json").json["why"]


def counting(found):
    return {one["what"] for one in found["signals"] if one["counts"]}


def test_a_download_keeps_it_and_a_quiet_shell_is_warned_then_stopped_and_proved(box, shell, site):
    policy(box, USUAL)
    shell.type(f"python3 -c \"{FETCH.format(url=site.url)}\"; echo ov''er\n")
    found = until(lambda: (said := why(box)) and "network" in counting(said) and said)
    assert (found["activity"], found["decision"]["do"]) == ("ACTIVE", "keep")

    site.end()
    until(lambda: "over" in shell.text)
    policy(box, QUICK)  # by the usual one, those bytes count for an hour
    warned = until(lambda: box("reap", "-o", "json").json["warned"])
    assert [(one["name"], one["rule"], one["how"]) for one in warned] == [("box", "idle", ["ledger", "terminal"])]
    until(lambda: "[cloudgpu] box: idle for" in shell.text)

    done = until(
        lambda: "stopped" in (said := box("reap")).out and said
    )  # it errs for the machine by what a pass takes
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("box: stopped (idle): idle for ")
    (machine,) = box.machines()
    assert (machine["state"], machine["billed"]) == ("stopped", False)
