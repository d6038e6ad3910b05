"""AWS takes a spot machine back at every stage of its life, on our model of AWS: nothing lost unasked, nothing left."""

from __future__ import annotations

import pytest

from tests.clouds.aws.fixtures import aws, aws_process
from tests.soak.crash import check_each
from tests.soak.crash_aws import HEADLINE, READS, AwsLife, moments

__all__ = ["aws", "aws_process"]
pytestmark = [pytest.mark.soak, pytest.mark.timeout(1200)]
UP = tuple(word for word in HEADLINE if word != "--no-wait")


@pytest.fixture
def life(aws, tmp_path):
    """Make a home with one spot machine, or one that is parked, or none; return its name, too.

    In every other one AWS does not say when it took the machine: then its spot request is asked.
    """
    numbers = iter(range(1000))

    def make(*, machine=True, parked=False):
        number = next(numbers)
        one = AwsLife(aws, tmp_path / str(number) / "home", ssh=True)
        aws.model.dates_interruptions = number % 2 == 0
        name = one.done(*HEADLINE)["machine"]["name"] if machine else ""
        if parked:
            one.done("stop", name, "--yes")
        return one, name

    return make


def stages(actions):
    """Return the moments to take it at: before each call, of calls that only look every third, after each change."""
    found = moments(actions)
    looks = [point for point in found if point.action.startswith(READS)]
    return [point for point in found if point not in looks or looks.index(point) % 3 == 0]


def test_a_machine_that_is_taken_while_it_comes_up_is_known_and_leaves_nothing(life):
    one, _ = life(machine=False)
    actions = one.counted(*UP)
    launched = actions.index("RunInstances")
    points = [point for point in moments(actions) if is_later(point, actions, launched)]
    assert points

    def case(point):
        one, _ = life(machine=False)
        came = one.interrupted(*UP, at=point)
        one.check_known()
        one.done(*HEADLINE)  # it is there again, or what is left of it is said
        assert len(one.living()) <= 1
        one.check_known()
        one.check_down_leaves_nothing()
        return came

    assert check_each(points, case) >= 0.8 * len(points)


def is_later(point, actions, begin):
    """Say whether the machine is there already at this moment."""
    place = [number for number, action in enumerate(actions) if action == point.action][point.nth - 1]
    return place > begin or (place == begin and point.phase == "after")


def test_a_machine_that_is_taken_while_it_is_parked_keeps_its_disk(life):
    one, name = life()
    points = stages(one.counted("stop", name, "--yes"))

    def case(point):
        one, name = life()
        came = one.interrupted("stop", name, "--yes", at=point)
        one.check_known()
        assert one.kept(), "what was on its disk is lost"
        one.done("stop", name, "--yes")
        assert (one.ids(), len(one.images()), len(one.kept())) == ([], 1, 2)
        one.check_down_leaves_nothing()
        return came

    assert check_each(points, case) >= 0.8 * len(points)


def test_a_machine_that_is_taken_while_it_comes_back_keeps_its_disk(life):
    one, name = life(parked=True)
    actions = one.counted("start", name, "--yes")
    launched = actions.index("RunInstances")
    points = [point for point in moments(actions) if is_later(point, actions, launched)]

    def case(point):
        one, name = life(parked=True)
        came = one.interrupted("start", name, "--yes", at=point)
        one.check_known()
        assert one.kept(), "what was on its disk is lost"
        machine = one.done("start", name, "--yes")
        assert (machine["name"], one.ids()) == (name, [machine["id"]])
        one.check_down_leaves_nothing()
        return came

    assert check_each(points, case) >= 0.8 * len(points)


def test_a_machine_that_is_taken_while_it_is_ended_leaves_nothing(life):
    one, name = life()
    points = stages(one.counted("down", name, "--yes"))

    def case(point):
        one, name = life()
        came = one.interrupted("down", name, "--yes", at=point)
        one.check_known()
        one.check_down_leaves_nothing()
        return came

    assert check_each(points, case) >= 0.8 * len(points)
