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
    NarrowsSshContract,
    ProviderContract,
    RegistersContract,
)


class TestLambda(
    ProviderContract,
    HasPricesContract,
    HasRegionsContract,
    HasLoginContract,
    ExaminesContract,
    NarrowsSshContract,
    RegistersContract,
):
    @pytest.fixture
    def factory(self) -> Factory:
        return make

    @pytest.fixture
    def settings(self, lambdalabs, tmp_path: Path) -> ProviderSettings:
        self.server = lambdalabs
        return ProviderSettings("contract", {}, tmp_path / "lambda", lambdalabs.clock.now, lambda _: None)

    def lose_reply(self, provider):
        self.server.faults.lose_reply("launch")

    def sell_out(self, provider, item):
        self.server.sell_out()

    def let_time_pass(self, provider, at):
        """Let the model's clock run past a moment."""
        self.server.advance(max(0.0, (at - self.server.clock.now()).total_seconds()) + 1)
