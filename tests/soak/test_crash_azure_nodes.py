"""`up --nodes 2` on our model of Azure, killed at every change that it makes there: two machines or none."""

from __future__ import annotations

import pytest

from tests.cli.many import Many
from tests.clouds.azure.fixtures import azure_arm, azure_process
from tests.clouds.azure.model import GROUPS
from tests.soak import crash_nodes
from tests.soak.crash_azure import SDK, SIZE, AzureLife, moments
from tests.soak.crash_nodes import DOWN, NODES

__all__ = ["azure_arm", "azure_process"]
pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]
UP = (
    "up", "--nodes", str(NODES), "--engine", "none", "--instance-type", SIZE, "--name", "train",
    "--ssh-from", "203.0.113.7/32", "--no-wait", "--yes",
)  # fmt: skip


class ClusterLife(AzureLife):
    """A home whose one cluster is there whole, or not at all."""

    def check_one_cluster(self):
        """The same `up` again: these two machines, and no other was ever made."""
        again = self.done(*UP)
        assert sorted(one["id"] for one in again["nodes"]) == sorted(self.ids())
        assert len(again["nodes"]) == len(self.server.instances()) == NODES
        assert {one.tags["cloudgpu-node"] for one in self.living()} == {str(node) for node in range(NODES)}
        assert self.done("cost", "--verify")["errors"] == []

    def check_nothing_left(self, *, cleaned=False):
        """No machine, and none of the groups that its nodes had or shared."""
        self.done(*DOWN)
        assert (self.living(), self.server.billable()) == ([], [])
        assert self.done("ls")["machines"] == []
        self.check_no_saved_call()
        if cleaned and self.groups():  # the machines were proved gone before the kill: what is left is a free orphan
            self.done("orphans", "--clean", "--yes")
        assert self.groups() == []

    def groups(self):
        """Return the resource groups that there are."""
        return self.server.resources(GROUPS)


@pytest.fixture(scope="module")
def forks():
    many = Many.open(*SDK)
    yield many
    many.close()


@pytest.fixture
def life(azure_arm, tmp_path, forks):
    """Make a home that nobody has used, and a cloud in which nothing is."""
    number = iter(range(1000))
    return lambda: ClusterLife(azure_arm, tmp_path / str(next(number)) / "home", forks)


def test_up_killed_at_every_change_is_one_cluster_after_the_same_up(life):
    crash_nodes.check_the_same_up_completes(life, UP, moments, "VirtualMachines.CreateOrUpdate")


def test_up_killed_at_every_change_leaves_nothing_after_a_down(life):
    crash_nodes.check_a_down_leaves_nothing(life, UP, moments)


def test_the_end_of_a_cluster_killed_at_every_change_leaves_nothing_after_the_next_and_a_cleaning(life):
    crash_nodes.check_the_next_down_leaves_nothing(life, UP, moments)
