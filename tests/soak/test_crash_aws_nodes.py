"""`up --nodes 4` on our model of AWS, killed at every change that it makes there: four machines or none, no part."""

from __future__ import annotations

import pytest

from cloudgpu.core.model.cluster import tags_of_node
from tests.clouds.aws.fixtures import aws, aws_process
from tests.clouds.aws.plain import client
from tests.soak.crash import check_each
from tests.soak.crash_aws import READS, REGION, AwsLife, moments

__all__ = ["aws", "aws_process"]
pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]
NODES = 4
UP = (
    "up", "--nodes", str(NODES), "--engine", "none", "--gpu", "v100", "--name", "train", "--ssh-from", "203.0.113.7/32",
    "--no-wait", "--yes",
)  # fmt: skip
SHARED = ("CreatePlacementGroup", "DeletePlacementGroup", "DeleteSecurityGroup")


class ClusterLife(AwsLife):
    """A home whose one cluster is there whole, or not at all."""

    def tags(self):
        """Return the tags of each living machine, by what AWS says of it: its tags and its launch index."""
        return [
            tags_of_node({tag["key"]: tag["value"] for tag in one.get_tags()}, one.ami_launch_index)
            for one in self.living()
        ]

    def ids(self):
        return [tags["cloudgpu-id"] for tags in self.tags()]

    def check_whole(self):
        """All nodes or none, all of them known to the ledger, each with one row; the ledger's chain is right."""
        seen = self.done("ls", "--refresh")["machines"]
        assert len(self.living()) in (0, NODES)
        assert sorted(self.ids()) == sorted(one["id"] for one in seen if one["state"] != "unknown")
        assert self.done("cost", "--verify")["errors"] == []

    def check_one_cluster(self):
        """The same `up` again: these four machines, and no other was ever made."""
        again = self.done(*UP)
        assert sorted(one["id"] for one in again["nodes"]) == sorted(self.ids())
        assert len(again["nodes"]) == NODES
        assert len(self.server.instances()) == NODES, "the same call made more machines"
        assert {one.id for one in self.living()} <= set(self.timers())

    def check_nothing_left(self, *, cleaned=False):
        self.check_down_leaves_nothing()
        if cleaned:  # the machines were proved gone before the kill: what is left is free, and an orphan
            self.done("orphans", "--clean", "--yes")
        ec2 = client(region=REGION)
        assert ec2.describe_placement_groups()["PlacementGroups"] == []
        groups = ec2.describe_security_groups(Filters=[{"Name": "tag-key", "Values": ["cloudgpu-cluster"]}])
        assert groups["SecurityGroups"] == []


@pytest.fixture
def life(aws, tmp_path):
    number = iter(range(1000))
    return lambda: ClusterLife(aws, tmp_path / str(next(number)) / "home")


def test_up_killed_before_and_after_every_kind_of_change_is_one_cluster_after_the_same_up(life):
    actions = life().counted(*UP)
    assert actions.count("RunInstances") == 1
    changes = [point for point in moments(actions) if not point.action.startswith(READS)]
    points = [point for point in changes if point.nth in (1, actions.count(point.action))]
    assert {point.action for point in points} >= {"RunInstances", "CreatePlacementGroup", "CreateSecurityGroup"}

    def case(point):
        one = life()
        died = one.killed(*UP, at=point)
        assert len(one.living()) in (0, NODES)
        one.check_one_cluster()
        if point.phase == "after":
            one.check_nothing_left()
        return died

    assert check_each(points, case) == len(points)


def test_up_killed_around_its_launch_is_whole_for_whoever_looks_next(life):
    """A look finds all four by their own ids, or nothing, before anybody sends the call again."""
    points = [point for point in moments(life().counted(*UP)) if point.action == "RunInstances"]

    def case(point):
        one = life()
        died = one.killed(*UP, at=point)
        one.check_whole()
        one.check_one_cluster()
        one.check_nothing_left()
        return died

    assert check_each(points, case) == len(points) == 2


def test_the_end_of_a_cluster_killed_on_its_way_leaves_nothing_that_the_next_and_a_cleaning_do_not_remove(life):
    one = life()
    one.done(*UP)
    actions = one.counted("down", "--all", "--yes")
    ends = [point for point in moments(actions) if point.action in (*SHARED, "TerminateInstances")]
    points = [point for point in ends if point.action in SHARED or point.nth in (1, NODES)]

    def case(point):
        one = life()
        one.done(*UP)
        died = one.killed("down", "--all", "--yes", at=point)
        one.check_nothing_left(cleaned=True)
        return died

    assert check_each(points, case) >= 0.8 * len(points)
