"""`up`, `stop`, `start` and `down` on our model of RunPod, killed before and after every change that they ask of it."""

from __future__ import annotations

import pytest

from tests.cli.many import Many
from tests.clouds.runpod.fixtures import runpod, runpod_process
from tests.soak.crash import check_each
from tests.soak.crash_runpod import HEADLINE, SDK, RunpodLife, moments

__all__ = ["runpod", "runpod_process"]
pytestmark = pytest.mark.timeout(900)
VERBS = {
    "stop": ("--yes",),
    "start": ("--yes", "--no-wait", "--no-guard", "--lease", "9h", "--renew-until", "4d"),
    "down": ("--yes",),
}


@pytest.fixture(scope="module")
def forks():
    many = Many.open(*SDK)
    yield many
    many.close()


@pytest.fixture
def life(runpod, tmp_path, forks):
    """Make a home that nobody has used, and a cloud in which nothing is."""
    number = iter(range(1000))
    return lambda: RunpodLife(runpod, tmp_path / str(next(number)) / "home", forks)


@pytest.mark.soak
def test_up_killed_before_and_after_its_call_makes_one_known_pod_at_most(life):
    points = moments(life().counted(*HEADLINE))
    assert [(point.action, point.phase) for point in points] == [("pods.create", "before"), ("pods.create", "after")]

    def case(point):
        one = life()
        died = one.killed(*HEADLINE, at=point)
        one.check_known()
        if point.phase == "before":
            one.check_closed()
        else:
            one.check_one()
            one.check_down_leaves_nothing()
        return died

    assert check_each(points, case) == len(points)


@pytest.mark.soak
@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_killed_before_and_after_its_change_is_finished_by_the_next(life, verb):
    def ready(one):
        name = one.done(*HEADLINE)["machine"]["name"]
        if verb == "start":
            one.done("stop", name, "--yes")
        return name

    one = life()
    name = ready(one)
    points = moments(one.counted(verb, name, *VERBS[verb]))
    assert len(points) == 2

    def case(point):
        one = life()
        name = ready(one)
        died = one.killed(verb, name, *VERBS[verb], at=point)
        one.check_known()
        if verb != "down":
            one.done(verb, name, *VERBS[verb])
            states = [one.server.pod(id_).status for id_ in one.server.pods()]
            assert states == [{"stop": "EXITED", "start": "RUNNING"}[verb]]
            one.check_down_leaves_nothing()
        else:
            one.check_a_later_down_leaves_nothing()
        return died

    assert check_each(points, case) == len(points)
