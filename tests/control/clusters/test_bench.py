"""Which machines `bench network` measures: the first two nodes of a cluster, and no two whose traffic is billed."""

from __future__ import annotations

import pytest

from cloudgpu.control.clusters.bench import check_same_zone, first_two_nodes
from cloudgpu.core.model.facts import ClusterNode
from cloudgpu.errors import InvalidRequest
from tests.core.machines import machine

EC2 = {"provider": "aws", "account": "lab", "region": "us-east-1", "zone": "us-east-1a"}


def node(number, cluster="train", **more):
    of = ClusterNode(cluster, f"id-{cluster}", number, 3)
    return machine(id=f"id-{cluster}-{number}", name=f"{cluster}-{number}", cluster=of, **more)


def test_a_cluster_is_measured_at_its_first_two_nodes_whatever_their_order():
    rows = [machine(id="m", name="train-9"), node(2), node(0), node(1), node(0, "other")]
    for name in ("train", "id-train"):
        assert [one.name for one in first_two_nodes(rows, name)] == ["train-0", "train-1"]


def test_a_node_that_is_gone_is_passed_over():
    rows = [node(0), node(1, terminated_at="2026-11-20T00:00:00.000000Z"), node(2)]
    assert [one.name for one in first_two_nodes(rows, "train")] == ["train-0", "train-2"]
    assert first_two_nodes(rows[:2], "train") is None
    assert first_two_nodes(rows, "train-0") is None
    assert first_two_nodes([], "train") is None


def test_traffic_between_zones_is_billed_and_refused():
    near = [machine(name=name, **EC2) for name in ("a", "b")]
    check_same_zone(*near)
    far = [
        machine(name="b", **EC2 | {"zone": "us-east-1b"}),
        machine(name="b", **EC2 | {"region": "us-west-2", "zone": None}),
        machine(name="b", **EC2 | {"account": "other"}),
        machine(name="b", provider="ssh"),
    ]
    for other in far:
        with pytest.raises(InvalidRequest, match="a and b are in different places") as refused:
            check_same_zone(near[0], other)
        assert refused.value.exit_code == 2


def test_own_machines_are_near_whatever_host_they_are_on():
    check_same_zone(
        machine(name="a", provider="ssh", region="desk-1"), machine(name="b", provider="ssh", region="desk-2")
    )
