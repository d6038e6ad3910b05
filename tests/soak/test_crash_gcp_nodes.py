"""`up --nodes 2` on our model of Google Cloud, killed at every change that it makes there: two machines or none."""

from __future__ import annotations

import pytest

from tests.cli.many import Many
from tests.clouds.gcp.fixtures import gcp, gcp_process
from tests.soak import crash_nodes
from tests.soak.crash_gcp import SDK, GcpLife, moments
from tests.soak.crash_nodes import DOWN, NODES

__all__ = ["gcp", "gcp_process"]
pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]
UP = (
    "up", "--nodes", str(NODES), "--engine", "none", "--gpu", "t4", "--name", "train", "--ssh-from", "203.0.113.7/32",
    "--no-wait", "--yes",
)  # fmt: skip


class ClusterLife(GcpLife):
    """A home whose one cluster is there whole, or not at all."""

    def check_one_cluster(self):
        """The same `up` again: these two machines, and no other was ever made."""
        again = self.done(*UP)
        assert sorted(one["id"] for one in again["nodes"]) == sorted(self.ids())
        assert len(again["nodes"]) == len(self.inserts()) == NODES
        assert len({self.server.instance(one)["labels"]["cloudgpu-node"] for one in self.server.instances()}) == NODES
        assert self.done("cost", "--verify")["errors"] == []

    def inserts(self):
        """Return the operations that made a machine, of all time."""
        return [one for one in self.server.operations("insert") if "/instances/" in one["targetLink"]]

    def check_nothing_left(self, *, cleaned=False):
        """No machine, and none of the rules that its nodes had or shared."""
        self.done(*DOWN)
        assert (self.ids(), self.server.billable()) == ([], [])
        assert self.done("ls")["machines"] == []
        self.check_no_saved_call()
        if cleaned and self.doors():  # the machines were proved gone before the kill: what is left is a free orphan
            self.done("orphans", "--clean", "--yes")
        assert self.doors() == []


@pytest.fixture(scope="module")
def forks():
    many = Many.open(*SDK)
    yield many
    many.close()


@pytest.fixture
def life(gcp, tmp_path, forks):
    """Make a home that nobody has used, and a cloud in which nothing is."""
    number = iter(range(1000))
    return lambda: ClusterLife(gcp, tmp_path / str(next(number)) / "home", forks)


def test_up_killed_at_every_change_is_one_cluster_after_the_same_up(life):
    crash_nodes.check_the_same_up_completes(life, UP, moments, "compute.instances.insert")


def test_up_killed_at_every_change_leaves_nothing_after_a_down(life):
    crash_nodes.check_a_down_leaves_nothing(life, UP, moments)


def test_the_end_of_a_cluster_killed_at_every_change_leaves_nothing_after_the_next_and_a_cleaning(life):
    crash_nodes.check_the_next_down_leaves_nothing(life, UP, moments)
