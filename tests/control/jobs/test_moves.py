"""A running spot machine of a job with a deadline is left for a cheaper zone, and not for prices that alternate."""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from itertools import pairwise

import pytest

from tests.control.jobs.test_deadlines import Spot, runs

HOLDS = """
import os, pathlib, sys, time
record = pathlib.Path(sys.argv[1])
kept, results = pathlib.Path(os.environ["CLOUDGPU_CHECKPOINT"]), pathlib.Path(os.environ["CLOUDGPU_RESULTS"])
for place in (kept, results):
    place.mkdir(parents=True, exist_ok=True)
done = max((int(one.name) for one in kept.iterdir() if one.name.isdecimal()), default=0)
with record.open("a") as file:
    file.write(f"begin {done}\\n")
offset = -1.0
while pathlib.Path(str(record) + ".hold").exists():
    try:
        now = float(record.with_name("offset").read_text())
    except (OSError, ValueError):
        now = 0.0
    if now == offset:
        time.sleep(0.01)
        continue
    offset, done = now, done + 1
    part = kept / f"{done}.tmp"
    part.write_text(str(done))
    os.utime(part, (time.time() + offset,) * 2)
    part.rename(kept / str(done))
results.joinpath("answer").write_text("20")
"""


class Market(Spot):
    """A world whose spot prices change; its command writes a checkpoint each time that the clock is moved."""

    def __init__(self, root, monkeypatch):
        super().__init__(root, monkeypatch)
        (self.work / "train.py").write_text(HOLDS)
        self.told, self.written = {}, 0

    def costs(self, kind, zone, usd):
        """Let spot cost so much from now on."""
        now = self.clock()
        self.told.setdefault(zone, []).append((now, usd))
        self.cloud.set_spot_price(kind, zone, str(usd), now)

    def begins(self, **options):
        self.hold()
        job = self.due(work="20h", deadline="60h", **options)
        self.child(job, until=runs)
        self.steps_done(job)
        return job

    def passes(self, job, hours, each=None):
        """Let time pass while somebody watches every twenty minutes; `each` is called before each look."""
        for number in range(round(hours * 3)):
            if each is not None:
                each(number)
            known = self.checkpoints(job)
            self.clock.advance(1200)
            end = time.monotonic() + 20
            while self.checkpoints(job) <= known and time.monotonic() < end:
                time.sleep(0.01)
            self.carry(job)
            if self.now(job).attempts[-1].move is not None:
                self.child(job, until=lambda found: runs(found) and found.job.attempt.move is None)
                self.steps_done(job)
            self.at_most_one()

    def checkpoints(self, job):
        home = self.machines.home(self.machine(job).provider_id)
        return max((int(one.name) for one in home.rglob("checkpoint/*") if one.name.isdecimal()), default=0)

    def roundings(self, said):
        return super().roundings(said) + sum(map(len, self.told.values()))

    def cloud_cost(self, said):
        """Nano-dollars, by the cloud's own record and the prices that it was told."""
        total = 0.0
        for one in said["machines"]:
            ends = filter(None, (one["taken_at"], one["asked_at"] if one["requested"] == "terminated" else None))
            begun, ended = datetime.fromisoformat(one["made_at"]), datetime.fromisoformat(min(ends))
            prices = [(begun, 0.9), *sorted(self.told.get(one["zone"], []))]
            for (since, usd), (until, _) in zip(prices, [*prices[1:], (ended, 0)], strict=True):
                span = min(until, ended) - max(since, begun)
                total += max(0.0, span.total_seconds()) * usd * 1e9 / 3600
        return total


@pytest.fixture
def world(tmp_path, monkeypatch):
    made = Market(tmp_path / "0", monkeypatch)
    yield made
    made.session.ledger.close()
    made.machines.end()


def neighbour(zone):
    return {"a": zone[:-1] + "b", "b": zone[:-1] + "a"}[zone[-1]]


@pytest.mark.soak
def test_a_zone_that_gets_much_cheaper_is_moved_to_once_and_the_work_goes_with_it(world):
    job = world.begins()
    first = world.machine(job)
    other = neighbour(first.zone)
    world.passes(job, 0.4)
    world.costs(first.instance_type, other, 0.2)
    world.passes(job, 5)
    done = world.checkpoints(job)
    world.hold(on=False)
    world.child(job)
    job = world.is_done(job)
    assert world.markets() == [("spot", first.zone), ("spot", other)]
    assert [(one.moved, one.interrupted) for one in job.attempts] == [(True, False), (False, False)]
    assert f"$0.20 an hour in {other} and $0.90 in {first.zone}" in job.attempts[0].why
    assert job.interruptions == 0
    begun = [int(line.split()[1]) for line in world.record.read_text().splitlines()]
    assert begun[0] == 0
    assert 4 < begun[1] < done


@pytest.mark.soak
def test_prices_that_alternate_move_nothing(world):
    job = world.begins()
    first = world.machine(job)
    other = neighbour(first.zone)

    def alternates(number):
        if number % 3 == 0:
            cheap = number % 6 == 0
            world.costs(first.instance_type, other, 0.2 if cheap else 0.9)
            world.costs(first.instance_type, first.zone, 0.9 if cheap else 0.2)

    world.passes(job, 6, alternates)
    world.hold(on=False)
    world.child(job)
    job = world.is_done(job)
    assert world.markets() == [("spot", first.zone)]


@pytest.mark.soak
def test_a_job_that_names_its_zone_stays_there(world):
    job = world.begins(zone="north-b")
    first = world.machine(job)
    assert first.zone == "north-b"
    world.costs(first.instance_type, "north-a", 0.1)
    world.passes(job, 4)
    assert world.markets() == [("spot", "north-b")]


@pytest.mark.soak
def test_prices_are_asked_for_once_in_a_quarter_of_an_hour(world, monkeypatch):
    job = world.begins()
    asked = []
    monkeypatch.setattr(
        "cloudgpu.control.jobs.deadline.choice.reason_to_move", lambda *_args: asked.append(world.clock()) and None
    )
    world.passes(job, 2)
    world.carry(job, 2)
    assert 4 <= len(asked) <= 7
    assert min(two - one for one, two in pairwise(asked)) >= timedelta(minutes=15)
