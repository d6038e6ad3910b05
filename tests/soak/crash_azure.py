"""Kills the unchanged command at a call that it makes to our model of Azure, and says what must hold afterwards.

How, see crash_cloud. What there is is read back from the model itself, never by the product.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.cli.many import Many
from tests.clouds.azure.looks import Seen
from tests.clouds.azure.server import AzureServer
from tests.soak import crash_cloud
from tests.soak.crash_cloud import CloudLife, Moment

REGION = "eastus"
CONFIG = f'provider = "azure"\naddress_services = []\n[accounts.lab]\nprovider = "azure"\nregions = ["{REGION}"]\n'
SDK = tuple(
    "azure.mgmt.compute azure.mgmt.network azure.mgmt.resource.resources azure.identity "
    "cloudgpu.providers.azure.provider".split()
)
SIZE = "Standard_NC4as_T4_v3"
ON_DEMAND = ("up", "--instance-type", SIZE, "--ssh-from", "203.0.113.7/32", "--no-wait", "--yes")
HEADLINE = (*ON_DEMAND, "--spot")
VERBS = {"stop": ("stop", "--yes"), "start": ("start", "--yes", "--no-wait"), "down": ("down", "--yes")}
_CHANGES = ("CreateOrUpdate", "Create", "Update", "UpdateTags", "Delete", "Deallocate", "Start", "PowerOff", "Restart")


def is_read(action: str) -> bool:
    """Say whether a call changes nothing."""
    if action.startswith("Token."):
        return True
    verb = action.rpartition(".")[2]
    return not verb.startswith((*_CHANGES, "AttachDetach", "VirtualMachines", "Generalize", "Simulate", "Register"))


def moments(actions: list[str]) -> list[Moment]:
    """Return where to kill a command that makes these calls: before and after each change."""
    return crash_cloud.moments([one for one in actions if not is_read(one)], lambda _: False)


class AzureLife(CloudLife):
    """One home with an account at the model, its commands, and what must hold."""

    def __init__(self, server: AzureServer, home: Path, many: Many) -> None:
        server.reset()
        super().__init__(server, home, CONFIG, many)

    def take(self) -> None:
        """Let Azure take the spot machines."""
        for one in self.living():
            self.server.interrupt(one.id)

    # What Azure has, without the product.

    def living(self) -> list[Seen]:
        """Return the machines that were made and are not on their way out."""
        found: list[Seen] = self.server.instances(live=True)
        return found

    def ids(self) -> list[str]:
        """Return the cloudgpu-id of each living machine."""
        return [one.tags.get("cloudgpu-id", "") for one in self.living()]

    # What must hold.

    def check_known(self) -> list[dict[str, Any]]:
        """At most one machine, and the ledger knows it, and is right; return what `ls --refresh` shows."""
        seen: list[dict[str, Any]] = self.done("ls", "--refresh")["machines"]
        assert len(self.living()) <= 1
        assert set(self.ids()) <= {one["id"] for one in seen}, "Azure has a machine that the ledger does not know"
        assert self.done("cost", "--verify")["errors"] == []
        return seen

    def check_one(self, up: tuple[str, ...] = HEADLINE) -> None:
        """The same `up` again: one machine, and it is the one that is said."""
        again = self.done(*up)["machine"]
        assert self.ids() == [again["id"]]

    def check_down_leaves_nothing(self) -> None:
        """`down` ends everything that costs money, and no saved call stays in the home."""
        self.done("down", "--all", "--yes")
        assert (self.living(), self.server.billable()) == ([], [])
        assert self.done("ls")["machines"] == []
        self.check_no_saved_call()
