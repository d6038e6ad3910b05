"""`up`, `stop`, `start` and `down` on our model of AWS, killed at every call that they make to it; it never was AWS."""

from __future__ import annotations

import pytest

from tests.clouds.aws.fixtures import aws, aws_process
from tests.soak.crash import check_each
from tests.soak.crash_aws import HEADLINE, AwsLife, moments

__all__ = ["aws", "aws_process"]
pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]
VERBS = {"stop": ("stop", "--yes"), "start": ("start", "--yes", "--no-wait"), "down": ("down", "--yes")}


@pytest.fixture
def life(aws, tmp_path):
    """Make a home that nobody has used, and a cloud in which nothing is."""
    number = iter(range(1000))
    return lambda: AwsLife(aws, tmp_path / str(next(number)) / "home")


def test_the_headline_killed_at_every_call_leaves_one_known_machine_at_most(life):
    points = moments(life().counted(*HEADLINE))

    def case(point):
        one = life()
        died = one.killed(*HEADLINE, at=point)
        one.check_known()
        one.check_one()
        assert len(one.server.instances()) == 1, "a machine was made and ended, which nobody asked for"
        one.check_down_leaves_nothing()
        return died

    assert check_each(points, case) == len(points)
