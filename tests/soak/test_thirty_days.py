"""Thirty days of 200 machines on three clouds, under the shipped default policy: nobody pays for idle, nobody is hurt.

People work at machines and forget them. Of all calls that passes make to a cloud, 5% fail; some agents die, and most of
those come back. Two schedulers make the passes; each hour one of them is killed in the middle of what it does, and
comes back later. Their jobs are those of `cloudgpu watch`, and when they are due is read from the ledger, as there; the
timetable of APScheduler is played here. The agents only speak: nothing but passes and the clouds' own timers ends a
machine.
"""

from __future__ import annotations

import heapq
import itertools
import random
import time
from collections import Counter
from datetime import timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from cloudgpu.control.launch.restore import start_machine
from cloudgpu.control.lifecycle.lease import set_hold
from cloudgpu.control.lifecycle.lifecycle import stop, terminate_one
from cloudgpu.control.scheduler.jobs import _run_due_at, reap_once
from cloudgpu.core.model.instances import State
from cloudgpu.core.values.times import from_iso
from cloudgpu.errors import CloudgpuError, ProviderUnavailable, RateLimited
from tests.soak.idleness import MINUTE, START, TEN, World
from tests.soak.striking import struck

pytestmark = pytest.mark.soak
MACHINES, DAYS = 200, 30
FAILING = 0.05
BOUND = 90 * MINUTE
WINDOW = 60 * MINUTE
RETRY = timedelta(seconds=15)  # as `watch_jobs.SOON`


class Killed(BaseException):
    """A scheduler's process is gone, in the middle of what it did."""


class Month:
    """The lab, its people and its schedulers, on one line of events."""

    def __init__(self, home, machines=MACHINES, days=DAYS, seed=1):
        self.chance = random.Random(seed)
        self.world = World(home)
        self.days, self.until = days, START + timedelta(days=days)
        self.events, self.count = [], itertools.count()
        self.in_pass, self.until_kill = False, None
        self.seen = Counter()
        self.ended = []  # (box, rule, when, how long after its last use, until when it was excused)
        self.doomed = ""
        self.down_until = {"first": START, "second": START}
        self.alone = []  # from when until when both schedulers were dead, and nobody could make a pass
        self.broken = []  # when a pass was broken, and at which clouds a call of it had failed
        self.failed = set()
        self.sessions = {name: self.opened() for name in self.down_until}
        for account, cloud in self.world.clouds.items():
            cloud.weather = partial(self.weather, account)
        for number in range(machines):
            day, hour = self.chance.randrange(days - 5), self.chance.gauss(12, 1.5)
            self.at(START.replace(hour=0) + timedelta(days=day, hours=hour), self.launched, number)
        for hour in range(1, days * 24):
            self.at(START + timedelta(hours=hour), self.one_is_killed, ("first", "second")[hour % 2])

    def opened(self):
        return struck(self.world.opened(), self.strike)

    # --- the line of events -----------------------------------------------------------------------------------------

    def at(self, moment, what, *words):
        heapq.heappush(self.events, (moment, next(self.count), what, words))

    def live(self):
        """Go from event to event, with the passes that are due in between, to the end of the days."""
        world = self.world
        with world.answering():
            while self.events and world.now < self.until:
                due = self.next_pass() if any(world.runs(box) for box in world.living()) else self.until
                if due < self.events[0][0]:
                    world.now = max(world.now, due)
                    self.make_pass()
                else:
                    moment, _, what, words = heapq.heappop(self.events)
                    world.now = max(world.now, moment)
                    what(*words)
        return self

    def next_pass(self):
        """Return when the next pass is due, and somebody there to make it."""
        due = max(_run_due_at(self.world.session, TEN), self.world.now)
        return max(due, min(self.down_until.values()))

    # --- schedulers -------------------------------------------------------------------------------------------------

    def one_is_killed(self, name):
        """Have a scheduler killed in its next pass, between any two writes or calls."""
        self.doomed = name
        self.until_kill = self.chance.randrange(1, 25)

    def make_pass(self):
        world = self.world
        world.write_words()
        up = [name for name, until in self.down_until.items() if until <= world.now]
        for name in self.chance.sample(up, len(up)):
            if self.passed(name):
                return
            world.now += RETRY
        self.seen["passes that nobody made"] += 1

    def passed(self, name):
        """Let one scheduler make the pass that is due; say whether it did."""
        world = self.world
        before = {box.id: len(world.reasons(box.id)) for box in world.living() if world.runs(box)}
        self.in_pass, self.failed = name, set()
        try:
            reap_once(self.sessions[name], TEN)
        except Killed:
            self.seen["killed"] += 1
            self.sessions[name].ledger.close()
            self.sessions[name] = self.opened()
            self.down_until[name] = world.now + self.chance.randrange(2, 30) * MINUTE
            self.alone.append((world.now, min(self.down_until.values())))
            self.failed = set(world.clouds)
            return False
        except CloudgpuError as fault:
            self.seen[f"broken off: {type(fault).__name__}"] += 1
            return False
        finally:
            self.in_pass = False
            self.broken.append((world.now, self.failed))
            self.judge(before)
        self.seen["passes"] += 1
        return True

    def weather(self, account, method):
        """Strike a call of a pass: kill the scheduler, or let the call fail."""
        if not self.in_pass:
            return None
        self.strike()
        self.seen["calls"] += 1
        if self.chance.random() >= FAILING:
            return None
        self.seen["calls that failed"] += 1
        self.failed.add(account)
        kind = self.chance.choice([RateLimited, ProviderUnavailable])
        return kind(f"{method} fails, as one call in twenty does", next="wait")

    def strike(self):
        if self.in_pass and self.until_kill is not None and self.doomed == self.in_pass:
            self.until_kill -= 1
            if self.until_kill <= 0:
                self.until_kill = None
                raise Killed

    # --- people -----------------------------------------------------------------------------------------------------

    def launched(self, number):
        chance, account = self.chance, self.chance.choice(sorted(self.world.clouds))
        box = self.world.launch(f"m{number}", account, by=chance.choice(["gpu", "typing"]), spot=chance.random() < 0.25)
        box.skew = chance.choice([0, 0, 0, -30, 45])
        box.held = box.up
        fate = chance.random()
        if fate < 0.01:
            box.deaf.append((self.world.now + chance.randrange(5, 90) * MINUTE, None))
        elif fate < 0.12:
            begin = self.world.now + chance.randrange(5, 200) * MINUTE
            box.deaf.append((begin, begin + chance.randrange(1, 120) * MINUTE))
        self.works(box, chance.randrange(1, 3))

    def works(self, box, sittings):
        """Sit at the machine, some times, with pauses that are shorter than the policy's hour; then forget it."""
        chance = self.chance
        if self.world.runs(box) and not box.over:
            minutes = chance.randrange(5, 120)
            self.world.use(box, minutes)
            if chance.random() < 0.1:
                self.holds(box, minutes + chance.randrange(30, 240))
            done = self.world.now + minutes * MINUTE
            if sittings > 1:
                self.at(done + chance.randrange(0, 55) * MINUTE, self.works, box, sittings - 1)
            elif chance.random() < 0.2:
                self.at(done + chance.randrange(0, 30) * MINUTE, self.ends, box)
        self.at(self.world.now + chance.randrange(4, 10) * 60 * MINUTE, self.comes_back, box)

    def holds(self, box, minutes):
        until = (self.world.now + minutes * MINUTE).replace(microsecond=0)
        set_hold(self.world.session, self.machine(box), until)
        box.held = until  # a hold replaces the one before, longer or not

    def comes_back(self, box):
        """Start it once more where it was stopped, or be done with it; one that nobody hears runs on."""
        if box.over or (self.world.runs(box) and not box.lives(self.world.now)):
            return
        if not self.world.runs(box) and self.chance.random() < 0.3 and self.world.now < self.until - timedelta(days=4):
            start_machine(self.world.session, self.machine(box), None, wait=False)
            box.provider_id, box.up = self.machine(box).provider_id, self.world.now
            box.held = box.up
            self.works(box, self.chance.randrange(1, 3))
        elif not self.world.runs(box):
            self.is_done(box)

    def is_done(self, box):
        if not box.over:
            self.seen["machines that their people ended"] += self.world.runs(box)
            terminate_one(self.world.session, self.machine(box), why="asked")
            box.over = True

    def ends(self, box):
        if self.world.runs(box) and not box.over:
            stop(self.world.session, self.machine(box), why="asked")

    def machine(self, box):
        return self.world.session.ledger.machine(box.id)

    # --- the judge --------------------------------------------------------------------------------------------------

    def judge(self, before):
        """Note each machine that this pass has ended, by what rule, and how long nobody had used it."""
        world, now = self.world, self.world.now
        for box in world.living():
            if box.id not in before or world.runs(box):
                continue
            by_cloud = world.instance_wish(box) is None
            new = world.reasons(box.id)[before[box.id] :]
            assert by_cloud or (new and all(why for _, _, why in new)), f"{box.name} ended without a reason"
            rule = "timer" if by_cloud else self.machine(box).decision.rule
            excused = max([box.up, box.held, *(stop for _, stop in box.deaf if stop and stop <= now)])
            self.ended.append((box, rule, now, now - box.last_used(now), excused))
            self.seen[f"ended by {rule}"] += 1
            assert rule in ("timer", "renew-until") or box.held <= now, f"{box.name} was ended by {rule} and is held"
            assert rule in ("timer", "renew-until") or not box.is_used(now - WINDOW + 2 * MINUTE, now - MINUTE), (
                f"{box.name} was ended by {rule} while it was used"
            )
            assert not box.is_used(now - MINUTE, now) or rule in ("timer", "renew-until")


@pytest.fixture(scope="module")
def lab():
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if memory.is_dir() else None) as directory:
        begun = time.process_time()
        lived = Month(Path(directory) / "home").live()
        lived.cpu = time.process_time() - begun
        print(sorted(lived.seen.items()), f"{lived.cpu:.0f} s of CPU")  # noqa: T201  (`-s` shows what was lived through)
        yield lived


def heard(lab):
    """Return the ends of machines whose agents could be heard at the end, with how long each was billed idle.

    Without the time in which both schedulers were dead, and an interval for each pass that the storm has broken.
    """
    found = [(box, rule, at, max(at - idle, excused)) for box, rule, at, idle, excused in lab.ended]
    return [
        (box, rule, at, at - since - alone(lab, since, at) - broken(lab, box.account, since, at))
        for box, rule, at, since in found
        if box.lives(at)
    ]


def broken(lab, account, since, until):
    """Return the intervals of the passes of that time in which a call to this cloud failed, or which were killed."""
    return TEN * sum(since <= at < until and account in accounts for at, accounts in lab.broken)


def alone(lab, since, until):
    """Return for how long nobody could make a pass in that time."""
    spans = ((max(since, begin), min(until, end)) for begin, end in lab.alone)
    return sum((end - begin for begin, end in spans if end > begin), timedelta())


def test_every_machine_was_ended_within_90_minutes_of_its_last_use(lab):
    ends = heard(lab)
    assert not sorted((late, box.name, rule) for box, rule, _, late in ends if late > BOUND)
    assert len(ends) > MACHINES / 2


def test_the_storm_delayed_few_machines_for_longer(lab):
    ends = [at - max(at - idle, excused) for box, _, at, idle, excused in lab.ended if box.lives(at)]
    assert sum(late > BOUND for late in ends) <= len(ends) // 50


def test_a_machine_that_nobody_could_hear_ended_with_its_clouds_timer(lab):
    for box, rule, at, _, _ in lab.ended:
        if not box.lives(at):
            assert rule in ("timer", "renew-until", "lease"), rule
            assert at <= box.up + timedelta(hours=72) + TEN


def test_nothing_runs_on_that_nobody_uses(lab):
    now = lab.world.now
    for box in lab.world.living():
        if lab.world.runs(box) and box.lives(now):
            assert now - max(box.last_used(now), box.held, box.up) <= BOUND


def test_the_ledger_is_whole_and_says_what_the_clouds_say(lab):
    session = lab.world.session
    assert session.ledger.verify().faults == ()
    for box in lab.world.boxes.values():
        found = lab.world.instance(box)
        if found is not None and found.state is not State.TERMINATED:
            assert from_iso(lab.machine(box).renew_until) > lab.world.now or not found.billed


def test_the_storm_was_one(lab):
    assert lab.seen["killed"] > 20
    assert lab.seen["calls that failed"] > lab.seen["calls"] * FAILING * 0.8
    assert lab.seen["ended by idle"] > MACHINES / 2
