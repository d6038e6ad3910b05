"""The verbs on our model of Azure, killed at every change that they make there; it never was Azure."""

from __future__ import annotations

import pytest

from tests.cli.many import Many
from tests.clouds.azure.fixtures import azure_arm, azure_process
from tests.soak.crash import check_each
from tests.soak.crash_azure import HEADLINE, ON_DEMAND, SDK, VERBS, AzureLife, moments
from tests.soak.crash_cloud import Moment

__all__ = ["azure_arm", "azure_process"]
PUT = "VirtualMachines.CreateOrUpdate"
pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def forks():
    many = Many.open(*SDK)
    yield many
    many.close()


@pytest.fixture
def life(azure_arm, tmp_path, forks):
    """Make a home that nobody has used, and a cloud in which nothing is."""
    number = iter(range(1000))
    return lambda: AzureLife(azure_arm, tmp_path / str(next(number)) / "home", forks)


def test_the_headline_killed_at_every_change_leaves_one_known_machine_at_most(life):
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


def test_the_headline_killed_at_its_launch_is_finished_by_the_same_up_without_a_look(life):
    points = [Moment(PUT, 1, phase) for phase in ("before", "after")]

    def case(point):
        one = life()
        died = one.killed(*HEADLINE, at=point)
        one.check_one()
        assert len(one.server.instances()) == 1, "the same call made a second machine"
        one.check_down_leaves_nothing()
        return died

    assert check_each(points, case) == len(points)


def test_a_launch_that_finds_no_capacity_killed_at_every_change_leaves_nothing_that_costs(life):
    """The create fails in its operation and leaves a disk: whatever is killed, the next `down` has taken it away."""

    def full(one):
        one.server.stockout()
        return one

    begun = full(life())
    begun.done(*HEADLINE, code=4)
    assert begun.server.billable() == []
    points = moments([call.action for call in begun.server.calls])

    def case(point):
        one = full(life())
        died = one.killed(*HEADLINE, at=point, codes=(4,))
        one.done("down", "--all", "--yes")
        assert one.server.billable() == []
        assert one.done("cost", "--verify")["errors"] == []
        return died

    assert check_each(points, case) >= 0.8 * len(points)


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_killed_at_every_change_is_finished_by_the_next(life, verb):
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
            assert [machine.state for machine in one.living()] == [{"stop": "deallocated", "start": "running"}[verb]]
        one.check_one(ON_DEMAND)
        one.check_down_leaves_nothing()
        return died

    assert check_each(points, case) >= 0.8 * len(points)
