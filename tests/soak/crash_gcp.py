"""Kills the command at a call that it makes to our model of Google Cloud, and says what must hold afterwards.

How, see crash_cloud. What there is is read back from the model, never by the product.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.cli.many import Many
from tests.clouds.gcp.server import GcpServer
from tests.soak import crash_cloud
from tests.soak.crash_cloud import CloudLife, Moment

REGION = "us-central1"
CONFIG = f'provider = "gcp"\naddress_services = []\n[accounts.lab]\nprovider = "gcp"\nregions = ["{REGION}"]\n'
HEADLINE = ("up", "--gpu", "t4", "--spot", "--ssh-from", "203.0.113.7/32", "--no-wait", "--yes")
READS = ("get", "list", "aggregatedList", "wait", "testIamPermissions")
SDK = ("google.cloud.compute_v1", "google.auth.transport.requests", "cloudgpu.providers.gcp.provider")
AT_ONCE = -1.0  # an operation that is done when it is answered: the command has nothing to wait for


def moments(actions: list[str], *, reads: bool = False) -> list[Moment]:
    """Return where to kill a command that makes these calls: at each change, and at each read if that is asked."""
    points = crash_cloud.moments(actions, _is_read)
    return [point for point in points if reads or not _is_read(point.action)]


def _is_read(action: str) -> bool:
    return action.rpartition(".")[2].startswith(READS)


class GcpLife(CloudLife):
    """One home with an account at the model, its commands, and what must hold."""

    def __init__(self, server: GcpServer, home: Path, many: Many) -> None:
        server.reset()
        server.dwell(operation=AT_ONCE)
        super().__init__(server, home, CONFIG, many)

    def take(self) -> None:
        """Let Google take the spot machines."""
        for machine in self.server.instances(live=True):
            self.server.interrupt(machine)

    # What Google has, without the product.

    def ids(self) -> list[str]:
        """Return the cloudgpu-id of each machine, whatever its state."""
        return [self.server.instance(one)["labels"]["cloudgpu-id"] for one in self.server.instances()]

    def owners(self) -> set[str]:
        """Return the cloudgpu-id of all that costs money; empty for what bears none."""
        kinds = ("instances", "disks", "snapshots", "images")
        found = [one for kind in kinds for one in self.server.model.of(kind).values()]
        return {one.get("labels", {}).get("cloudgpu-id", "") for one in found}

    def doors(self) -> list[str]:
        """Return the rules that let somebody in to a machine of ours."""
        return [name for name in self.server.firewalls() if not name.startswith("cloudgpu-shut-")]

    # What must hold.

    def check_known(self) -> list[dict[str, Any]]:
        """At most one machine, and the ledger knows it, and is right; return what `ls --refresh` shows."""
        seen: list[dict[str, Any]] = self.done("ls", "--refresh")["machines"]
        assert len(self.ids()) <= 1
        assert self.owners() <= {one["id"] for one in seen}, "Google has something that the ledger does not know"
        for machine in self.server.instances():
            assert not self.server.allows(machine, "198.51.100.1"), "a machine was open to everybody"
        assert self.done("cost", "--verify")["errors"] == []
        return seen

    def check_one(self) -> None:
        """The same `up` again: one machine, and it is the one that is said."""
        again = self.done(*HEADLINE)["machine"]
        assert self.ids() == [again["id"]]
        assert len(self.doors()) == 1

    def check_down_leaves_nothing(self) -> None:
        """`down` ends all that costs money; a rule that a kill has left costs nothing, and `orphans` names it."""
        self.done("down", "--all", "--yes")
        assert self.server.billable() == []
        assert self.done("ls")["machines"] == []
        named = {one["id"].rpartition("/")[2] for one in self.done("orphans")["orphans"]} if self.doors() else set()
        assert set(self.doors()) == named
        self.check_no_saved_call()
