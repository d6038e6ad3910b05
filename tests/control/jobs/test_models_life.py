"""Jobs on our models of AWS, Google Cloud and Azure: run to their end, taken away, killed at every change."""

from __future__ import annotations

import pytest

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


def test_a_job_runs_to_its_end_and_leaves_nothing(world):
    world.ends(world.asked())


def test_a_job_whose_machine_the_cloud_takes_runs_again_on_another(world):
    job = world.asked(pause=1)
    world.child(job, until=runs)
    world.takes(job)
    world.ends(job, begun=2)
    assert len(world.now(job).attempts) == 2
