"""A command killed at its launch or its end on our model of Google Cloud; everywhere: tests/soak/test_crash_gcp."""

from __future__ import annotations

import pytest

from tests.cli.many import Many
from tests.clouds.gcp.fixtures import gcp, gcp_process
from tests.soak.crash_cloud import Moment
from tests.soak.crash_gcp import HEADLINE, SDK, GcpLife

__all__ = ["gcp", "gcp_process"]


@pytest.fixture(scope="module")
def forks():
    many = Many.open(*SDK)
    yield many
    many.close()


@pytest.mark.soak
def test_a_launch_and_an_end_that_were_killed_are_finished_by_the_same_again(gcp, tmp_path, forks):
    life = GcpLife(gcp, tmp_path / "home", forks)
    assert life.killed(*HEADLINE, at=Moment("compute.instances.insert", 1, "after"))
    assert len(gcp.instances()) == 1
    life.check_one()  # by the request id of the saved call: nothing has been listed yet
    assert life.killed("down", "--all", "--yes", at=Moment("compute.instances.delete", 1, "before"))
    assert len(gcp.instances()) == 1
    life.check_known()
    life.check_down_leaves_nothing()
