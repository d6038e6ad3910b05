"""`up`, `stop`, `start` and `down` on our model of Google Cloud, killed at every change that they ask of it."""

from __future__ import annotations

import pytest

from tests.cli.many import Many
from tests.clouds.gcp.fixtures import gcp, gcp_process
from tests.soak.crash import check_each
from tests.soak.crash_gcp import HEADLINE, SDK, GcpLife, moments

__all__ = ["gcp", "gcp_process"]
pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]
VERBS = {
    "stop": ("--yes",),
    "start": ("--yes", "--no-wait", "--lease", "9h", "--renew-until", "4d"),
    "down": ("--yes",),
}


@pytest.fixture(scope="module")
def forks():
    many = Many.open(*SDK)
    yield many
    many.close()


@pytest.fixture
def life(gcp, tmp_path, forks):
    """Make a home that nobody has used, and a cloud in which nothing is."""
    number = iter(range(1000))
    return lambda: GcpLife(gcp, tmp_path / str(next(number)) / "home", forks)


def test_up_killed_at_every_change_leaves_one_known_machine_at_most(life):
    points = moments(life().counted(*HEADLINE))

    def case(point):
        one = life()
        died = one.killed(*HEADLINE, at=point)
        one.check_known()
        one.check_one()
        assert len(one.server.operations("insert")) <= 3, "a machine was made and ended, which nobody asked for"
        one.check_down_leaves_nothing()
        return died

    assert check_each(points, case) == len(points)


def test_up_killed_at_its_launch_is_finished_by_the_same_up_without_a_look(life):
    points = [one for one in moments(life().counted(*HEADLINE)) if one.action == "compute.instances.insert"]
    assert len(points) == 2

    def case(point):
        one = life()
        died = one.killed(*HEADLINE, at=point)
        one.check_one()  # by the request id of the saved call: nothing has been listed yet
        one.check_known()
        one.check_down_leaves_nothing()
        return died

    assert check_each(points, case) == len(points)


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_killed_at_every_change_is_finished_by_the_next(life, verb):
    def ready(one):
        name = one.done(*HEADLINE)["machine"]["name"]
        if verb == "start":
            one.done("stop", name, "--yes")
        return name

    one = life()
    name = ready(one)
    points = moments(one.counted(verb, name, *VERBS[verb]))

    def case(point):
        one = life()
        name = ready(one)
        died = one.killed(verb, name, *VERBS[verb], at=point)
        one.check_known()
        if verb != "down":
            one.done(verb, name, *VERBS[verb])
            assert [one.server.status(id_) for id_ in one.server.instances()] == [
                {"stop": "TERMINATED", "start": "RUNNING"}[verb]
            ]
        one.check_down_leaves_nothing()
        return died

    assert check_each(points, case) == len(
        points
    )  # a start has another lease, so it sets tags and timer anew each time
