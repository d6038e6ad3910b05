"""Kills the command at a call that it makes to our model of Lambda Cloud, and says what must hold afterwards.

How, see crash_cloud. Lambda knows no tokens: what a kill leaves open is settled by a listing ten minutes later, so the
last part is done by the library, with a clock that is so far ahead.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import cloudgpu
from tests.cli.many import Many
from tests.clouds.lambdalabs.server import LambdaServer
from tests.soak import crash_cloud
from tests.soak.crash_cloud import CloudLife, Moment

CONFIG = 'provider = "lambda"\naddress_services = []\n[accounts.lab]\nprovider = "lambda"\n'
WANTED = {"gpu": "a10", "region": "us-east-1", "no_guard": True}
HEADLINE = ("up", "--gpu", "a10", "--region", "us-east-1", "--no-guard", "--no-wait", "--yes")
READS = ("list", "get", "types", "keys")
MODULES = ("urllib3", "cloudgpu.providers.lambdalabs.provider", "cloudgpu.providers.lambdalabs.machines")
UNSURE = 8
LATER = timedelta(minutes=11)


def moments(actions: list[str], *, reads: bool = False) -> list[Moment]:
    """Return where to kill a command that makes these calls: at each change, and at each read if that is asked."""
    points = crash_cloud.moments(actions, lambda action: action in READS)
    return [point for point in points if reads or point.action not in READS]


class LambdaLife(CloudLife):
    """One home with an account at the model, its commands, and what must hold."""

    def __init__(self, server: LambdaServer, home: Path, many: Many) -> None:
        server.reset()
        super().__init__(server, home, CONFIG, many)

    def later(self) -> cloudgpu.Cloudgpu:
        """Return the library at this home, at a time when a listing proves what there is."""
        environ = {"HOME": str(self.home.parent), **self.server.environ}
        return cloudgpu.connect(home=self.home, environ=environ, clock=lambda: self.server.clock.now() + LATER)

    def ids(self) -> list[str]:
        """Return the cloudgpu-id of each machine that lives."""
        living = self.server.instances(live=True)
        return [tag["value"] for one in living for tag in one.asked["tags"] if tag["key"] == "cloudgpu-id"]

    def check_known(self) -> list[dict[str, Any]]:
        """At most one machine, and the ledger knows it; return what `ls --refresh` shows."""
        seen: list[dict[str, Any]] = self.done("ls", "--refresh")["machines"]
        assert len(self.ids()) <= 1
        assert set(self.ids()) <= {one["id"] for one in seen}, "Lambda has something that the ledger does not know"
        return seen

    def check_one(self) -> None:
        """The same `up` again: at once it finds the machine or is unsure; later there is one, whatever happened."""
        again = self.program(*HEADLINE, "-o", "json", timeout=crash_cloud.TIMEOUT_S)
        assert again.code in (0, UNSURE), (again.out, again.err)
        if again.code == 0:
            assert self.ids() == [again.json["machine"]["id"]]
        with self.later() as gpu:
            machine = gpu.machines.up(wait=False, **WANTED)["machine"]
        assert self.ids() == [machine["id"]]
        assert sum(call.status == 200 for call in self.server.called("launch")) == 1, "a second machine was made"

    def check_down_leaves_nothing(self) -> None:
        """`down` ends all that costs money, and the ledger says so."""
        with self.later() as gpu:
            for name in [one["name"] for one in gpu.machines.ls()["machines"]]:
                gpu.machines.down(name)
            assert gpu.machines.ls()["machines"] == []
            assert gpu.money.verify()["errors"] == []
        assert self.server.billable() == []
        self.check_no_saved_call()
