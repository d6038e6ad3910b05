"""`stop` that parks and `start` that brings back, on our model of AWS, killed at every call; it never was AWS."""

from __future__ import annotations

import pytest

from tests.clouds.aws.fixtures import aws, aws_process
from tests.soak.crash import check_each
from tests.soak.crash_aws import HEADLINE, AwsLife, moments

__all__ = ["aws", "aws_process"]
pytestmark = [pytest.mark.soak, pytest.mark.timeout(1200)]


@pytest.fixture
def life(aws, tmp_path):
    """Make a home with one spot machine whose SSH answers, and nothing else; return its name, too."""
    number = iter(range(1000))

    def make(*, parked=False):
        one = AwsLife(aws, tmp_path / str(next(number)) / "home", ssh=True)
        name = one.done(*HEADLINE)["machine"]["name"]
        if parked:
            one.done("stop", name, "--yes")
        return one, name

    return make


def check_parked(one):
    """Exactly one image, with its snapshot, and nothing else."""
    assert one.ids() == []
    assert sorted(name.partition("-")[0] for name in one.kept()) == ["ami", "snap"]


def test_a_park_killed_at_every_call_is_finished_by_the_next(life):
    one, name = life()
    points = moments(one.counted("stop", name, "--yes"))
    check_parked(one)

    def case(point):
        one, name = life()
        died = one.killed("stop", name, "--yes", at=point)
        assert one.kept(), "what was on its disk is lost"
        one.check_known()
        assert len(one.images()) <= 1
        one.done("stop", name, "--yes")
        check_parked(one)
        assert one.done(*HEADLINE)["machine"]["name"] == name, "up launches no second one beside what is parked"
        check_parked(one)
        one.check_down_leaves_nothing()
        return died

    assert check_each(points, case) >= 0.8 * len(points)  # what a wait polls differs from run to run


def test_a_park_killed_at_every_change_is_finished_by_a_look(life):
    one, name = life()
    points = [point for point in moments(one.counted("stop", name, "--yes")) if point.phase == "after"]

    def case(point):
        one, name = life()
        died = one.killed("stop", name, "--yes", at=point)
        for _ in range(3):  # each look does what can be done then
            one.check_known()
        if not one.living():
            check_parked(one)
        one.check_down_leaves_nothing()
        return died

    assert check_each(points, case) == len(points)


def test_a_comeback_killed_at_every_call_is_finished_by_the_next(life):
    one, name = life(parked=True)
    points = moments(one.counted("start", name, "--yes"))
    assert one.images() == []

    def case(point):
        one, name = life(parked=True)
        died = one.killed("start", name, "--yes", at=point)
        assert one.kept(), "what was on its disk is lost"
        one.check_known()
        machine = one.done("start", name, "--yes")
        assert (machine["name"], one.ids()) == (name, [machine["id"]])
        # An image whose removal was killed goes when a look has seen the machine run for a quarter of an hour.
        assert len(one.images()) <= 1
        one.check_down_leaves_nothing()
        return died

    assert check_each(points, case) >= 0.8 * len(points)


def test_a_comeback_killed_over_its_launch_is_finished_by_the_same_start_without_a_look(life):
    one, name = life(parked=True)
    points = [point for point in moments(one.counted("start", name, "--yes")) if point.action == "RunInstances"]
    assert len(points) == 2

    def case(point):
        one, name = life(parked=True)
        died = one.killed("start", name, "--yes", at=point)
        machine = one.done("start", name, "--yes")
        assert (machine["name"], one.ids(), one.images()) == (name, [machine["id"]], [])
        assert len(one.server.instances()) == 2, "the first life, the second, and no third"
        one.check_down_leaves_nothing()
        return died

    assert check_each(points, case) == len(points)
