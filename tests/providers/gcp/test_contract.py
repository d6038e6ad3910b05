"""The gcp provider keeps every promise of the contract on our model of Google Cloud; it never ran against Google."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloudgpu.providers.base import Factory, ProviderSettings
from cloudgpu.providers.gcp.provider import make
from cloudgpu.testing import (
    BulkStopContract,
    CanRehearseInterruptionContract,
    ChecksPermissionsContract,
    ClearsSharedContract,
    ExaminesContract,
    HasLoginContract,
    HasOrphansContract,
    HasPricesContract,
    HasQuotaContract,
    HasRegionsContract,
    HasResourcesContract,
    HasTimerContract,
    HasVolumesContract,
    ImageableContract,
    PausableContract,
    ProviderContract,
    ReachableContract,
    ReadsHostKeysContract,
    ReportsActivityContract,
    ResolvesContract,
    SetsTimerContract,
    TaggableContract,
)
from cloudgpu.testing.helpers import new_host_key
from tests.clouds.gcp.fixtures import gcp, gcp_process
from tests.providers.gcp.accounts import shared

__all__ = ["gcp", "gcp_process"]


class TestGcp(
    ProviderContract,
    PausableContract,
    BulkStopContract,
    CanRehearseInterruptionContract,
    TaggableContract,
    HasPricesContract,
    ResolvesContract,
    ReachableContract,
    HasResourcesContract,
    HasOrphansContract,
    ImageableContract,
    HasVolumesContract,
    HasQuotaContract,
    HasRegionsContract,
    ChecksPermissionsContract,
    ClearsSharedContract,
    HasLoginContract,
    ExaminesContract,
    ReportsActivityContract,
    ReadsHostKeysContract,
    HasTimerContract,
    SetsTimerContract,
):
    parallel_launches = 3  # each is a dozen calls to a server that shares our processor

    @pytest.fixture
    def factory(self) -> Factory:
        return lambda settings: shared(make(settings), self.gcp)

    @pytest.fixture
    def settings(self, gcp, tmp_path: Path) -> ProviderSettings:
        self.gcp = gcp
        options = {"regions": ["us-central1"]}
        return ProviderSettings("contract", options, tmp_path / "gcp", gcp.clock.now, gcp.advance)

    def report_use(self, provider, id, at):  # noqa: A002
        """Let the machine write when it was in use, as the lease script does."""
        self.gcp.say(id, "cloudgpu/last-active", str(int(at.timestamp())))

    def report_host_keys(self, provider, id):  # noqa: A002
        """Let the guest agent write the host keys that it has made."""
        kind, key = new_host_key()[0].split()[:2]
        self.gcp.say(id, f"hostkeys/{kind}", key)

    def lose_reply(self, provider):
        self.gcp.faults.lose_reply("compute.instances.insert")

    def sell_out(self, provider, item):
        self.gcp.stockout()

    def let_time_pass(self, provider, at):
        """Let the model's clock run past a moment: what its timers stop, stops."""
        self.gcp.advance(max(0.0, (at - self.gcp.clock.now()).total_seconds()) + 180)
