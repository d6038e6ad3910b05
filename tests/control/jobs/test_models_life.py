"""Jobs on our models of AWS, Google Cloud and Azure: run to their end, taken away, killed at every change."""

from __future__ import annotations

import pytest

from cloudgpu.control.jobs.reconcile import JobReconciler
from tests.clouds.aws.fixtures import aws, aws_process
from tests.clouds.azure.fixtures import azure_arm, azure_process
from tests.clouds.gcp.fixtures import gcp, gcp_process
from tests.control.jobs.models import OnAws, OnAzure, OnGcp

__all__ = ["aws", "aws_process", "azure_arm", "azure_process", "gcp", "gcp_process"]
CLOUDS = {"aws": ("aws", OnAws), "gcp": ("gcp", OnGcp), "azure": ("azure_arm", OnAzure)}


@pytest.fixture(params=list(CLOUDS))
def world(request, tmp_path):
    fixture, kind = CLOUDS[request.param]
    made = kind(tmp_path / "user", request.getfixturevalue(fixture))
    yield made
    made.end()


def runs(found):
    attempt = found.job.attempt
    return attempt is not None and attempt.began_at is not None


@pytest.mark.parametrize(
    "world", ["aws", *(pytest.param(one, marks=pytest.mark.soak) for one in ("gcp", "azure"))], indirect=True
)
def test_a_job_runs_to_its_end_and_leaves_nothing(world):
    world.ends(world.asked())


def again(world, job, times=1):
    """Carry the job on so often in this process; return how far it came."""
    with JobReconciler(world.session, job.id, world.environ) as carrier:
        for _ in range(times):
            found = carrier.reconcile()
    return found


@pytest.mark.soak
def test_a_restart_waits_for_capacity_and_then_goes_on_with_the_rights_of_a_watcher(world):
    job = world.asked(pause=3)
    world.child(job, until=runs)
    world.watched_elsewhere()
    world.takes(job)
    world.sells_out()
    for _ in range(3):
        found = again(world, job)
        assert (found.job.is_open, found.job.outcome, world.billed()) == (True, None, []), found
    world.restocks()
    world.ends(job, begun=2)
    assert len(world.now(job).attempts) == 2
    world.check_allowed()


@pytest.mark.soak
def test_a_job_with_a_deadline_gets_another_spot_machine_where_its_own_was_taken(world):
    job = world.asked(pause=3, deadline="8h", work="1m", spot_policy="uniform-progress")
    world.child(job, until=runs)
    world.takes(job)
    world.ends(job, begun=2)
    assert [one.market for one in world.now(job).attempts] == ["spot", "spot"]
    assert [one.interrupted for one in world.now(job).attempts] == [True, False]


@pytest.mark.soak
def test_a_job_without_time_to_spare_is_on_demand_from_the_start(world):
    job = world.asked(deadline="8h", work="7h40m")
    world.ends(job)
    assert {one.market for one in world.now(job).attempts} == {"on_demand"}


SWEEPS = [pytest.mark.soak, pytest.mark.timeout(600)]


def sweep(test):
    for mark in SWEEPS:
        test = mark(test)
    return test


@sweep
def test_watchers_that_are_killed_at_every_change_do_nothing_twice(world):
    job = world.asked()
    died = world.killed_at_every_step(job)
    world.is_over(job)
    assert not world.changes - died, died


@sweep
def test_a_restart_whose_watchers_are_killed_at_every_change_is_one_restart(world):
    job = world.asked(pause=3)
    world.child(job, until=runs)
    world.takes(job)
    died = world.killed_at_every_step(job)
    world.is_over(job, begun=2)
    assert not world.changes_of_restart - died, died
