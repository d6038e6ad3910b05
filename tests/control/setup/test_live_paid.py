"""The live check on our models of RunPod and vast.ai, over HTTP, with a real SSH server behind each container.

Whatever goes wrong, the machine is ended. The models never were the clouds themselves.
"""

from __future__ import annotations

import shutil
import weakref
from datetime import timedelta

import pytest

from cloudgpu.control.outage.opening import open_session
from cloudgpu.control.reaper.reaper import ReapOptions, reap
from cloudgpu.control.session import guarding
from cloudgpu.control.setup.live_check import max_cost_of, plan_trials, run_trial
from cloudgpu.control.setup.permissions import finding_checks
from cloudgpu.errors import InvalidRequest
from cloudgpu.providers.machine.container_start import HOST_KEY_PREFIX
from cloudgpu.providers.vast import request as vasts
from tests.access.sshserver import USER, Server
from tests.clouds.rest_faults import FOREVER
from tests.clouds.runpod.fixtures import runpod, runpod_process
from tests.clouds.vast.fixtures import vast, vast_process
from tests.control.conftest import OPENED

__all__ = ["runpod", "runpod_process", "vast", "vast_process"]
LIFE = ["launch", "listed", "permitted", "ssh", "stop", "start", "ssh again", "down", "leftovers"]
RENTS = {"runpod": "pods.create", "vast": "rent"}
OWN = "the pod's own key"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A real SSH server, behind all containers of this file."""
    one = Server(tmp_path_factory.mktemp("ssh")).start()
    yield one
    one.kill()


class Lab:
    """A user's home at one of the two models, whose containers answer SSH; a scheduled run is heard."""

    def __init__(self, home, kind, cloud, server):
        self.kind, self.cloud = kind, cloud
        (home / "config.toml").write_text(f'provider = "{kind}"\nowner = "ada"\naddress_services = []\n')
        self.session = open_session({"CLOUDGPU_HOME": str(home), "USER": "ada"}, clock=cloud.clock.now)
        self.session.pause = cloud.advance
        OPENED.append(weakref.ref(self.session))
        shutil.copytree(server.root / "keys", self.session.home.keys)
        kind_of_key, key = server.host_key.public_line.split()[:2]
        self.log = [f"{HOST_KEY_PREFIX}{kind_of_key} {key}"]

        def boot(one):
            one.port, one.user = server.port, USER
            one.read_log = (lambda: self.log) if kind == "runpod" else (lambda: "\n".join(self.log))

        if kind == "runpod":
            cloud.model.boot = boot
        else:
            cloud.boot = boot

    def guarded(self):
        """Let a scheduled run of the reaper be heard, as cron makes one."""
        reap(self.session, ReapOptions(cron=True, interval=timedelta(minutes=10)))
        return self

    def run_trial(self):
        (prepared,) = plan_trials(self.session)
        return prepared, run_trial(self.session, prepared)

    def living(self):
        return self.cloud.living() if self.kind == "vast" else self.cloud.pods()


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home on a computer without a battery."""
    monkeypatch.setattr(vasts, "USER", USER)
    monkeypatch.setattr(guarding, "POWER_SUPPLY", tmp_path / "none")
    place = tmp_path / "lab"
    place.mkdir(mode=0o700)
    return place


@pytest.fixture(params=["runpod", "vast"])
def lab(request, server, home):
    return Lab(home, request.param, request.getfixturevalue(request.param), server)


@pytest.fixture
def at_runpod(runpod, server, home):
    return Lab(home, "runpod", runpod, server)


def names(trial):
    return [(stage.name, stage.ok) for stage in trial.stages]


def test_a_container_lives_its_whole_life_and_nothing_is_left(lab):
    prepared, trial = lab.guarded().run_trial()
    assert names(trial) == [(name, True) for name in LIFE], [one for one in trial.stages if not one.ok]
    assert trial.ok
    assert lab.living() == []
    at_most, gaps = max_cost_of([prepared])
    assert not gaps
    assert trial.cost <= at_most
    assert len(lab.cloud.called(RENTS[lab.kind])) == 1


def test_a_launch_whose_answer_was_lost_is_sent_once_and_ended(lab):
    lab.guarded().cloud.faults.lose_reply(RENTS[lab.kind])
    _, trial = lab.run_trial()
    assert trial.remaining == ()
    assert lab.living() == []
    assert len(lab.cloud.called(RENTS[lab.kind])) == 1


@pytest.mark.soak
def test_a_container_that_never_says_its_host_key_is_ended(lab):
    if lab.kind == "runpod":
        lab.cloud.model.boot = lambda pod: None
    else:
        lab.cloud.boot = lambda contract: None
    _, trial = lab.guarded().run_trial()
    assert names(trial)[-3:] == [("ssh", False), ("down", True), ("leftovers", True)]
    assert lab.living() == []


def test_a_stop_that_is_refused_is_said_and_the_machine_is_ended(lab):
    lab.guarded().cloud.faults.deny("pods.action" if lab.kind == "runpod" else "change", times=FOREVER)
    _, trial = lab.run_trial()
    assert names(trial)[-3:] == [("stop", False), ("down", True), ("leftovers", True)]
    assert (trial.remaining, lab.living()) == ((), [])


def test_a_start_without_a_free_gpu_is_said_and_the_pod_is_ended(at_runpod):
    model, halt = at_runpod.guarded().cloud.model, at_runpod.cloud.model.halt

    def halted(pod):
        halt(pod)
        model.held.add(pod.id)

    model.halt = halted
    _, trial = at_runpod.run_trial()
    (failed,) = [one for one in trial.stages if not one.ok]
    assert (failed.name, failed.exit_code) == ("start", 4)
    assert (trial.remaining, at_runpod.living()) == ((), [])


@pytest.mark.parametrize(("listed", "verdict"), [(403, "ok"), (200, "warn")])
def test_doctor_knows_afterwards_whether_the_pods_own_key_reads_others(at_runpod, listed, verdict):
    lab = at_runpod.guarded()
    lab.log.append(f"cloudgpu-pod-key: own=200 list={listed} others={int(listed == 200)} account=403")
    _, trial = lab.run_trial()
    assert trial.ok
    checks = {one.name: one for one in finding_checks(lab.session, "runpod", None)}
    assert str(checks[f"{OWN} runpod"].verdict) == verdict


def test_without_a_scheduled_run_it_names_a_way_out_that_it_has(lab):
    with pytest.raises(InvalidRequest) as refused:
        plan_trials(lab.session)
    assert "cloudgpu cron install" in refused.value.next
    assert "--no-guard" not in refused.value.next
    assert not lab.cloud.called(RENTS[lab.kind])
