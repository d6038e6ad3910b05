"""A launch of several machines whose process dies between two of them, where the cloud has no call for all."""

from __future__ import annotations

import os
import sys
from datetime import datetime

import pytest

from cloudgpu.control.inputs.launch_request import UpRequest, cluster_request
from cloudgpu.control.launch.launch import launch
from cloudgpu.control.launch.plan import prepare
from cloudgpu.control.outage.opening import open_session
from cloudgpu.control.reaper.reaper import ReapOptions, reap
from cloudgpu.core.model.offers import Requirements
from cloudgpu.testing import ManualClock
from tests.forked import Begun

DIED = 9


def up_and_die(home: str, plugin: str, at: datetime, sent: int, answered: int) -> None:
    """Launch four machines, and die when so many are sent and so many of them answered."""
    sys.path.insert(0, plugin)
    session = open_session({"CLOUDGPU_HOME": home, "USER": "ada"}, clock=ManualClock(at), tell=lambda _: None)
    cloud = session.provider("lab")
    launches, turns = cloud.launch, iter(range(1, 5))

    def launched(attempt, *, deadline):
        turn = next(turns)
        if turn > sent:
            os._exit(DIED)
        made = launches(attempt, deadline=deadline)
        if turn > answered:
            os._exit(DIED)
        return made

    cloud.launch = launched
    wanted = UpRequest(Requirements(gpu="v100"), name="train", cluster=cluster_request(4, "none", None))
    launch(session, prepare(session, wanted), wait=False)


@pytest.fixture
def lab(make_lab):
    return make_lab('lacks = ["LaunchesTogether"]')


BEFORE_THE_THIRD = pytest.mark.parametrize("killed", [(2, 2)], indirect=True, ids=["before the third launch"])
BEFORE_ITS_ANSWER = pytest.mark.parametrize("killed", [(3, 2)], indirect=True, ids=["before its answer"])


@pytest.fixture
def killed(lab, request, tmp_path):
    """A home in which a launch of four died between the second machine and the third."""
    errors, (sent, answered) = tmp_path / "errors", request.param
    work = Begun(up_and_die, os.fspath(lab.home), sys.path[0], lab.clock(), sent, answered, errors=errors)
    assert work.wait(60) == DIED, errors.read_text()
    assert len(lab.machines()) == sent
    return lab


def up(lab):
    return lab.up(nodes=4, engine="none", name="train")


@BEFORE_ITS_ANSWER
def test_the_same_request_completes_what_was_begun(killed):
    done = up(killed)
    assert len(done.nodes) == len(killed.machines()) == len(killed.rows()) == 4
    assert {row.launch_status for row in killed.rows()} == {"made"}


def passes(lab, minutes):
    """Let the reaper run every ten minutes."""
    for _ in range(minutes // 10):
        lab.later(minutes=10)
        reap(lab.session, ReapOptions())


@BEFORE_THE_THIRD
def test_passes_end_the_part_once_its_grace_is_over(killed):
    passes(killed, 40)
    assert (killed.machines(), killed.rows()) == ([], [])


@BEFORE_ITS_ANSWER
def test_passes_without_the_saved_calls_end_it_too_and_the_same_request_launches_anew(killed):
    """Another computer, say, which has the ledger and cannot send the calls again."""
    for file in killed.session.home.attempts.iterdir():
        file.unlink()
    passes(killed, 40)
    assert (killed.machines(), killed.rows()) == ([], [])
    assert len(up(killed).nodes) == len(killed.machines()) == 4
