"""The aws provider keeps every promise of the contract on our model of AWS; it never ran against AWS."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloudgpu.providers.aws.provider import make
from cloudgpu.providers.base import Factory, ProviderSettings
from cloudgpu.testing import (
    BulkStopContract,
    ChecksPermissionsContract,
    ClearsSharedContract,
    ExaminesContract,
    HasBudgetAlertContract,
    HasLoginContract,
    HasMachineRoleContract,
    HasOrphansContract,
    HasPlacementScoresContract,
    HasPriceHistoryContract,
    HasPricesContract,
    HasQuotaContract,
    HasRegionsContract,
    HasResourcesContract,
    HasTimerContract,
    HasTimerRoleContract,
    HasVolumesContract,
    ImageableContract,
    LaunchesTogetherContract,
    PausableContract,
    ProviderContract,
    RaisesQuotaContract,
    ReachableContract,
    ResolvesContract,
    SetsTimerContract,
    TaggableContract,
)
from tests.clouds.aws.plain import role_of_timers
from tests.clouds.aws.quotas import QUOTAS
from tests.providers.aws.accounts import quick


class TestAws(
    ProviderContract,
    LaunchesTogetherContract,
    PausableContract,
    BulkStopContract,
    TaggableContract,
    HasPlacementScoresContract,
    HasPriceHistoryContract,
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
    ExaminesContract,
    HasLoginContract,
    HasMachineRoleContract,
    HasTimerContract,
    SetsTimerContract,
    HasTimerRoleContract,
    HasBudgetAlertContract,
):
    parallel_launches = 4  # each is a dozen calls to a server that shares our processor

    @pytest.fixture
    def factory(self) -> Factory:
        return lambda settings: quick(make(settings))

    @pytest.fixture
    def settings(self, aws, tmp_path: Path) -> ProviderSettings:
        aws.model.quotas.update({("", code): 1e6 for code in QUOTAS})
        options = {"regions": ["us-east-1"], "timer_role": role_of_timers("of-the-contract")}
        self.aws = aws
        return ProviderSettings("contract", options, tmp_path / "aws", aws.model.now, lambda _: None)

    def leave_room(self, provider, item, count):
        self.aws.leave(item.instance_type, item.zone, count)

    def lose_reply(self, provider):
        self.aws.faults.lose_reply("RunInstances")

    def sell_out(self, provider, item):
        self.aws.faults.add("RunInstances", error="InsufficientInstanceCapacity", times=99)

    def let_time_pass(self, provider, at):
        """Let the model's clock run past a moment: what its schedules call, it does."""
        self.aws.advance(max(0.0, (at - self.aws.model.now()).total_seconds()) + 180)
