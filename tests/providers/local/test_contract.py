"""The local provider keeps every promise of the contract, with real machines: processes, SSH servers, timers."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from cloudgpu.providers.base import Factory, ProviderSettings
from cloudgpu.providers.local.provider import make
from cloudgpu.testing import (
    CanRehearseInterruptionContract,
    HasPricesContract,
    HasTimerContract,
    PausableContract,
    ProviderContract,
    SharesComputerContract,
    TaggableContract,
)

pytest.importorskip("asyncssh", reason="local machines need asyncssh: pip install 'cloudgpu[local]'")


class TestLocal(
    ProviderContract,
    PausableContract,
    TaggableContract,
    HasPricesContract,
    SharesComputerContract,
    HasTimerContract,
    CanRehearseInterruptionContract,
):
    cannot_happen = {  # noqa: RUF012
        "lose_reply": "a launch here is no call over a network",
        "sell_out": "this computer takes any number of machines",
    }
    parallel_launches = 4  # every one is a Python process of its own

    @pytest.fixture
    def factory(self) -> Factory:
        return make

    @pytest.fixture
    def settings(self, tmp_path: Path) -> ProviderSettings:
        options = {"interruption_notice": "1s"}
        return ProviderSettings("contract", options, tmp_path / "local", lambda: datetime.now(UTC))
