"""`up`, `stop`, `start`, `down` on our model of vast.ai, killed before and after every change that they ask of it."""

from __future__ import annotations

import pytest

from tests.cli.many import Many
from tests.clouds.vast.fixtures import vast, vast_process
from tests.soak.crash import check_each
from tests.soak.crash_vast import HEADLINE, SDK, VastLife, moments

__all__ = ["vast", "vast_process"]
pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]
NO_CAPACITY = 4
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
def life(vast, tmp_path, forks):
    """Make a home that nobody has used, and a market of which nothing is rented."""
    number = iter(range(1000))
    return lambda: VastLife(vast, tmp_path / str(next(number)) / "home", forks)


def test_up_killed_at_every_change_is_never_sent_twice(life):
    points = moments(life().counted(*HEADLINE))
    assert [one.phase for one in points if one.action == "rent"] == ["before", "after"]

    def case(point):
        one = life()
        died = one.killed(*HEADLINE, at=point)
        one.check_known()
        one.check_one_or_uncertain()
        if one.ids():
            one.check_down_leaves_nothing()
        return died

    assert check_each(points, case) == len(points)


def test_up_killed_at_every_change_after_a_refusal_that_left_a_contract_leaves_nothing(life):
    one = life()
    one.server.refuse_with_contract()
    one.done(*HEADLINE, code=NO_CAPACITY)
    points = moments([call.action for call in one.server.calls])
    assert {one.action for one in points} == {"rent", "destroy"}

    def case(point):
        one = life()
        one.server.refuse_with_contract()
        died = one.killed(*HEADLINE, at=point, codes=(NO_CAPACITY,))
        if point in (points[0], points[-1]):  # nothing is there yet, or no more: ten minutes later, no launch was made
            assert one.ids() == []
            one.check_known()
        else:
            one.check_refusal_leaves_nothing()
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
    points = moments(one.counted(verb, ready(one), *VERBS[verb]))
    assert points

    def case(point):
        one = life()
        name = ready(one)
        died = one.killed(verb, name, *VERBS[verb], at=point)
        one.check_known()
        if verb != "down":
            one.done(verb, name, *VERBS[verb])
            assert [contract.intended for contract in one.server.living()] == [
                {"stop": "stopped", "start": "running"}[verb]
            ]
            one.check_down_leaves_nothing()
        else:
            one.check_a_later_down_leaves_nothing()
        return died

    assert check_each(points, case) == len(points)
