"""Whether real machines are in use: a busy kernel, an idle one in a browser, a download, a top, a dead agent."""

from __future__ import annotations

import json
import os
import signal
import threading
from http.client import HTTPConnection

import pytest

from cloudgpu.access.jupyter.notebook import run_cell
from tests.cli.conftest import chromium, cloudgpu, many  # noqa: F401  (fixtures)
from tests.cli.people import Browser, Shell, Site, until

pytestmark = [pytest.mark.soak, pytest.mark.browser]

LEASE = "lease: 3h\nrenew_until: 4h\n"
LAUNCH = LEASE + "idle: {do: off}\n"  # what the agents are told: they end nothing, and leave that to the passes
# Only the last 20 seconds count, and a look within them will do: an agent here looks every 5, on a busy computer later.
QUICK = LEASE + "idle: {after: 20s, grace: 5s, uptime: 1s, samples: 1}\n"
NAMES = ("lab", "desk", "dead")
WAITS = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.1)"
FETCH = "import urllib.request as u; u.urlretrieve('{url}', 'data')"
LONG = 200


class House:
    """Three machines; their policy is a stricter one by now than what their agents were told."""

    def __init__(self, program):
        self.run = program
        policies = program.home / "policies"
        policies.mkdir(parents=True)
        (policies / "quick.yaml").write_text(LAUNCH)
        for name in NAMES:
            up = program("up", "--yes", "--name", name, "--new", "--policy", "quick", "--template", "jupyter")
            assert up.code == 0, up.err
        (policies / "quick.yaml").write_text(QUICK)

    def why(self, name):
        return self.run("show", name, "--why", "--refresh", "-o", "json").json["why"]

    def judged(self, name, activity, what):
        """Wait until it counts as that, because of `what`; return all that is said of it."""

        said = []

        def found():
            why = self.why(name)
            said[:] = [why["activity"], why["why"], *counting(why)]
            return activity == said[0] and any(what in one for one in said[1:]) and why

        return until(found, within_s=LONG, pause=1, said=said)

    def reap(self):
        done = self.run("reap", "-o", "json")
        return done.json | {"code": done.code, "err": done.err}


def counting(why):
    return [one["what"] for one in why["signals"] if one["active"]]


class Jupyter:
    """A machine's JupyterLab, through our tunnel."""

    def __init__(self, program, name):
        started = program("tunnel", name, "--background", "-o", "json", timeout=LONG)
        assert started.code == 0, started.err
        self.port, self.token = started.json["port"], started.json["url"].rpartition("token=")[2]

    def page_of(self, notebook):
        return f"http://127.0.0.1:{self.port}/lab/tree/{notebook}?token={self.token}"

    def kernels(self):
        link = HTTPConnection("127.0.0.1", self.port, timeout=20)
        link.request("GET", "/api/kernels", headers={"Authorization": f"token {self.token}"})
        found = json.loads(link.getresponse().read())
        link.close()
        return found


@pytest.fixture
def house(cloudgpu):  # noqa: F811
    return House(cloudgpu)


@pytest.fixture
def people(house, chromium, tmp_path):  # noqa: F811
    """Somebody at a terminal of `desk`, and somebody with a notebook of `lab` in a browser."""
    shell = Shell(house.run, "desk")
    jupyter = Jupyter(house.run, "lab")
    browser = Browser(chromium, jupyter.page_of("hello.ipynb"), tmp_path / "profile")
    yield shell, jupyter
    browser.end()
    shell.end()


@pytest.fixture
def site():
    made = Site(rate=2_000_000)
    yield made
    made.end()


def agent_of(house, name):
    """The process number of a machine's agent, as it says it."""
    read = ("exec", name, "--", "cat", ".cloudgpu/heartbeat.json")
    return json.loads(until(lambda: house.run(*read).out))["pid"]


@pytest.mark.timeout(900)
def test_each_real_machine_is_judged_rightly_and_the_idle_one_is_warned_stopped_and_proved(house, people, site):
    shell, jupyter = people
    cell = threading.Thread(target=run_cell, args=(jupyter.port, jupyter.token, WAITS), kwargs={"timeout_s": LONG})
    cell.start()
    shell.type("top -d 1\n")
    fetch = f'nohup python3 -c "{FETCH.format(url=site.url)}" >/dev/null 2>&1 &'
    assert house.run("exec", "dead", "--", "sh", "-c", fetch).code == 0

    # in use: a download; a kernel at work, whatever the GPU does; a top that was left open, long after the last key
    assert house.judged("dead", "ACTIVE", "network")["decision"]["do"] == "keep"
    site.end()
    os.kill(agent_of(house, "dead"), signal.SIGSTOP)
    found = house.judged("lab", "ACTIVE", "busy kernel")
    assert found["decision"]["do"] == "keep"
    assert house.run("exec", "lab", "--", "touch", "go").code == 0
    cell.join()
    found = until(lambda: counting(why := house.why("desk")) == ["terminal output"] and why, within_s=LONG, pause=1)
    assert (found["activity"], found["decision"]["do"]) == ("ACTIVE", "keep")
    shell.type("q")

    # not known: an agent that is frozen; a machine's first minute needs no samples
    found = house.judged("dead", "UNKNOWN", "the agent is silent")
    assert found["decision"]["do"] == "keep"

    # idle: a quiet shell, and a kernel that does nothing, to which a browser is connected
    house.judged("desk", "IDLE", "terminal")
    found = house.judged("lab", "IDLE", " ago")  # its last sign: the kernel, or the disk that JupyterLab wrote after it
    kernel = next(one for one in found["signals"] if one["what"] == "kernel")
    assert (kernel["ago_s"] > 0, kernel["active"]) == (True, False)
    assert [one["execution_state"] for one in jupyter.kernels()] == ["idle", "idle"]
    assert any(one["connections"] for one in jupyter.kernels()), "no browser is connected"

    # the idle ones are warned, one of them at its terminal; a key that is pressed in the grace spares that one
    warned, ended = {}, {}

    def passed():
        found = house.reap()
        assert (found["code"], found["err"], found["unconfirmed"]) == (0, "", [])
        warned.update({one["name"]: one["how"] for one in found["warned"]})
        ended.update({one["name"]: (one["rule"], one["state"]) for one in found["ended"]})

    until(lambda: passed() or len(warned) > 1, within_s=LONG)
    assert warned == {"lab": ["ledger"], "desk": ["ledger", "terminal"]}
    until(lambda: "[cloudgpu] desk: idle for" in shell.text)
    until(lambda: shell.type("\n") or passed() or ended, within_s=LONG)
    assert ended == {"lab": ("idle", "stopped")}
    now = {one["name"]: (one["state"], one["billed"]) for one in house.run.machines()}
    assert now == {"lab": ("stopped", False), "desk": ("running", True), "dead": ("running", True)}
    lines = house.run("show", "lab", "--history").out
    assert "decided to stop it (idle)" in lines
