"""Machines that end by themselves: timer, lease, interruption, from inside, by accident."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import cloudgpu
from cloudgpu.agent import program
from cloudgpu.core.model.instances import State
from cloudgpu.core.values.times import epoch_text
from cloudgpu.errors import InvalidRequest
from cloudgpu.providers.local.processes import wait_for
from tests.providers.local.cloud import PATIENCE_S, now, processes_under, words_of

AT_ONCE_DEAD = "raise SystemExit(1)\n"


@pytest.mark.soak
def test_the_timer_ends_a_machine_whose_agent_does_nothing(cloud):
    machine = cloud.running(lease=timedelta(seconds=4), renew=timedelta(seconds=5))  # time to be seen to run
    fires = cloud.provider.timer(machine.id)
    ended = cloud.wait(machine.id, State.STOPPED)
    assert ended.reason == "renew-until"
    assert fires == datetime.fromtimestamp(int(machine.tags["cloudgpu-renew-until"]), UTC)
    assert fires <= ended.since <= fires + timedelta(seconds=6)
    assert processes_under(cloud.home) == []


@pytest.mark.soak
def test_a_timer_moved_ahead_fires_at_its_new_time(cloud):
    machine = cloud.running()
    cloud.provider.tag(machine.id, {"cloudgpu-renew-until": epoch_text(now())})
    assert cloud.wait(machine.id, State.STOPPED).reason == "renew-until"


def test_a_machine_without_a_timer_says_so(cloud):
    machine = cloud.running(tags={"cloudgpu-renew-until": "0"})
    assert cloud.provider.timer(machine.id) is None
    assert cloud.provider.get(machine.id).state is State.RUNNING


@pytest.mark.soak
def test_the_lease_is_enforced_without_the_agent_when_it_cannot_be_kept_alive(cloud):
    machine = cloud.running(agent_source=AT_ONCE_DEAD, lease=timedelta(seconds=4))
    assert cloud.wait(machine.id, State.STOPPED).reason == "lease"
    assert processes_under(cloud.home) == []


@pytest.mark.soak  # many seconds
def test_the_real_agent_ends_an_idle_machine_at_its_lease(cloud):
    machine = cloud.running(agent_source=program.source(), lease=timedelta(seconds=8))
    ended = cloud.wait(machine.id, State.STOPPED)
    assert ended.reason == "lease"
    assert ended.since.timestamp() >= int(machine.tags["cloudgpu-expires"])
    assert processes_under(cloud.home) == []


def test_a_living_agent_has_the_lease_in_its_own_hands(cloud):
    machine = cloud.running(lease=timedelta(seconds=-5))
    assert cloud.provider.get(machine.id).state is State.RUNNING


def test_an_agent_that_died_is_started_again(cloud):
    machine = cloud.running()

    def agents():
        return [one for one in processes_under(cloud.home) if words_of(one)[-1:] == ["run"]]

    assert wait_for(lambda: len(agents()) == 1, PATIENCE_S)
    first = agents()[0]
    os.kill(first.pid, signal.SIGKILL)
    assert wait_for(lambda: [one.pid for one in agents()] not in ([], [first.pid]), PATIENCE_S)
    assert cloud.provider.get(machine.id).state is State.RUNNING


@pytest.mark.soak
def test_the_agent_ends_the_machine_with_its_reason(cloud):
    source = (
        "import json, pathlib, subprocess, sys, time\n"
        "end = json.loads((pathlib.Path(__file__).parent / 'agent.json').read_text())['end']\n"
        "subprocess.run([*end, 'idle for 2 h'], check=True)\n"
        "time.sleep(1000)\n"
    )
    machine = cloud.launch(agent_source=source)
    ended = cloud.wait(machine.id, State.STOPPED)
    assert ended.reason == "idle for 2 h"
    assert processes_under(cloud.home) == []
    cloud.layout(machine.id).agent.joinpath("agent.py").write_text("import time\ntime.sleep(1000)\n")
    cloud.provider.start(machine.id)
    assert cloud.wait(machine.id, State.RUNNING).reason is None  # the old reason is forgotten


def test_an_interruption_gives_notice_then_takes_the_machine(cloud):
    cloud.with_options(interruption_notice="1s")
    machine = cloud.running()
    at = cloud.provider.interrupt(machine.id)
    notice = json.loads(cloud.layout(machine.id).spot.read_text())
    assert notice["action"] == "terminate"
    assert datetime.fromisoformat(notice["time"]) == at
    assert cloud.provider.interrupt(machine.id) == at  # twice is the same notice
    taken = cloud.wait(machine.id, State.TERMINATED)
    assert (taken.reason, taken.billed) == ("interrupted", False)
    assert taken.since >= at
    assert processes_under(cloud.home) == []
    cloud.provider.terminate(machine.id)
    assert cloud.empty


def test_only_a_running_machine_is_interrupted(cloud):
    machine = cloud.running()
    cloud.provider.stop(machine.id)
    with pytest.raises(InvalidRequest, match="is stopped"):
        cloud.provider.interrupt(machine.id)


def test_a_machine_killed_by_accident_is_stopped_and_its_children_are_ended(cloud):
    machine = cloud.running(script="touch begun; sleep 1000")
    layout = cloud.layout(machine.id)
    assert wait_for((layout.home / "begun").exists, PATIENCE_S)
    killed = now()
    os.kill(int(layout.lifetime_lock.read_text()), signal.SIGKILL)
    died = cloud.wait(machine.id, State.STOPPED)
    assert (died.reason, died.billed) == ("died", False)
    assert killed - timedelta(seconds=3) <= died.since <= killed + timedelta(seconds=1)
    assert processes_under(cloud.home) == []
    cloud.provider.start(machine.id)
    cloud.wait(machine.id, State.RUNNING)


def test_a_machine_that_dies_while_starting_says_why(cloud):
    attempt = cloud.attempt(host_key=("ssh-ed25519 AAAA", "no key at all"))
    machine = cloud.provider.launch(attempt, deadline=now())
    died = cloud.wait(machine.id, State.STOPPED)
    assert died.reason.startswith("died while starting: ")
    assert "KeyImportError" in died.reason
    assert processes_under(cloud.home) == []


@pytest.mark.soak
def test_a_machine_that_never_answers_is_given_up(cloud):
    cloud.with_options(machine_start_timeout="1s")
    machine = cloud.launch()
    cloud.provider.stop(machine.id)
    keys = cloud.layout(machine.id).authorized_keys
    keys.unlink()
    os.mkfifo(keys)  # nobody ever writes into it
    cloud.provider.start(machine.id)
    assert cloud.provider.get(machine.id).state is State.PENDING
    ended = cloud.wait(machine.id, State.STOPPED, State.RUNNING)
    assert ended.reason == "died while starting: it did not answer in time"
    assert processes_under(cloud.home) == []


@pytest.mark.soak
def test_a_machine_outlives_the_process_that_launched_it(cloud):
    script = (
        "import sys, pathlib\n"
        "from tests.providers.local.cloud import Cloud\n"
        "print(Cloud(pathlib.Path(sys.argv[1])).launch().id)\n"
    )
    root = str(Path(cloudgpu.__path__[0]).parent)
    done = subprocess.run(
        [sys.executable, "-c", script, str(cloud.home)],
        env={**os.environ, "PYTHONPATH": root},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert cloud.wait(done.stdout.strip(), State.RUNNING).billed
