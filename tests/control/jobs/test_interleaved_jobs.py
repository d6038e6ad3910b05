"""Two computers with one ledger carry a job on, or cancel it, at once, in orders of two switches and with kills.

No machine answers here: a job never begins. What is seen is that there is one machine at most, and in the end none.
"""

from __future__ import annotations

import random
import shutil
from functools import partial

import pytest

from cloudgpu.control.inventory.sync import sync_all
from cloudgpu.control.jobs.cancel import cancel
from cloudgpu.control.jobs.inputs.request import parse_run
from cloudgpu.control.jobs.plan import plan_run, record_request
from cloudgpu.control.jobs.reconcile import JobReconciler
from cloudgpu.control.launch.launch import launch
from cloudgpu.control.session.session import all_jobs
from tests.control.launch.test_interleaved import World
from tests.control.turns import TO_THE_END, Turns


def living(session):
    return [job for job in all_jobs(session).values() if job.is_open]


def run(world, session):
    asked = parse_run(
        workdir=world.work, argv=["true"], environ={}, gpu="v100", policy="default", name="fox", spot=True
    )
    record_request(session, plan_run(session, asked, {}))


def carry(world, session):
    for job in living(session):
        with JobReconciler(session, job.id, {}) as carrier:
            for _ in range(3):
                carrier.reconcile()
                session.pause(1)


def cancelled(world, session):
    for job in living(session):
        cancel(session, job.id, {})


def taken(world, session):
    for one in world.billed():
        world.cloud.terminate(one.id)
    session.pause(120)


BEFORE = {"asked": (run,), "running": (run, carry), "taken": (run, carry, taken)}
PAIRS = [("asked", carry, cancelled), ("running", carry, cancelled), ("running", cancelled, cancelled)]
PAIRS += [("taken", carry, carry), ("taken", cancelled, carry)]


def played(world, before, deeds, turns):
    """Let this happen; return the turns, and check that whoever cancels the job then leaves nothing."""
    world.work = world.place / "work"
    world.work.mkdir()
    for deed in BEFORE[before]:
        deed(world, world.later)
        world.advance(1)
    for number, (session, deed) in enumerate(zip(world.sessions, deeds, strict=True)):
        shutil.copytree(world.later.home.jobs / "snapshots", session.home.jobs / "snapshots")
        cloud = session.provider("lab")
        cloud.launch = world.counted(cloud.launch)
        turns.computer(number, session, world.true, partial(deed, world))
    turns.run()
    said = [error.message for error in turns.said]
    assert world.most <= 1, said
    for _ in range(2):
        world.advance(3600)
        cancelled(world, world.later)
    sync_all(world.later)
    assert (world.billed(), living(world.later)) == ([], []), said
    assert not [row for row in world.later.ledger.machines() if row.billed or row.launch_status == "open"], said
    return turns


@pytest.mark.soak
@pytest.mark.parametrize(("before", "first", "second"), PAIRS)
@pytest.mark.parametrize("kills", [False, True])
def test_a_job_has_one_machine_at_most_and_none_once_it_is_cancelled(
    lab, tmp_path, monkeypatch, before, first, second, kills
):
    monkeypatch.setattr("cloudgpu.control.jobs.attempt.launch", partial(launch, wait=False))
    deeds = (first, second)
    calls = played(World(lab, tmp_path / "alone", 0), before, deeds, Turns(TO_THE_END, 0)).calls
    every = [(n, m) for n in range(1, calls[0] + 1) for m in range(1, calls[1] + 5)]
    for n, m in random.Random(f"{before} {first.__name__} {second.__name__} {kills}").sample(every, 2):
        played(World(lab, tmp_path / f"{n}-{m}", -240), before, deeds, Turns(n, m, kills))
