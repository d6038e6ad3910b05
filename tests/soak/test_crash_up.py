"""`up --no-wait`, killed at every write and send it makes: never two machines, never one nobody knows."""

from __future__ import annotations

import pytest

from tests.soak.crash import Life, check_each, needs_strace, points_of

CHUNKS = 4
EVERY = 2  # of a later up: most of its calls are those of the first
pytestmark = [pytest.mark.soak, needs_strace]
UP = ("up", "--yes", "--no-wait")


@pytest.mark.timeout(900)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_the_first_up_of_all_killed_anywhere_leaves_one_known_machine_at_most(tmp_path, chunk):
    calls = _counted(Life(tmp_path / "counted"))
    points = points_of(calls)[chunk::CHUNKS]

    def case(point):
        life = Life(tmp_path / f"home-{point.call}-{point.nth}")
        try:
            died = life.traced(*UP, at=point)
            life.check_after_a_kill(machine_expected=False)
        finally:
            life.end()
        return died

    assert len(points) > CHUNKS, calls
    assert check_each(points, case) >= 0.9 * len(points)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("chunk", range(2))
def test_a_later_up_killed_anywhere_leaves_one_known_machine_at_most(tmp_path, chunk):
    life = Life(tmp_path / "home")

    def case(point):
        try:
            died = life.traced(*UP, at=point)
            life.check_after_a_kill(machine_expected=False)
        finally:
            life.end()
        return died

    _counted(life)
    calls = _counted(life)
    points = points_of(calls)[chunk :: 2 * EVERY]
    assert check_each(points, case) >= 0.9 * len(points)


def _counted(life: Life) -> list[str]:
    try:
        calls = life.counted(*UP)
        life.check_down_leaves_nothing()
    finally:
        life.end()
    return calls
