"""The aws provider keeps every promise of the contract on our model of AWS; it never ran against AWS."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from cloudgpu.providers.aws.provider import make
from cloudgpu.providers.base import Factory, ProviderSettings
from cloudgpu.testing import (
    ChecksPermissionsContract,
    HasBudgetAlertContract,
    HasLeftoversContract,
    HasMachineRoleContract,
    HasOrphansContract,
    HasPriceHistoryContract,
    HasPricesContract,
    HasQuotaContract,
    HasRegionsContract,
    HasVolumesContract,
    ImageableContract,
    PausableContract,
    ProviderContract,
    ReachableContract,
    ResolvesContract,
    StopsManyContract,
    TaggableContract,
)
from tests.clouds.aws.quotas import QUOTAS


class TestAws(
    ProviderContract,
    PausableContract,
    StopsManyContract,
    TaggableContract,
    HasPriceHistoryContract,
    HasPricesContract,
    ResolvesContract,
    ReachableContract,
    HasLeftoversContract,
    HasOrphansContract,
    ImageableContract,
    HasVolumesContract,
    HasQuotaContract,
    HasRegionsContract,
    ChecksPermissionsContract,
    HasMachineRoleContract,
    HasBudgetAlertContract,
):
    at_once = 4  # each is a dozen calls to a server that shares our processor

    @pytest.fixture
    def factory(self) -> Factory:
        return make

    @pytest.fixture
    def settings(self, aws, tmp_path: Path) -> ProviderSettings:
        aws.model.quotas.update({("", code): 1e6 for code in QUOTAS})
        options = {"regions": ["us-east-1"]}
        return ProviderSettings("contract", options, tmp_path / "aws", lambda: datetime.now(UTC), lambda _: None)
