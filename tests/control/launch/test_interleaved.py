"""Two computers with one ledger do things to one machine at once, in orders of two switches.

The clock of the first one is four minutes ahead, or right, or four minutes behind; the cloud goes by its own.
"""

from __future__ import annotations

import os
import random
import weakref
from datetime import timedelta

import pytest

from cloudgpu.control.budgets.commands import BudgetOptions, set_budget_document
from cloudgpu.control.inputs.launch_request import parse_request
from cloudgpu.control.inventory.sync import sync_all
from cloudgpu.control.launch.launch import launch
from cloudgpu.control.launch.plan import prepare
from cloudgpu.control.lifecycle.lease import extend, plan_extension, set_hold
from cloudgpu.control.lifecycle.lifecycle import stop, terminate_one
from cloudgpu.control.lifecycle.start import new_lease, start
from cloudgpu.control.outage.opening import open_session
from cloudgpu.control.reaper.reaper import ReapOptions, reap
from cloudgpu.core.model.instances import TAG_ID, State
from cloudgpu.testing import ManualClock
from tests.control.conftest import OPENED
from tests.control.turns import TO_THE_END, Turns

NAME, OFF_S, MANY = "fox", (240, 0, -240), int(os.environ.get("CLOUDGPU_TEST_ORDERS", "12"))


def up(session):
    launch(session, prepare(session, parse_request(gpu="v100", name=NAME)), wait=False)


def on_it(do):
    """Return what does this to the machine, where there is one."""

    def done(session):
        for row in session.ledger.machines():
            if row.name == NAME and row.terminated_at is None:
                do(session, row)

    return done


DEEDS = {
    "up": up,
    "ls": sync_all,
    "reap": lambda session: reap(session, ReapOptions()),
    "down": on_it(lambda session, row: terminate_one(session, row, why="asked")),
    "stop": on_it(lambda session, row: stop(session, row, why="asked")),
    "extend": on_it(lambda session, row: extend(session, plan_extension(session, row, timedelta(hours=2)))),
    "hold": on_it(lambda session, row: set_hold(session, row, session.clock() + timedelta(hours=2))),
    "hour": lambda session: session.pause(3_600),
    "day": lambda session: session.pause(86_400),
    "over": lambda session: set_budget_document(
        session, BudgetOptions("lab", "1", "total", action="notify,stop"), overwrite=False
    ),
    "start": on_it(lambda session, row: start(session, row, new_lease(session, row, None))),
}
BEFORE = {  # what was done by then
    "nothing": (),
    "running": ("up",),
    "stopped": ("up", "stop"),
    "late": ("up", "day"),
    "over": ("up", "hour", "over"),
}
PAIRS = [
    *[("nothing", "up", other) for other in ("up", "ls", "reap")],
    *[("running", "down", other) for other in ("up", "ls", "stop", "reap")],
    *[("running", "stop", other) for other in ("up", "ls")],
    *[("stopped", "start", other) for other in ("up", "ls", "down", "start", "reap")],
    ("stopped", "up", "down"),
]
SOAKED = [
    *[("running", "extend", other) for other in ("down", "stop", "reap", "extend")],
    ("running", "hold", "down"),
    ("stopped", "start", "extend"),
    *[("late", "reap", other) for other in ("reap", "extend", "start", "down")],
    *[("over", "reap", other) for other in ("up", "start", "extend")],
]
POLICY = "lease: 8h\nrenew_until: 3d\nunknown: end\n"  # no machine here has an agent


class World:
    """A cloud of its own, with one ledger and a computer for each clock."""

    def __init__(self, lab, place, off_s):
        self.lab, self.place, self.clocks, self.most = lab, place, [], 0
        self.true = ManualClock()
        place.mkdir()
        config = (
            (lab.home / "config.toml").read_text().replace(str(lab.home.parent / "cloud.json"), f"{place}/cloud.json")
        )
        self.config = config
        self.sessions = [self.computer("first", off_s), self.computer("second", 0)]
        self.later = self.computer("later", 0)
        self.cloud = self.later.provider("lab")
        self.cloud.clock = self.true

    def computer(self, name, off_s):
        home = self.place / name
        home.mkdir()
        (home / "config.toml").write_text(self.config)
        (home / "policies").mkdir()
        (home / "policies" / "default.yaml").write_text(POLICY)
        clock = ManualClock(self.true())
        clock.advance(off_s)
        self.clocks.append(clock)
        environ = {"CLOUDGPU_HOME": str(home), "USER": "ada", "CLOUDGPU_LEDGER": f"sqlite:///{self.place / 'lab.db'}"}
        session = open_session(environ, clock=clock, tell=self.lab.said.append)
        session.pause = self.advance
        OPENED.append(weakref.ref(session))
        return session

    def advance(self, seconds):
        for clock in (self.true, *self.clocks):
            clock.advance(seconds)

    def billed(self):
        """Return the machines that cost money by the cloud's own books."""
        return [one for one in self.cloud.list().instances if one.billed and one.state is not State.STOPPING]

    def counted(self, send):
        """Return a launch or a start after which the machines are counted that cost money."""

        def sent(*args, **more):
            made = send(*args, **more)
            self.most = max(self.most, len(self.billed()))
            return made

        return sent


def played(world, before, deeds, turns):
    """Let this happen; return the turns, and check that there was one machine at most, which is known."""
    for deed in BEFORE[before]:
        DEEDS[deed](world.later)
        world.advance(1)
    world.advance(60)
    for number, (session, deed) in enumerate(zip(world.sessions, deeds, strict=True)):
        cloud = session.provider("lab")
        cloud.launch, cloud.start = world.counted(cloud.launch), world.counted(cloud.start)
        turns.computer(number, session, world.true, DEEDS[deed])
    turns.run()
    said = [error.message for error in turns.said]
    assert world.most <= 1, said
    ended = {row.id for row in world.later.ledger.machines() if row.terminated_at is not None}
    assert not [one for one in world.billed() if one.tags[TAG_ID] in ended], said
    world.advance(3600)
    sync_all(world.later)
    rows = world.later.ledger.machines()
    assert {one.id for one in world.billed()} == {row.provider_id for row in rows if row.billed}, said
    assert not [row for row in rows if row.launch_status == "open" and row.terminated_at is None], said
    return turns


def in_orders(lab, place, before, deeds, off_s, kills, count):
    """Play so many orders of all, the same each time: where the first computer is interrupted, and where the other."""
    calls = played(World(lab, place / "alone", 0), before, deeds, Turns(TO_THE_END, 0)).calls
    every = [(n, m) for n in range(1, calls[0] + 1) for m in range(1, calls[1] + 5)]
    for n, m in random.Random(f"{before} {deeds} {off_s} {kills}").sample(every, min(count, len(every))):
        played(World(lab, place / f"{n}-{m}", off_s), before, deeds, Turns(n, m, kills))


@pytest.mark.parametrize(("before", "first", "second"), PAIRS)
def test_there_is_one_machine_and_it_is_known(lab, tmp_path, before, first, second):
    in_orders(lab, tmp_path, before, (first, second), -240, kills=False, count=2)


@pytest.mark.soak
@pytest.mark.parametrize(("before", "first", "second"), [*PAIRS, *[(before, two, one) for before, one, two in PAIRS]])
@pytest.mark.parametrize("off_s", OFF_S)
@pytest.mark.parametrize("kills", [False, True])
def test_there_is_one_machine_in_more_orders_and_it_is_known(lab, tmp_path, before, first, second, off_s, kills):
    in_orders(lab, tmp_path, before, (first, second), off_s, kills, MANY)


@pytest.mark.soak
@pytest.mark.parametrize(("before", "first", "second"), [*SOAKED, *[(before, two, one) for before, one, two in SOAKED]])
@pytest.mark.parametrize("kills", [False, True])
def test_a_lease_or_a_hold_beside_an_end_leaves_one_machine_that_is_known(lab, tmp_path, before, first, second, kills):
    in_orders(lab, tmp_path, before, (first, second), -240, kills, count=2)


@pytest.mark.parametrize("before", ["late", "over"])
def test_the_reaper_ends_a_machine_whose_lease_or_budget_is_over(lab, tmp_path, before):
    world = World(lab, tmp_path / before, 0)
    for deed in (*BEFORE[before], "reap"):
        DEEDS[deed](world.later)
    assert world.billed() == []


def test_what_nobody_expected_of_a_computer_fails_the_test(lab, tmp_path, monkeypatch):
    def breaks(_session):
        raise ZeroDivisionError

    monkeypatch.setitem(DEEDS, "breaks", breaks)
    with pytest.raises(ZeroDivisionError):
        played(World(lab, tmp_path / "alone", 0), "nothing", ("breaks", "ls"), Turns(1, 1))
