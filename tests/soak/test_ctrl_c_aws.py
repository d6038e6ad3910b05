"""`up` and `down` on our model of AWS, left by Ctrl-C at every call that they make to it; it never was AWS."""

from __future__ import annotations

import pytest

from tests.clouds.aws.fixtures import aws, aws_process
from tests.soak.crash import check_each
from tests.soak.crash_aws import HEADLINE, AwsLife, moments

__all__ = ["aws", "aws_process"]
pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]
DOWN = ("down", "--all", "--yes")


@pytest.fixture
def life(aws, tmp_path):
    """Make a home that nobody has used, and a cloud in which nothing is."""
    number = iter(range(1000))
    return lambda: AwsLife(aws, tmp_path / str(next(number)) / "home")


@pytest.mark.parametrize("settled_by", ["up", "reap"])
def test_a_launch_left_at_every_call_is_settled_by_the_next_command(life, settled_by):
    points = moments(life().counted(*HEADLINE))

    def case(point):
        one = life()
        assert "Interrupted" in one.left(*HEADLINE, at=point)
        if settled_by == "reap":
            one.program("reap")
            one.check_known()
        one.check_one()
        assert len(one.server.instances()) == 1, "a machine was made and ended, which nobody asked for"
        one.check_down_leaves_nothing()
        return True

    assert check_each(points, case) == len(points)


def test_an_end_left_at_every_call_leaves_nothing_after_the_next(life):
    one = life()
    one.done(*HEADLINE)
    points = moments(one.counted(*DOWN))

    def case(point):
        one = life()
        one.done(*HEADLINE)
        assert "Interrupted" in one.left(*DOWN, at=point)
        one.check_known()
        one.check_down_leaves_nothing()
        return True

    assert check_each(points[: int(0.8 * len(points))], case)  # what a wait polls differs from run to run
