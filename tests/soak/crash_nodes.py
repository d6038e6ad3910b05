"""What holds of `up --nodes 2` and `down` that are killed at every change, at whatever cloud: all nodes or none.

A life has `check_one_cluster` and `check_nothing_left`; `life` makes one with a cloud in which nothing is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tests.soak.crash import check_each
from tests.soak.crash_cloud import Moment

NODES = 2
DOWN = ("down", "--all", "--yes")
Life = Callable[[], Any]
Moments = Callable[[list[str]], list[Moment]]


def check_the_same_up_completes(life: Life, up: Sequence[str], moments: Moments, launch: str) -> None:
    """Kill `up` before and after each change: the same `up` has the two nodes. `launch` is the call of one node."""
    points = moments(life().counted(*up))
    assert [one.action for one in points].count(launch) == 2 * NODES

    def case(point: Moment) -> bool:
        one = life()
        died = one.killed(*up, at=point)
        assert len(one.ids()) <= NODES
        one.check_one_cluster()
        return bool(died)

    assert check_each(points, case) == len(points)


def check_a_down_leaves_nothing(life: Life, up: Sequence[str], moments: Moments) -> None:
    """Kill `up` after each change: `down` leaves nothing."""
    points = [one for one in moments(life().counted(*up)) if one.phase == "after"]

    def case(point: Moment) -> bool:
        one = life()
        died = one.killed(*up, at=point)
        one.check_nothing_left(cleaned=True)
        return bool(died)

    assert check_each(points, case) == len(points)


def check_the_next_down_leaves_nothing(life: Life, up: Sequence[str], moments: Moments) -> None:
    """Kill `down` before and after each change: the next, and a cleaning, leave nothing."""
    one = life()
    one.done(*up)
    points = moments(one.counted(*DOWN))

    def case(point: Moment) -> bool:
        one = life()
        one.done(*up)
        died = one.killed(*DOWN, at=point)
        one.check_nothing_left(cleaned=True)
        return bool(died)

    assert check_each(points, case) == len(points)
