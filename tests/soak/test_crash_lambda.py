"""`up` and `down` on our model of Lambda Cloud, killed at every call that they make to it; it never was Lambda.

Without the mark, at the launch and at the end alone: that is a part of every run of the tests.
"""

from __future__ import annotations

import pytest

from tests.cli.many import Many
from tests.clouds.lambdalabs.fixtures import lambdalabs, lambdalabs_process
from tests.soak.crash import check_each
from tests.soak.crash_lambda import HEADLINE, MODULES, LambdaLife, moments

__all__ = ["lambdalabs", "lambdalabs_process"]


@pytest.fixture(scope="module")
def forks():
    many = Many.open(*MODULES)
    yield many
    many.close()


@pytest.fixture
def life(lambdalabs, tmp_path, forks):
    """Make a home that nobody has used, and a cloud in which nothing is."""
    number = iter(range(1000))
    return lambda: LambdaLife(lambdalabs, tmp_path / str(next(number)) / "home", forks)


def up_killed(life, *, actions=()):
    points = moments(life().counted(*HEADLINE), reads=not actions)
    points = [point for point in points if point.action in actions or not actions]

    def case(point):
        one = life()
        died = one.killed(*HEADLINE, at=point)
        one.check_known()
        one.check_one()
        one.check_down_leaves_nothing()
        return died

    assert {point.action for point in points} >= set(actions or ("add-key", "launch"))
    assert check_each(points, case) == len(points)


def down_killed(life, *, reads):
    one = life()
    name = one.done(*HEADLINE)["machine"]["name"]
    points = moments(one.counted("down", name, "--yes"), reads=reads)

    def case(point):
        one = life()
        name = one.done(*HEADLINE)["machine"]["name"]
        died = one.killed("down", name, "--yes", at=point)
        one.check_known()
        one.check_down_leaves_nothing()
        return died

    assert {point.action for point in points} >= {"terminate"}
    assert check_each(points, case) >= 0.8 * len(points)  # what a wait polls differs from run to run


@pytest.mark.soak
def test_up_killed_at_its_launch_leaves_one_known_machine_at_most(life):
    up_killed(life, actions=("launch",))


def test_down_killed_at_its_end_leaves_nothing_after_the_next(life):
    down_killed(life, reads=False)


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_up_and_down_killed_at_every_call_leave_one_known_machine_at_most(life):
    up_killed(life)
    down_killed(life, reads=True)
