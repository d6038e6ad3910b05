"""Kills the command at a call that it makes to our model of vast.ai, and says what must hold afterwards.

How, see crash_cloud. What there is is read back from the model, never by the product.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import cloudgpu
from tests.cli.many import Many
from tests.clouds.vast.server import VastServer
from tests.soak import crash_cloud
from tests.soak.crash_cloud import CloudLife, Moment

CONFIG = 'provider = "vast"\naddress_services = []\n[accounts.lab]\nprovider = "vast"\nregions = ["US"]\n'
HEADLINE = ("up", "--gpu", "rtx4090", "--no-guard", "--no-wait", "--yes")
READS = ("search", "get", "list", "user", "logs", "log")
SDK = ("urllib3", "cloudgpu.providers.vast.provider", "cloudgpu.providers.vast.launch")
UNCERTAIN = 8


def moments(actions: list[str]) -> list[Moment]:
    """Return where to kill a command that makes these calls: before and after each change."""
    points = crash_cloud.moments(actions, READS.__contains__)
    return [point for point in points if point.action not in READS]


class VastLife(CloudLife):
    """One home with an account at the model, its commands, and what must hold."""

    def __init__(self, server: VastServer, home: Path, many: Many) -> None:
        server.reset()
        super().__init__(server, home, CONFIG, many)

    def ids(self) -> list[str]:
        """Return the cloudgpu-id of each contract that exists."""
        return [json.loads(one.body["env"]["CLOUDGPU_TAGS"])["cloudgpu-id"] for one in self.server.living()]

    def rents(self) -> int:
        """Return how many calls to rent were made."""
        return len(self.server.called("rent"))

    def check_known(self) -> list[dict[str, Any]]:
        """At most one contract, and the ledger knows it, and is right; return what `ls --refresh` shows."""
        seen: list[dict[str, Any]] = self.done("ls", "--refresh")["machines"]
        assert len(self.ids()) <= 1
        assert set(self.ids()) <= {one["id"] for one in seen}, "vast.ai has something that the ledger does not know"
        assert self.done("cost", "--verify")["errors"] == []
        return seen

    def check_one_or_uncertain(self) -> None:
        """The same `up` again: the machine that is there, or a refusal to send again what may have been taken."""
        before = self.rents()
        if self.ids():
            again = self.done(*HEADLINE)["machine"]
            assert self.ids() == [again["id"]]
        else:
            self.done(*HEADLINE, code=UNCERTAIN)
            assert self.ids() == []
        assert self.rents() == before, "a call that may have been taken was sent again"

    def check_refusal_leaves_nothing(self) -> None:
        """Whoever looks ends what a refused launch left, and the ledger has what it cost, though nobody ever ran it."""
        left = [one.id for one in self.server.contracts.values()]
        self.done("ls", "--refresh")
        assert self.ids() == []
        seen = self.done("ls", "-a")["machines"]
        assert [(one["cloud_id"], one["state"]) for one in seen] == [(str(one), "terminated") for one in left]
        assert self.done("cost", "--verify")["errors"] == []

    def check_down_leaves_nothing(self) -> None:
        """`down` ends all that costs money."""
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
        assert self.server.living() == []
        assert self.done("ls")["machines"] == []
        self.check_no_saved_call()
