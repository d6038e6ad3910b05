"""The azure provider keeps every promise of the contract on our model of Azure; it never ran against Azure."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloudgpu.config.files.user_files import data_dir
from cloudgpu.providers.azure.provider import make
from cloudgpu.providers.base import Factory, ProviderSettings
from cloudgpu.testing import (
    BulkStopContract,
    CanRehearseInterruptionContract,
    ChecksPermissionsContract,
    ClearsSharedContract,
    ExaminesContract,
    HasBudgetAlertContract,
    HasLoginContract,
    HasMachineRoleContract,
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
    RaisesQuotaContract,
    ReachableContract,
    ResolvesContract,
    SetsTimerContract,
    TaggableContract,
)
from tests.providers.azure.attempts import quick


class TestAzure(
    ProviderContract,
    PausableContract,
    BulkStopContract,
    TaggableContract,
    HasPricesContract,
    ResolvesContract,
    ReachableContract,
    HasResourcesContract,
    HasOrphansContract,
    ImageableContract,
    HasVolumesContract,
    HasQuotaContract,
    RaisesQuotaContract,
    HasRegionsContract,
    ChecksPermissionsContract,
    ClearsSharedContract,
    HasLoginContract,
    ExaminesContract,
    HasMachineRoleContract,
    HasTimerContract,
    SetsTimerContract,
    CanRehearseInterruptionContract,
    HasBudgetAlertContract,
):
    parallel_launches = 4  # each is a dozen calls to a server that shares our processor
    policy_document = (data_dir("policies") / "permissions" / "azure-machine.json").read_text()

    @pytest.fixture
    def factory(self) -> Factory:
        return lambda settings: quick(make(settings))

    @pytest.fixture
    def settings(self, azure_arm, tmp_path: Path) -> ProviderSettings:
        options = {"regions": ["eastus"], "timers": True}
        self.azure = azure_arm
        return ProviderSettings("contract", options, tmp_path / "azure", azure_arm.clock.now, azure_arm.advance)

    def lose_reply(self, provider):
        self.azure.faults.lose_reply("VirtualMachines.CreateOrUpdate")

    def sell_out(self, provider, item):
        self.azure.stockout()

    def let_time_pass(self, provider, at):
        """Let the model's clock run past a moment: what its timers do, they do."""
        self.azure.advance(max(0.0, (at - self.azure.clock.now()).total_seconds()) + 180)
