"""`up`, `stop`, `start` and `down` on our model of AWS, killed at every call that they make to it; it never was AWS."""

from __future__ import annotations

import pytest

from tests.clouds.aws.fixtures import aws, aws_process
from tests.soak.crash import check_each
from tests.soak.crash_aws import HEADLINE, ON_DEMAND, READS, AwsLife, moments

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


def test_the_headline_killed_at_every_change_is_finished_by_the_same_up_without_a_look(life):
    points = [point for point in moments(life().counted(*HEADLINE)) if not point.action.startswith(READS)]

    def case(point):
        one = life()
        died = one.killed(*HEADLINE, at=point)
        one.check_one()  # by the token of the saved call: nothing has been listed yet
        assert len(one.server.instances()) == 1, "the same call made a second machine"
        one.check_known()
        one.check_down_leaves_nothing()
        return died

    assert check_each(points, case) == len(points)


def test_the_second_zone_after_a_refusal_killed_at_every_change_leaves_one_known_machine_at_most(life):
    def full(one):
        one.server.offer("p3.2xlarge", "us-east-1c")
        one.server.faults.add("RunInstances", error="InsufficientInstanceCapacity", zone="us-east-1b", times=99)
        return one

    actions = full(life()).counted(*HEADLINE)
    assert actions.count("RunInstances") == 2
    points = [point for point in moments(actions) if point.action in ("RunInstances", "GetServiceQuota")]

    def case(point):
        one = full(life())
        died = one.killed(*HEADLINE, at=point)
        one.check_known()
        one.check_one()
        assert [machine.availability_zone for machine in one.server.instances()] == ["us-east-1c"]
        one.check_down_leaves_nothing()
        return died

    assert check_each(points, case) == len(points)


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_on_demand_killed_at_every_call_is_finished_by_the_next(life, verb):
    def ready(one):
        name = one.done(*ON_DEMAND)["machine"]["name"]
        if verb == "start":
            one.done("stop", name, "--yes")
        return name

    one = life()
    name = ready(one)
    points = moments(one.counted(verb, name, *VERBS[verb][1:]))

    def case(point):
        one = life()
        name = ready(one)
        died = one.killed(verb, name, *VERBS[verb][1:], at=point)
        one.check_known()
        if verb != "down":
            one.done(verb, name, *VERBS[verb][1:])
            assert [machine.state for machine in one.living()] == [{"stop": "stopped", "start": "running"}[verb]]
        one.check_one(ON_DEMAND)
        one.check_down_leaves_nothing()
        return died

    assert check_each(points, case) >= 0.8 * len(points)  # what a wait polls differs from run to run


def test_the_end_of_a_spot_machine_killed_at_every_call_leaves_nothing_after_the_next(life):
    one = life()
    one.done(*HEADLINE)
    points = moments(one.counted("down", "--all", "--yes"))

    def case(point):
        one = life()
        one.done(*HEADLINE)
        died = one.killed("down", "--all", "--yes", at=point)
        one.check_known()
        if point.phase == "after":
            one.check_one()  # a launch in between does not hide what the end has left
        one.check_down_leaves_nothing()
        return died

    assert check_each(points, case) >= 0.8 * len(points)
