"""`--provider any` over our models of Lambda, RunPod and vast.ai at once, over HTTP: by price and trust, one down.

The models are what the project's notes say of the three. None of them ever was the cloud itself.
"""

from __future__ import annotations

import weakref

import pytest

from cloudgpu.control.inputs.launch_request import parse_request
from cloudgpu.control.launch.launch import launch
from cloudgpu.control.launch.plan import prepare
from cloudgpu.control.lifecycle.lifecycle import terminate_one
from cloudgpu.control.outage.opening import open_session
from cloudgpu.core.model.offers import Trust
from tests.clouds.lambdalabs.fixtures import lambdalabs, lambdalabs_process
from tests.clouds.rest_faults import FOREVER
from tests.clouds.runpod.fixtures import runpod, runpod_process
from tests.clouds.vast.fixtures import vast, vast_process
from tests.control.conftest import OPENED

__all__ = ["lambdalabs", "lambdalabs_process", "runpod", "runpod_process", "vast", "vast_process"]

CONFIG = """
provider = "any"
owner = "ada"
address_services = []
[accounts.lambda]
[accounts.runpod]
[accounts.vast]
"""


class Lab:
    """A user with a key of each of the three."""

    def __init__(self, home, *clouds):
        (home / "config.toml").write_text(CONFIG)
        self.home, self.clouds = home, clouds
        start = max(cloud.clock.now() for cloud in clouds)
        for cloud in clouds:
            cloud.advance((start - cloud.clock.now()).total_seconds())
        self.session = open_session({"CLOUDGPU_HOME": str(home), "USER": "ada"}, clock=clouds[0].clock.now)
        self.session.pause = self.advance
        OPENED.append(weakref.ref(self.session))

    def advance(self, seconds):
        for cloud in self.clouds:
            cloud.advance(seconds)

    def plan(self, **words):
        return prepare(self.session, parse_request(gpu="h100", name="bear", no_guard=True, **words))

    def order(self, **words):
        return list(dict.fromkeys(offer.configuration.account for offer in self.plan(**words).offers))


@pytest.fixture
def lab(lambdalabs, runpod, vast, tmp_path):
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    return Lab(home, lambdalabs, runpod, vast)


def test_the_three_are_ranked_by_price_within_the_trust_that_is_accepted(lab):
    assert lab.order(trust="cloud") == ["lambda"]
    assert lab.order() == ["vast", "lambda", "runpod"]  # $2.40 in a data centre, $3.29, $3.99
    found = [(one.configuration.account, one.configuration.trust) for one in lab.plan(trust="community").offers]
    assert found[:3] == [("vast", Trust.DATACENTER), ("runpod", Trust.COMMUNITY), ("lambda", Trust.CLOUD)]
    assert ("runpod", Trust.COMMUNITY) not in [
        (one.configuration.account, one.configuration.trust) for one in lab.plan().offers
    ]


@pytest.mark.parametrize(("down", "next_best"), [("vast", "lambda"), ("lambdalabs", "vast"), ("runpod", "vast")])
def test_one_that_is_down_is_named_and_the_launch_goes_where_it_is_cheapest(lab, request, monkeypatch, down, next_best):
    monkeypatch.setenv("CLOUDGPU_PATIENCE", "1")
    lab, silent = Lab(lab.home, *lab.clouds), request.getfixturevalue(down)
    silent.faults.add(status=503, error="x", times=FOREVER)
    prepared = lab.plan()
    account = down.removesuffix("labs")
    assert [note for note in prepared.plan.remarks if note.startswith(f"passed over: account {account}: ")]
    machine = launch(lab.session, prepared, wait=False).machine
    assert machine.account == next_best
    silent.faults.clear()
    there = launch(lab.session, lab.plan(), wait=False)  # it is back, and may be cheaper: the request has its machine
    assert (there.already_existed, there.machine.id) == (True, machine.id)
    assert sum(len(silent.called(call)) for call in ("rent", "launch", "pods.create")) == 0
    terminate_one(lab.session, lab.session.ledger.machine(machine.id), why="a test")
