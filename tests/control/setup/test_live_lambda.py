"""The live check on our model of Lambda Cloud, over HTTP, with machines that answer SSH. It never was Lambda itself.

Lambda has no stop: the life that is tried is a launch, a look, SSH and an end.
"""

from __future__ import annotations

import weakref
from datetime import timedelta

import pytest

from cloudgpu.control.outage.opening import open_session
from cloudgpu.control.reaper.reaper import ReapOptions, reap
from cloudgpu.control.session import guarding
from cloudgpu.control.setup.live_check import max_cost_of, plan_trials, run_trial
from cloudgpu.errors import InvalidRequest
from tests.clouds.lambdalabs.fixtures import lambdalabs, lambdalabs_process
from tests.control.conftest import OPENED

__all__ = ["lambdalabs", "lambdalabs_process"]
LIFE = ["launch", "listed", "permitted", "ssh", "down", "leftovers"]


@pytest.fixture
def session(lambdalabs, tmp_path, monkeypatch):
    """A home with an account at the model, on a computer without a battery, on the model's time."""
    lambdalabs.serve_ssh()
    monkeypatch.setattr(guarding, "POWER_SUPPLY", tmp_path / "none")
    home = tmp_path / "lab"
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text(
        'provider = "lambda"\nowner = "ada"\naddress_services = []\n'
        f"[accounts.lambda]\nssh_port = {lambdalabs.ssh_port}\n"
    )
    found = open_session({"CLOUDGPU_HOME": str(home), "USER": "ada"}, clock=lambdalabs.clock.now)
    found.pause = lambdalabs.advance
    OPENED.append(weakref.ref(found))
    return found


def guarded(session):
    """Let a scheduled run of the reaper be heard, as cron makes one."""
    reap(session, ReapOptions(cron=True, interval=timedelta(minutes=10)))
    return session


def names(trial):
    return [(stage.name, stage.ok) for stage in trial.stages]


@pytest.mark.soak
def test_a_machine_lives_its_whole_life_and_nothing_is_left(lambdalabs, session):
    (prepared,) = plan_trials(guarded(session))
    trial = run_trial(session, prepared)
    assert names(trial) == [(name, True) for name in LIFE], [one for one in trial.stages if not one.ok]
    assert lambdalabs.billable() == []
    at_most, gaps = max_cost_of([prepared])
    assert not gaps
    assert trial.cost <= at_most
    assert len(lambdalabs.called("launch")) == 1


def test_a_launch_whose_answer_was_lost_is_sent_once_and_ended(lambdalabs, session):
    (prepared,) = plan_trials(guarded(session))
    lambdalabs.faults.lose_reply("launch")
    assert run_trial(session, prepared).remaining == ()
    assert lambdalabs.billable() == []
    assert len(lambdalabs.called("launch")) == 1


def test_without_a_scheduled_run_nothing_is_launched(lambdalabs, session):
    with pytest.raises(InvalidRequest, match="nothing on a machine can end its bill"):
        plan_trials(session)
    assert lambdalabs.called("launch") == []
