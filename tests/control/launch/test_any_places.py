"""`--provider any` where places fail at once: chosen by price, each fault named, never two machines for one request."""

from __future__ import annotations

import threading
import weakref

import pytest

from cloudgpu.control.inputs.launch_request import parse_request
from cloudgpu.control.inventory.sync import sync_all
from cloudgpu.control.launch.launch import launch
from cloudgpu.control.launch.plan import prepare
from cloudgpu.control.outage.opening import open_session
from cloudgpu.core.launch.attempt import fingerprint_of
from cloudgpu.errors import CloudgpuError, ProviderUnavailable
from cloudgpu.testing import ManualClock
from tests.control.conftest import OPENED
from tests.control.launch.test_trust import Streets

ZONES = ("north-a", "north-b", "south-a", "south-b")
SKEW_S = 240.0  # by which the second computer's clock is ahead


def words(**more):
    return {"gpu": "v100", "name": "fox", "trust": "community", **more}


class Lab(Streets):
    """A user of three places, who may have a second computer with the same ledger and another clock."""

    def beside(self, tmp_path, url, skew_s=SKEW_S):
        """Return a session of the second computer: its own home and clock, the same accounts, the same ledger."""
        home = tmp_path / "second"
        home.mkdir(exist_ok=True)
        (home / "config.toml").write_text((self.home / "config.toml").read_text())
        clock = ManualClock(self.clock())
        clock.advance(skew_s)
        environ = {"CLOUDGPU_HOME": str(home), "USER": "ada", "CLOUDGPU_LEDGER": url}
        session = open_session(environ, clock=clock, tell=self.said.append)
        session.pause = clock.advance
        OPENED.append(weakref.ref(session))
        return session

    def plan(self, **more):
        return prepare(self.session, parse_request(**words(**more)))

    def first(self, url):
        environ = {"CLOUDGPU_HOME": str(self.home), "USER": "ada", "CLOUDGPU_LEDGER": url}
        session = open_session(environ, clock=self.clock, tell=self.said.append)
        session.pause = self.clock.advance
        OPENED.append(weakref.ref(session))
        return session

    def empty(self, *accounts):
        for account in accounts:
            for zone in ZONES:
                self.session.provider(account).exhaust(zone)

    def down(self, account, times=20):
        cloud = self.session.provider(account)
        cloud.fail_next("available", ProviderUnavailable(f"{account} does not answer"), times=times)


@pytest.fixture
def places(tmp_path, monkeypatch):
    return Lab(tmp_path, monkeypatch)


def test_one_down_one_without_stock_and_the_third_that_is_dearest_gets_it(places):
    places.down("attic")
    places.empty("hall")
    prepared = places.plan()
    assert list(dict.fromkeys(offer.configuration.account for offer in prepared.offers)) == ["own"]
    (named,) = [note for note in prepared.plan.remarks if "attic" in note]
    assert "does not answer" in named
    done = launch(places.session, prepared, wait=False)
    assert (done.machine.account, places.there()) == ("own", ["own"])


def test_stock_that_is_gone_after_the_plan_goes_on_by_price_and_makes_one(places):
    prepared = places.plan()
    places.empty("attic", "hall")
    done = launch(places.session, prepared, wait=False)
    assert (done.machine.account, places.there()) == ("own", ["own"])


@pytest.fixture(params=["postgresql", "sqlite"])
def url(request, tmp_path):
    """A ledger that two share: in a database, or in a file that two homes of one computer name."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'lab.db'}"
    return request.getfixturevalue("postgres").schema()


@pytest.mark.parametrize("skew_s", [SKEW_S, -SKEW_S])
def test_two_homes_with_one_ledger_at_once_make_one_machine_whatever_their_clocks_say(places, tmp_path, url, skew_s):
    one, two = places.first(url), places.beside(tmp_path, url, skew_s)
    found, faults, gate = [], [], threading.Barrier(2)

    def ask(session):
        try:
            prepared = prepare(session, parse_request(**words(key="experiment-7")))
            gate.wait(30)
            found.append(launch(session, prepared, wait=False).machine)
        except CloudgpuError as error:  # the other was first, and is still at it
            faults.append(error)

    threads = [threading.Thread(target=ask, args=(session,)) for session in (one, two)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    assert not any(thread.is_alive() for thread in threads)  # one that goes on must not see the clocks move
    assert found, faults
    for session in (one, two):
        session.clock.advance(SKEW_S)  # past the clock of whoever was first: a listing shows nothing of the future
    assert len(places.there()) == 1
    assert len({machine.id for machine in found}) == 1
    later = [
        launch(session, prepare(session, parse_request(**words(key="experiment-7"))), wait=False)
        for session in (one, two)
    ]
    assert {done.machine.id for done in later} == {found[0].id}
    assert len(places.there()) == 1


@pytest.mark.soak
def test_the_second_computer_sees_the_first_ones_machine_and_never_a_second(places, tmp_path, postgres):
    url = postgres.schema()
    one, two = places.first(url), places.beside(tmp_path, url)
    made = launch(one, prepare(one, parse_request(**words())), wait=False).machine
    places.empty("attic")
    places.down("hall")
    there = launch(two, prepare(two, parse_request(**words())), wait=False)
    assert (there.machine.id, there.already_existed) == (made.id, True)
    sync_all(two)
    (row,) = [each for each in two.ledger.machines() if each.terminated_at is None]
    assert (row.id, row.account, row.trust) == (made.id, "attic", "community")
    assert places.there() == ["attic"]


def test_whose_computers_are_accepted_is_no_part_of_what_makes_two_requests_the_same(places):
    one, other = (places.plan(trust=trust) for trust in ("community", "cloud"))
    prints = [fingerprint_of(each.candidates.fingerprint_request, "fox") for each in (one, other)]
    assert prints[0] == prints[1] == one.fingerprint
