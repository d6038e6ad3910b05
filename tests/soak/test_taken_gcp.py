"""Google takes a Spot machine back at every stage of its life, on our model of it: nothing lost, nothing left."""

from __future__ import annotations

import pytest

from tests.cli.many import Many
from tests.clouds.gcp.fixtures import gcp, gcp_process
from tests.soak.crash import check_each
from tests.soak.crash_gcp import HEADLINE, SDK, GcpLife, moments

__all__ = ["gcp", "gcp_process"]
pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]
VERBS = {"stop": ("--yes",), "start": ("--yes", "--no-wait"), "down": ("--yes",)}


@pytest.fixture(scope="module")
def forks():
    many = Many.open(*SDK)
    yield many
    many.close()


@pytest.fixture
def life(gcp, tmp_path, forks):
    """Make a home with one spot machine, stopped for a start; return its name, too."""
    number = iter(range(1000))

    def make(verb):
        one = GcpLife(gcp, tmp_path / str(next(number)) / "home", forks)
        name = one.done(*HEADLINE)["machine"]["name"]
        if verb == "start":
            one.done("stop", name, "--yes")
        return one, name

    return make


@pytest.mark.parametrize("verb", VERBS)
def test_a_machine_that_is_taken_in_the_middle_of_a_verb_keeps_its_disk_and_leaves_nothing(life, verb):
    one, name = life(verb)
    points = moments(one.counted(verb, name, *VERBS[verb]), reads=True)[::3]

    def case(point):
        one, name = life(verb)
        came = one.interrupted(verb, name, *VERBS[verb], at=point)
        one.check_known()
        if verb != "down":
            one.done("start", name, "--yes", "--no-wait")
            assert [one.server.status(id_) for id_ in one.server.instances()] == ["RUNNING"]
        one.check_down_leaves_nothing()
        return came

    assert check_each(points, case) >= 0.7 * len(points)  # what a wait polls differs from run to run
