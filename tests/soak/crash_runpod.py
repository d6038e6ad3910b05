"""Kills the command at a call that it makes to our model of RunPod, and says what must hold afterwards.

How, see crash_cloud. RunPod knows no tokens: a launch that was killed before its call left is not sent again, and the
ledger closes it once a listing is late enough.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import cloudgpu
from tests.cli.many import Many
from tests.clouds.runpod.server import RunpodServer
from tests.soak import crash_cloud
from tests.soak.crash_cloud import CloudLife, Moment

CONFIG = 'provider = "runpod"\naddress_services = []\n'
HEADLINE = ("up", "--gpu", "h100", "--no-wait", "--yes", "--no-guard")
SDK = ("urllib3", "cloudgpu.providers.runpod.provider")
READS = ("pods.list", "pods.get", "pods.logs", "catalog.gpus", "account.get", "billing.balance")
UNCERTAIN = 8


def moments(actions: list[str]) -> list[Moment]:
    """Return where to kill a command that makes these calls: before and after each change."""
    points = crash_cloud.moments(actions, _is_read)
    return [point for point in points if not _is_read(point.action)]


def _is_read(action: str) -> bool:
    return action in READS


class RunpodLife(CloudLife):
    """One home with an account at the model, its commands, and what must hold."""

    def __init__(self, server: RunpodServer, home: Path, many: Many) -> None:
        server.reset()
        super().__init__(server, home, CONFIG, many)

    def ids(self) -> list[str]:
        """Return the cloudgpu-id of each pod, stopped ones too, without the product."""
        tags = [json.loads(self.server.pod(one).body["env"]["CLOUDGPU_TAGS"]) for one in self.server.pods()]
        return [one["cloudgpu-id"] for one in tags]

    def check_known(self) -> list[dict[str, Any]]:
        """At most one pod, and the ledger knows it; return what `ls --refresh` shows."""
        seen: list[dict[str, Any]] = self.done("ls", "--refresh")["machines"]
        assert len(self.ids()) <= 1
        assert set(self.ids()) <= {one["id"] for one in seen}, "RunPod has a pod that the ledger does not know"
        return seen

    def check_one(self) -> None:
        """The same `up` again finds the pod of a call that was killed after it."""
        again = self.done(*HEADLINE)["machine"]
        assert self.ids() == [again["id"]]
        assert len(self.server.called("pods.create")) == 1

    def check_closed(self) -> None:
        """A call that never left is uncertain until a listing is late enough; the next `up` alone then launches anew.

        Six minutes pass on the clock of the library alone.
        """
        self.done(*HEADLINE, code=UNCERTAIN)
        assert self.ids() == []
        with cloudgpu.connect(home=self.home, clock=lambda: datetime.now(UTC) + timedelta(minutes=6)) as later:
            again = later.machines.up(gpu="h100", no_guard=True, wait=False)["machine"]
            assert self.ids() == [again["id"]]
            later.machines.down(all=True)
        assert self.server.pods() == []
        self.check_no_saved_call()

    def check_down_leaves_nothing(self) -> None:
        """`down` ends all that costs money, and no saved call stays."""
        self.done("down", "--all", "--yes")
        self._check_nothing()

    def check_a_later_down_leaves_nothing(self) -> None:
        """What a killed `down` has ended is unknown to a new one: two minutes later that proves the end.

        They pass on the clock of the library alone.
        """
        with cloudgpu.connect(home=self.home, clock=lambda: datetime.now(UTC) + timedelta(minutes=2)) as later:
            later.machines.down(all=True)
        self._check_nothing()

    def _check_nothing(self) -> None:
        assert self.server.pods() == []
        assert self.done("ls")["machines"] == []
        self.check_no_saved_call()
