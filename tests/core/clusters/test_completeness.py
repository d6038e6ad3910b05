"""When a part of a cluster must not go on, and which of its nodes are lost: by the rows that the ledger has."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from cloudgpu.core.clusters.completeness import LAUNCH_GRACE, lost_nodes, why_incomplete
from cloudgpu.core.model.facts import ClusterNode, UnrequestedStop
from cloudgpu.core.model.machine import Machine, by_cluster
from tests.core.lives import START, at
from tests.core.machines import machine, retained

LATE = START + LAUNCH_GRACE
GONE: dict[str, Any] = {"terminated_at": at(60), "state": "terminated", "billed": False}


def node(number: int, *, nodes: int = 4, **facts: Any) -> Machine:
    cluster = ClusterNode("train", "cg-1", number, nodes, "slurm")
    usual = {"id": f"cg-1-{number}", "name": f"train-{number}", "token": f"t{number}", "intended_at": at(0)}
    usual |= {"state": "running", "billed": True, "cluster": cluster}
    return machine(**usual | facts)


def with_last(**facts: Any) -> list[Machine]:
    return [*(node(number) for number in range(3)), node(3, **facts)]


def lost(**facts: Any) -> dict[str, Any]:
    return {"unrequested_stop": UnrequestedStop(at(60), 9), **GONE, **facts}


def test_a_whole_cluster_is_no_part_and_neither_is_one_of_which_nothing_lives() -> None:
    assert not why_incomplete(with_last(), LATE + timedelta(days=9))
    none = [node(number, launch_status="refused", **GONE) for number in range(4)]
    assert not why_incomplete(none, LATE + timedelta(days=9))


@pytest.mark.parametrize(
    "facts",
    [
        {"launch_status": "refused", **GONE},
        {"launch_status": "void", **GONE},
        {"launch_status": "open", "state": "unknown", "billed": False},
        {"launch_failed": True, "discard": True, **GONE},
        {"discard": True, **GONE},
    ],
)
def test_a_node_that_never_came_or_was_ended_makes_the_rest_a_part_once_the_grace_is_over(
    facts: dict[str, Any],
) -> None:
    rows = with_last(**facts)
    last = timedelta(seconds=60) if "terminated_at" in facts else timedelta()
    assert not why_incomplete(rows, START + last + LAUNCH_GRACE - timedelta(seconds=1))
    assert why_incomplete(rows, START + last + LAUNCH_GRACE)


def test_machines_of_an_earlier_launch_under_the_same_key_make_no_part_and_are_not_lost() -> None:
    again = at(7200)
    now = START + timedelta(days=1)
    old = [node(2, discard=True, **GONE), node(3, **lost())]
    fewer = [node(number, nodes=2, intended_at=again) for number in range(2)]
    assert not why_incomplete(fewer + old, now)
    assert by_cluster(fewer + old) == {"cg-1": fewer}
    same = [node(number, intended_at=again) for number in range(2)]
    assert not why_incomplete(same + old, now)
    assert not lost_nodes(by_cluster(same + old)["cg-1"])


def test_a_kept_node_whose_start_was_refused_and_one_that_lived_make_no_part() -> None:
    assert not why_incomplete(with_last(launch_status="refused", retained=(retained(),), **GONE), LATE)
    assert not why_incomplete(with_last(launch_status="void", usage_totals={"instance": (1,) * 7}, **GONE), LATE)


def test_a_node_that_is_gone_though_nobody_asked_is_lost_and_makes_no_part() -> None:
    rows = with_last(**lost())
    assert [one.name for one in lost_nodes(rows)] == ["train-3"]
    assert not why_incomplete(rows, LATE + timedelta(days=9))


def test_a_node_that_its_agent_ended_at_its_renew_until_is_not_lost() -> None:
    assert lost_nodes(with_last(**lost(renew_until=at(59)))) == []
    assert len(lost_nodes(with_last(**lost(renew_until=at(61))))) == 1


def test_nothing_is_lost_where_no_other_node_is_billed_any_more() -> None:
    rows = [node(number, **GONE) for number in range(3)] + [node(3, **lost())]
    assert not lost_nodes(rows)


def test_machines_of_no_cluster_are_in_none_and_nodes_come_in_their_order() -> None:
    found = by_cluster([node(2), machine(id="cg-9"), node(0), node(1)])
    assert {one: [row.name for row in some] for one, some in found.items()} == {
        "cg-1": ["train-0", "train-1", "train-2"]
    }
