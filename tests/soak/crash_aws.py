"""Kills the unchanged command at a call that it makes to our model of AWS, and says what must hold afterwards.

How, see crash_cloud. What there is is read back from moto and by plain boto3, never by the product.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.cli.many import shared
from tests.clouds.aws.plain import client, role_of_timers
from tests.clouds.aws.server import AwsServer
from tests.soak import crash_cloud
from tests.soak.crash_cloud import CloudLife, Moment

SDK = ("boto3", "cloudgpu.providers.aws.provider")
REGION = "us-east-1"
CONFIG = (
    f'provider = "aws"\naddress_services = []\n[accounts.lab]\nprovider = "aws"\nregions = ["{REGION}"]\nssh_port = '
)
HEADLINE = ("up", "--gpu", "v100", "--spot", "--ssh-from", "203.0.113.7/32", "--no-wait", "--yes")
ON_DEMAND = tuple(word for word in HEADLINE if word != "--spot")
READS = ("Describe", "Get", "List")


def moments(actions: list[str]) -> list[Moment]:
    """Return where to kill a command that makes these calls."""
    return crash_cloud.moments(actions, lambda action: action.startswith(READS))


class AwsLife(CloudLife):
    """One home with an account at the model, its commands, and what must hold."""

    def __init__(self, server: AwsServer, home: Path, *, ssh: bool = False) -> None:
        server.reset()
        if ssh:
            server.serve_ssh()
        config = f'{CONFIG}{server.ssh_port}\ntimer_role = "{role_of_timers()}"\n'
        super().__init__(server, home, config, shared(*SDK))

    def take(self) -> None:
        """Let AWS take the spot machine."""
        for machine in self.living():
            self.server.interrupt(machine.id)

    # What AWS has, without the product.

    def living(self) -> list[Any]:
        """Return the machines that are not ended, as moto keeps them."""
        return self.server.instances(live=True)

    def ids(self) -> list[str]:
        """Return the cloudgpu-id of each living machine."""
        return [_id_of([{"Key": tag["key"], "Value": tag["value"]} for tag in one.get_tags()]) for one in self.living()]

    def kept(self) -> dict[str, str]:
        """Return the disks, images and what is to become one: the cloudgpu-id of each, empty for none."""
        ec2 = client(region=REGION)
        volumes = {one["VolumeId"]: one for one in ec2.describe_volumes()["Volumes"]}
        snapshots = {one["SnapshotId"]: one for one in ec2.describe_snapshots(OwnerIds=["self"])["Snapshots"]}
        images = {one["ImageId"]: one for one in ec2.describe_images(Owners=["self"])["Images"]}
        return {name: _id_of(one.get("Tags", [])) for name, one in {**volumes, **snapshots, **images}.items()}

    def images(self) -> list[str]:
        """Return the ids of the images."""
        return [name for name in self.kept() if name.startswith("ami-")]

    def requests(self) -> list[str]:
        """Return the spot requests that could have a machine."""
        found = client(region=REGION).describe_spot_instance_requests()["SpotInstanceRequests"]
        return [one["SpotInstanceRequestId"] for one in found if one["State"] in ("open", "active", "disabled")]

    def timers(self) -> list[str]:
        """Return AWS's ids of the machines that have a schedule."""
        return [name.partition(".")[2] for _, _, name in self.server.model.schedules]

    # What must hold.

    def check_known(self) -> list[dict[str, Any]]:
        """At most one machine, and the ledger knows it, and is right; return what `ls --refresh` shows."""
        seen: list[dict[str, Any]] = self.done("ls", "--refresh")["machines"]
        assert len(self.living()) <= 1
        owners = {*self.ids(), *self.kept().values()}
        assert owners <= {one["id"] for one in seen}, "AWS has something that the ledger does not know"
        assert self.done("cost", "--verify")["errors"] == []
        return seen

    def check_one(self, up: tuple[str, ...] = HEADLINE) -> None:
        """The same `up` again: one machine, and it is the one that is said."""
        again = self.done(*up)["machine"]
        assert self.ids() == [again["id"]]
        assert again["guards"]["timer"] in (None, again["renew_until"])
        assert {one.id for one in self.living() if one.state != "stopped"} <= set(self.timers())

    def check_down_leaves_nothing(self) -> None:
        """`down` ends everything that costs money, and no saved call stays in the home."""
        self.done("down", "--all", "--yes")
        assert (self.ids(), self.kept(), self.requests()) == ([], {}, [])
        assert self.done("ls")["machines"] == []
        if self.timers():
            self.done("reap")  # of a machine whose end was recorded by a look
        assert self.timers() == []
        self.check_no_saved_call()


def _id_of(tags: Iterable[dict[str, str]]) -> str:
    return next((tag["Value"] for tag in tags if tag["Key"] == "cloudgpu-id"), "")
