"""Jobs with a deadline on machines of a cloud: spot that goes, on demand in time, one machine at a time, the bill."""

from __future__ import annotations

import json
import random
import sys
import time
from datetime import datetime

import pytest

from cloudgpu.control.jobs.reconcile import JobReconciler
from cloudgpu.control.spot.history import history
from cloudgpu.core.jobs.job import State
from tests.control.jobs.clouds import ZONES, Rented
from tests.control.jobs.ssh_cloud import processes

STEPS = """
import fcntl, json, os, pathlib, sys, time
record, pause, steps = pathlib.Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
kept, results = pathlib.Path(os.environ["CLOUDGPU_CHECKPOINT"]), pathlib.Path(os.environ["CLOUDGPU_RESULTS"])
for place in (kept, results):
    place.mkdir(parents=True, exist_ok=True)
with record.with_suffix(".lock").open("a") as lock:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        with record.open("a") as file:
            file.write("twice 0\\n")
        sys.exit(99)
    done = max((int(one.name) for one in kept.iterdir() if one.name.isdecimal()), default=0)
    with record.open("a") as file:
        file.write(f"begin {done}\\n")
    while done < steps:
        if pathlib.Path(str(record) + ".hold").exists() and done >= steps - 1:
            time.sleep(0.02)
            continue
        time.sleep(pause)
        done += 1
        part = kept / f"{done}.tmp"
        part.write_text(str(done))
        part.rename(kept / str(done))
        pathlib.Path(os.environ["CLOUDGPU_PROGRESS"]).write_text(json.dumps({"done": done, "of": steps}))
    results.joinpath("answer").write_text(str(done))
    with record.open("a") as file:
        file.write(f"end {done}\\n")
"""


class Spot(Rented):
    """A cloud with spot machines, and a job that has to be done in time."""

    def __init__(self, root, monkeypatch):
        super().__init__(root, monkeypatch)
        (self.work / "train.py").write_text(STEPS)

    def due(self, *, work="1h", deadline="8h", pause=0.02, steps=20, **options):
        words = {"provider": "fake", "gpu": "v100", "name": "train", "policy": "default", **options}
        argv = (sys.executable, "train.py", str(self.record), str(pause), str(steps))
        return self.begun(*argv, work=work, deadline=deadline, **words)

    def hold(self, *, on=True):
        """Let the command not do its last step, or let it."""
        place = self.record.with_name("record.hold")
        place.touch() if on else place.unlink(missing_ok=True)

    def no_spot(self, *zones):
        (self.root / "no-spot").write_text(" ".join(zones))

    def machine(self, job):
        return self.session.ledger.machine(self.now(job).attempts[-1].machine)

    def steps_done(self, job, least=1, most_s=60):
        """Wait until the command has written so many checkpoints; nobody watches."""
        end = time.monotonic() + most_s
        home = self.machines.home(self.machine(job).provider_id)
        while len([one for one in home.rglob("checkpoint/*") if one.name.isdecimal()]) < least:
            assert time.monotonic() < end
            time.sleep(0.02)

    def on_machine(self, job, name):
        """The one file or folder of this name that the job has on its machine."""
        (found,) = self.machines.home(self.machine(job).provider_id).rglob(name)
        return found

    def taken(self, job):
        """Let the market take the job's machine: its notice, and two minutes later its end."""
        machine = self.machine(job).provider_id
        self.cloud.interrupt(machine)
        self.clock.advance(121)
        end = time.monotonic() + 20
        while processes(self.machines.root / machine):
            assert time.monotonic() < end
            time.sleep(0.02)

    def carry(self, job, times=1):
        with JobReconciler(self.session, job.id, self.environ) as carrier:
            for _ in range(times):
                found = carrier.reconcile()
        return found

    def cloud_cost(self, said):
        """Nano-dollars, by the cloud's own record and prices: $3 an hour on demand, 30% of that on spot."""
        total = 0.0
        for one in said["machines"]:
            ends = filter(None, (one["taken_at"], one["asked_at"] if one["requested"] == "terminated" else None))
            span = datetime.fromisoformat(min(ends)) - datetime.fromisoformat(one["made_at"])
            total += span.total_seconds() * (0.9 if one["market"] == "spot" else 3) * 1e9 / 3600
        return total

    def markets(self):
        said = json.loads(self.machines.state.read_text())["machines"]
        return [(one["market"], one["zone"]) for one in said]

    def is_done(self, job, state=State.SUCCEEDED):
        job = self.now(job)
        assert not job.is_open, self.said
        assert job.state is state, job.why
        assert "twice" not in self.events()
        assert (self.work / "results" / job.name / "answer").read_text() == "20"
        self.nothing_left()
        return job


def runs(found):
    attempt = found.job.attempt
    return attempt is not None and attempt.began_at is not None


@pytest.fixture
def world(tmp_path, monkeypatch):
    made = Spot(tmp_path / "0", monkeypatch)
    yield made
    made.session.ledger.close()
    made.machines.end()


@pytest.mark.soak
def test_a_job_with_time_to_spare_runs_on_spot_alone(world):
    job = world.due()
    world.child(job)
    job = world.is_done(job)
    assert [market for market, _ in world.markets()] == ["spot"]
    assert [one.market for one in job.attempts] == ["spot"]


@pytest.mark.soak
def test_a_job_without_time_to_spare_runs_on_demand_alone(world):
    # its command is done in a second, so its progress soon leaves hours to spare, which adaptive uses for spot
    world.child(job := world.due(work="7h40m", spot_policy="uniform-progress"))
    world.is_done(job)
    assert [market for market, _ in world.markets()] == ["on_demand"]


@pytest.mark.soak
def test_a_machine_that_is_taken_is_replaced_in_another_zone_where_its_own_has_no_capacity(world):
    world.hold()
    job = world.due()
    world.child(job, until=runs)
    first = world.machine(job)
    world.steps_done(job, 5)
    world.clock.advance(700)
    world.carry(job)
    assert world.now(job).saved.work_s > 0
    world.no_spot(first.zone)
    world.taken(job)
    world.hold(on=False)
    world.child(job)
    job = world.is_done(job)
    (one, zone), (two, other) = world.markets()
    assert (one, two, zone, other != zone) == ("spot", "spot", first.zone, True)
    assert job.interruptions == 1
    begun = [line for line in world.record.read_text().splitlines() if line.startswith("begin")]
    assert int(begun[1].split()[1]) >= 5
    (line,) = [one for one in world.session.ledger.events(first.id) if one.kind == "spot_interrupted"]
    assert (line.body["how"], line.body["nanos"] > 0) == ("provider", True)
    kinds = [one.kind for one in history(world.session.ledger)]
    assert kinds.count("taken") == 1
    assert kinds.count("made") == 2


@pytest.mark.soak
def test_a_machine_that_is_gone_without_a_word_is_replaced_and_written_down(world):
    world.hold()
    job = world.due()
    world.child(job, until=runs)
    first = world.machine(job)
    world.takes(job)
    world.hold(on=False)
    world.child(job)
    world.is_done(job)
    (line,) = [one for one in world.session.ledger.events(first.id) if one.kind == "spot_interrupted"]
    assert line.body["how"] == "vanished"


def test_a_notice_brings_a_last_copy_at_once_and_is_written_down(world):
    world.hold()
    job = world.due()
    world.child(job, until=runs)
    first = world.machine(job)
    world.steps_done(job, 19)
    (world.machines.home(first.provider_id) / ".cloudgpu" / "notice").write_text("{}")
    world.clock.advance(30)
    world.carry(job)
    assert world.now(job).saved.checkpoint == "19"
    world.taken(job)
    world.hold(on=False)
    world.child(job)
    world.is_done(job)
    (line,) = [one for one in world.session.ledger.events(first.id) if one.kind == "spot_interrupted"]
    assert (line.body["how"], line.body["noticed_at"] is not None) == ("notice", True)
    assert world.record.read_text().splitlines()[1] == "begin 19"


@pytest.mark.soak
def test_spot_that_cannot_be_had_is_waited_for_until_the_net_takes_on_demand(world):
    world.no_spot(*ZONES)
    job = world.due(spot_policy="greedy")
    found = world.carry(job, 3)
    assert (found.job.is_open, world.billed()) == (True, [])
    for _ in range(30):
        world.clock.advance(600)
        world.carry(job)
        assert world.billed() == []
    world.clock.advance(3600 * 1.7)
    world.child(job)
    job = world.is_done(job)
    assert [market for market, _ in world.markets()] == ["on_demand"]
    assert (len(job.attempts), job.attempts[0].turn) == (1, 1)


@pytest.mark.soak
def test_a_machine_that_falls_silent_is_left_in_time(world):
    world.hold()
    job = world.due(spot_policy="greedy", deadline="4h")
    world.child(job, until=runs)
    home = world.machines.home(world.machine(job).provider_id)
    world.steps_done(job, 5)
    (home / ".cloudgpu").rename(home / "gone")
    world.clock.advance(3600 * 2.5)
    with JobReconciler(world.session, job.id, world.environ) as carrier:
        for _ in range(4):
            carrier.reconcile()
    assert len(world.billed()) <= 1
    world.hold(on=False)
    world.child(job)
    world.is_done(job)
    assert [market for market, _ in world.markets()] == ["spot", "on_demand"]


def moved(world):
    """A job on spot that has to move to on demand now: it is slower than was said."""
    world.hold()
    job = world.due(spot_policy="greedy", deadline="4h")
    world.child(job, until=runs)
    world.steps_done(job, 19)
    job_file = world.home / "jobs" / job.id / "rounds"
    assert job_file.exists()
    world.hold(on=False)
    return job


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in (1, 2))])
def test_watchers_that_are_killed_while_a_job_is_moved_make_no_second_machine(world, seed):
    job = moved(world)
    world.hold()
    world.clock.advance(3600 * 2)  # spot went on, and nothing was saved: what would be lost leaves too little time
    chance = random.Random(seed)
    for _ in range(6):
        world.child(job, chance.randrange(1, 9))
        world.at_most_one()
    world.hold(on=False)
    world.child(job)
    world.is_done(job)


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_a_move_whose_watchers_are_killed_at_every_step_is_one_move(world):
    job = moved(world)
    world.hold()
    world.clock.advance(3600 * 2)
    world.child(job, until=lambda found: found.job.attempts[-1].market == "on_demand" and runs(found))
    world.hold(on=False)
    world.killed_at_every_step(job)
    world.is_done(job)


@pytest.mark.soak
def test_the_plan_reserves_what_the_job_may_take_on_demand(world):
    job = world.due(deadline="10h")
    hours = 10 + 1 + 2  # to the deadline, for a job that is late, for its results
    assert job.spec["planned_max"] >= 3 * hours * 1e9 * 0.99
    world.carry(job)
    machine = world.machine(job)
    assert (machine.market, machine.max_price) == ("spot", 3 * 10**9)
