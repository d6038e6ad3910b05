"""The lambda provider keeps every promise of the contract on our model of Lambda Cloud; it never ran against Lambda."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloudgpu.providers.base import Factory, ProviderSettings
from cloudgpu.providers.lambdalabs.provider import make
from cloudgpu.testing import (
    ExaminesContract,
    HasLoginContract,
    HasPricesContract,
    HasRegionsContract,
    ProviderContract,
)


class TestLambda(
    ProviderContract,
    HasPricesContract,
    HasRegionsContract,
    HasLoginContract,
    ExaminesContract,
):
    @pytest.fixture
    def factory(self) -> Factory:
        return make

    @pytest.fixture
    def settings(self, lambdalabs, tmp_path: Path) -> ProviderSettings:
        self.server = lambdalabs
        return ProviderSettings("contract", {}, tmp_path / "lambda", lambdalabs.clock.now, lambda _: None)
