"""Two computers with one ledger on our models of Lambda, RunPod and vast.ai, their clocks apart: one machine.

These places know no launch tokens, and each computer has its own marks of what it has sent. None of the models ever was
the cloud itself.
"""

from __future__ import annotations

import weakref
from datetime import timedelta

import pytest

from cloudgpu.control.inputs.launch_request import parse_request
from cloudgpu.control.inventory.sync import sync_all
from cloudgpu.control.launch.launch import launch
from cloudgpu.control.launch.plan import prepare
from cloudgpu.control.outage.opening import open_session
from cloudgpu.errors import LaunchUncertain
from tests.clouds.lambdalabs.fixtures import lambdalabs, lambdalabs_process
from tests.clouds.runpod.fixtures import runpod, runpod_process
from tests.clouds.vast.fixtures import vast, vast_process
from tests.control.conftest import OPENED

__all__ = ["lambdalabs", "lambdalabs_process", "runpod", "runpod_process", "vast", "vast_process"]
SKEW_S = 240.0
PLACES = {  # its model, the call that makes a machine, a GPU
    "lambda": ("lambdalabs", "launch", "a10"),
    "runpod": ("runpod", "pods.create", "h100"),
    "vast": ("vast", "rent", "rtx4090"),
}


class Place:
    """An account at one of them, and two computers with one ledger: the second one's clock is ahead, or behind."""

    def __init__(self, root, kind, server, skew_s):
        _, self.call, self.gpu = PLACES[kind]
        self.server, self.kind = server, kind
        ledger = f"sqlite:///{root / 'lab.db'}"
        self.one, self.two = (self._computer(root / name, ledger, by) for name, by in (("a", 0.0), ("b", skew_s)))

    def _computer(self, home, ledger, by):
        home.mkdir(mode=0o700)
        text = f'provider = "{self.kind}"\naddress_services = []\n[accounts.lab]\nprovider = "{self.kind}"\n'
        (home / "config.toml").write_text(text)
        environ = {"CLOUDGPU_HOME": str(home), "USER": "ada", "CLOUDGPU_LEDGER": ledger}
        session = open_session(environ, clock=lambda: self.server.clock.now() + timedelta(seconds=by))
        session.pause = self.server.advance
        OPENED.append(weakref.ref(session))
        return session

    def up(self, session):
        asked = parse_request(gpu=self.gpu, name="bear", key="experiment-7", no_guard=True)
        return launch(session, prepare(session, asked), wait=False).machine

    def lists_late(self, seconds):
        if self.kind == "lambda":
            self.server.late_s = seconds
        elif self.kind == "runpod":
            self.server.model.listed_after_s = seconds
        else:
            self.server.dwell(listed=seconds)

    def sent(self):
        return len(self.server.called(self.call))


@pytest.fixture(params=PLACES)
def kind(request):
    return request.param


@pytest.fixture(params=[SKEW_S, -SKEW_S], ids=["ahead", "behind"])
def place(request, tmp_path, kind):
    return Place(tmp_path, kind, request.getfixturevalue(PLACES[kind][0]), request.param)


def test_a_lost_answer_is_never_sent_again_by_the_other_computer_and_both_find_the_machine(place):
    proves_s = place.one.provider("lab").token_rule.listing_proves_after.total_seconds()
    place.lists_late(proves_s - 20)
    place.server.faults.lose_reply(place.call)
    for session in (place.one, place.two):
        with pytest.raises(LaunchUncertain):
            place.up(session)
    place.server.advance(proves_s - 60)  # by a clock that is ahead, a listing would prove by now that none was made
    sync_all(place.two)
    with pytest.raises(LaunchUncertain):
        place.up(place.two)
    place.server.advance(60)
    found = {place.up(session).id for session in (place.two, place.one)}
    assert (len(found), place.sent()) == (1, 1)


def test_a_call_that_never_arrived_is_sent_anew_by_one_of_them_once_that_is_proved(place):
    place.server.faults.refuse(place.call)
    with pytest.raises(LaunchUncertain):
        place.up(place.one)
    place.server.advance(240)
    for session in (place.two, place.one):
        with pytest.raises(LaunchUncertain):
            place.up(session)
    assert place.sent() == 1
    place.server.advance(1000)
    found = {place.up(session).id for session in (place.two, place.one)}
    assert (len(found), place.sent()) == (1, 2)
