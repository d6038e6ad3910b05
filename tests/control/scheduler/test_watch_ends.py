"""How a watch ends: at once while it only looks, and after the stop that it has begun; no further one is begun."""

from __future__ import annotations

import signal
import threading
from contextlib import closing
from datetime import timedelta

import pytest

from cloudgpu.control.cost.report import report_document
from cloudgpu.control.outage.opening import open_session
from cloudgpu.control.scheduler.jobs import WatchJob
from cloudgpu.control.scheduler.watch import Watch, ended_by_signals
from cloudgpu.control.setup.ledger_move import execute, plan
from cloudgpu.core.events.log import Draft
from cloudgpu.errors import LedgerUnavailable, ProviderUnavailable

LONG = 60


class Slow:
    """A pass that is at work until it is let go on."""

    def __init__(self, tmp_path, *, stops):
        self.said: list[str] = []
        self.watch = Watch(
            {"CLOUDGPU_HOME": str(tmp_path)}, every=timedelta(hours=1), price_interval=None, tell=self.said.append
        )
        self.at_work, self.go_on, self.stops, self.begun = threading.Event(), threading.Event(), stops, 0
        self.watch.jobs = [WatchJob("pass", timedelta(hours=1), lambda session: session.clock(), self.work)]
        self.result: list[bool] = []
        self.thread = threading.Thread(target=lambda: self.result.append(self.watch.run()))

    def work(self, session):
        with session.lock("reaper", wait=False):
            for _ in range(self.stops):
                session.check_lock("reaper")
                self.begun += 1
                self.wait()
            if not self.stops:
                self.wait()
        return "all is proved"

    def wait(self):
        self.at_work.set()
        assert self.go_on.wait(LONG)

    def begin(self):
        self.thread.start()
        assert self.at_work.wait(LONG)
        return self


@pytest.fixture
def slow(tmp_path):
    made: list[Slow] = []

    def make(*, stops):
        made.append(Slow(tmp_path, stops=stops))
        return made[-1].begin()

    yield make
    for one in made:
        one.go_on.set()
        one.watch.end()
        one.thread.join(LONG)


def test_a_stop_that_is_under_way_is_proved_before_the_watch_ends(slow):
    one = slow(stops=1)
    one.watch.end()
    one.thread.join(0.5)
    assert one.thread.is_alive(), "it has left the stop alone"
    one.go_on.set()
    one.thread.join(LONG)
    assert one.result == [True]
    assert one.said == ["all is proved"]


def test_no_further_stop_is_begun_once_the_watch_is_to_end(slow):
    one = slow(stops=3)
    one.watch.end()
    one.go_on.set()
    one.thread.join(LONG)
    assert one.begun == 1
    (said,) = one.said
    assert said.startswith("pass failed and is tried again: The watch was ended before everything was done.")


def test_a_look_that_takes_long_does_not_hold_the_watch_up(slow):
    one = slow(stops=0)
    one.watch.end()
    one.thread.join(LONG)
    assert one.result == [False]
    assert not one.go_on.is_set()


def test_a_watch_that_was_started_with_nohup_outlives_its_terminal():
    before, told = signal.signal(signal.SIGHUP, signal.SIG_IGN), []
    try:
        with ended_by_signals(lambda: told.append(1)):
            signal.raise_signal(signal.SIGHUP)
            assert told == []
            signal.raise_signal(signal.SIGTERM)
            assert told == [1]
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_the_fault_that_ends_a_pass_is_none_of_the_ledger(slow, tmp_path):
    """Else nobody could write down that the pass was broken off."""
    watch = Watch({"CLOUDGPU_HOME": str(tmp_path)}, every=timedelta(hours=1), price_interval=None, tell=print)
    watch.end()
    with watch._open_session() as session, session.lock("x", wait=False), pytest.raises(ProviderUnavailable) as fault:
        session.check_lock("x")
    assert not isinstance(fault.value, LedgerUnavailable)


def test_a_watch_can_make_the_report_of_a_month(tmp_path):
    """Its session is copied for that, with one time for all parts."""
    watch = Watch({"CLOUDGPU_HOME": str(tmp_path)}, every=timedelta(hours=1), price_interval=None, tell=print)
    with watch._open_session() as session:
        session.account("aws")
        assert report_document(session)["kind"] == "cloudgpu report"
        with session.for_thread() as copy:
            assert copy.detected == {"aws"}


@pytest.fixture
def moved(tmp_path):
    """A home whose ledger has moved; its config.toml names no ledger."""
    environ = {"CLOUDGPU_HOME": str(tmp_path / "home")}
    session = open_session(environ)
    session.ledger.settle("It begins.")
    with closing(plan(session, f"sqlite://{tmp_path}/new.db")) as wanted:
        execute(session, wanted, environ)
    session.ledger.close()
    return environ


def watched(environ, said):
    watch = Watch(environ, every=timedelta(hours=1), price_interval=None, tell=said.append)

    def work(session):
        session.ledger.append([Draft("account_synced", "scope:x", {}, session.clock(), f"x{session.clock()}")])
        watch.end()
        return "done"

    at_once = timedelta(milliseconds=1)
    watch.jobs = [WatchJob("pass", timedelta(hours=1), lambda session: session.clock(), work, at_once)]
    thread = threading.Thread(target=watch.run)
    thread.start()
    thread.join(LONG)
    assert not thread.is_alive()
    return watch


def test_a_watch_follows_its_home_to_where_the_ledger_stands_now(moved):
    said: list[str] = []
    assert (watched(moved, said).ledger_moved, said) == (None, ["done"])


def test_a_watch_that_only_knows_the_old_place_ends_and_says_where_the_ledger_is(moved, tmp_path):
    said: list[str] = []
    environ = moved | {"CLOUDGPU_LEDGER": f"sqlite://{tmp_path}/home/ledger/ledger.db"}
    why = watched(environ, said).ledger_moved
    assert why is not None
    assert (why.exit_code, f"moved to sqlite:///{tmp_path}/new.db" in why.message, said) == (2, True, [])


def test_a_run_that_is_requested_while_another_one_ends_is_made(tmp_path):
    watch = Watch({"CLOUDGPU_HOME": str(tmp_path)}, every=timedelta(hours=1), price_interval=None, tell=print)
    asked, ran = [], []

    def due(session):
        asked.append(1)
        if len(asked) != 2:
            return session.clock()
        watch._run_soon("pass")  # after the work, before its next time is set
        return session.clock() + timedelta(hours=1)

    def work(session):
        ran.append(1)
        if len(ran) == 2:
            watch.end()
        return ""

    watch.jobs = [WatchJob("pass", timedelta(hours=1), due, work)]
    thread = threading.Thread(target=watch.run)
    thread.start()
    thread.join(LONG / 4)
    watch.end()
    thread.join(LONG)
    assert len(ran) == 2
