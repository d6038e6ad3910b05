"""Which machines are the nodes of a cluster, by name, and how complete it is: from rows alone."""

from __future__ import annotations

from typing import Any

import pytest

from cloudgpu.core.clusters.members import clusters, first_node, members, require_whole_cluster, status
from cloudgpu.core.model.facts import ClusterNode
from cloudgpu.core.model.machine import Machine, command_name
from cloudgpu.errors import InstanceNotFound, InvalidRequest
from tests.core.lives import at
from tests.core.machines import machine, retained

GONE: dict[str, Any] = {"terminated_at": at(60), "state": "terminated", "billed": False}
KEPT: dict[str, Any] = {**GONE, "retained": [retained()]}


def node(number: int, *, of: str = "cg-1", name: str = "train", nodes: int = 4, **facts: Any) -> Machine:
    usual = {"id": f"{of}-{number}", "name": f"{name}-{number}", "cluster": ClusterNode(name, of, number, nodes)}
    return machine(**{"state": "running", "billed": True, **usual, **facts})


def gang(**facts: Any) -> list[Machine]:
    return [node(number, **facts) for number in range(4)]


def test_the_nodes_of_a_name_or_an_id_come_in_their_order_whatever_the_order_of_rows() -> None:
    rows = gang()
    shuffled = [machine(id="cg-9", name="fox"), rows[2], rows[0], rows[3], rows[1]]
    assert members(shuffled, "train") == members(shuffled, "cg-1") == tuple(rows)
    assert members(shuffled, "fox") == members(shuffled, "train-1") == ()


def test_a_living_cluster_wins_over_one_that_has_ended_and_over_one_of_which_disks_are_kept() -> None:
    old, kept, new = gang(of="cg-1", **GONE), gang(of="cg-2", **KEPT), gang(of="cg-3")
    assert members([*old, *new, *kept], "train") == tuple(new)
    assert members([*old, *kept], "train", ended=True) == tuple(kept)
    assert members(old, "train") == ()
    assert members(old, "train", ended=True) == tuple(old)


@pytest.mark.parametrize(
    ("lost", "text"),
    [(None, "4/4"), (GONE, "3/4 degraded"), (KEPT, "4/4"), ({"launch_status": "open", "state": "unknown"}, "4/4")],
)
def test_how_complete_a_cluster_is(lost: dict[str, Any] | None, text: str) -> None:
    rows = [*gang()[:3], node(3, **lost or {})]
    assert status(members(rows, "train")).text() == text


def test_a_launch_that_is_not_settled_is_not_degraded() -> None:
    rows = [node(0), node(1, launch_status="open", state="unknown"), node(2, launch_status="refused", **GONE)]
    assert status(members(rows, "train")).text() == "2/4"


def test_the_clusters_among_rows_are_those_of_several_machines() -> None:
    alone = machine(id="cg-7", name="queue", cluster=ClusterNode("queue", "cg-7", 0, 1, "slurm"))
    rows = [alone, *gang(of="cg-1", **GONE), *gang(of="cg-2")[:2], node(2, of="cg-2", **GONE)]
    assert [[one.id for one in nodes] for nodes in clusters(rows)] == [
        [f"cg-1-{number}" for number in range(4)],
        ["cg-2-0", "cg-2-1"],
    ]
    assert command_name(alone) == "queue"
    require_whole_cluster(alone, "queue", "down")


def test_a_part_is_refused_by_name_and_by_id_and_the_cluster_is_not() -> None:
    one = node(3)
    require_whole_cluster(one, "train", "down")
    require_whole_cluster(one, None, "down")
    for name in ("train-3", "cg-1-3"):
        with pytest.raises(InvalidRequest, match="a part of a cluster has no down of its own") as refused:
            require_whole_cluster(one, name, "down")
        assert refused.value.next == "For all of it: cloudgpu down train"


def test_node_0_is_meant_and_no_other_one_stands_in_for_it() -> None:
    rows = gang()
    assert first_node(rows) is rows[0]
    with pytest.raises(InstanceNotFound, match="train-0 is gone, and train means that node here") as gone:
        first_node(rows[1:])
    assert gone.value.next == "Name another node of it: train-1, train-2, train-3"
