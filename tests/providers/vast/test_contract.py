"""The vast provider keeps every promise of the contract on our model of vast.ai; it never ran against vast.ai."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cloudgpu.core.model.offers import Market, Requirements
from cloudgpu.providers.base import Factory, ProviderSettings
from cloudgpu.providers.machine.container_start import HOST_KEY_PREFIX
from cloudgpu.providers.vast.provider import make
from cloudgpu.testing import (
    ExaminesContract,
    HasLoginContract,
    HasPricesContract,
    HasRegionsContract,
    HostLeavesContract,
    PausableContract,
    ProviderContract,
    ReadsCreditContract,
    ReadsHostKeysContract,
    ResolvesContract,
    TaggableContract,
)
from cloudgpu.testing.helpers import make_attempt as attempt_at, new_host_key
from tests.clouds.vast.fixtures import vast, vast_process

__all__ = ["vast", "vast_process"]


class TestVast(
    ProviderContract,
    PausableContract,
    TaggableContract,
    HasPricesContract,
    ResolvesContract,
    ReadsCreditContract,
    ReadsHostKeysContract,
    HasLoginContract,
    ExaminesContract,
    HasRegionsContract,
    HostLeavesContract,
):
    parallel_launches = 3

    @pytest.fixture
    def factory(self) -> Factory:
        return make

    @pytest.fixture
    def settings(self, vast, tmp_path: Path) -> ProviderSettings:
        self.vast = vast
        return ProviderSettings("contract", {}, tmp_path / "vast", vast.clock.now, vast.advance)

    @pytest.fixture
    def make_attempt(self, provider, settings):
        """Give a maker of attempts, each at an offer that none before it has: an offer is rented once."""
        keys = {"host_key": new_host_key(), "client_public_keys": [new_host_key()[0]]}
        used: set[tuple[str, str]] = set()

        def make(*, market: Market = Market.ON_DEMAND, item: Any = None, **changes: Any):
            offers = [item] if item else provider.available(Requirements(market=market)).items
            offered = next(one for one in offers if (one.zone, one.market) not in used)
            used.add((offered.zone, offered.market))
            attempt = attempt_at(offered, **{"now": settings.clock(), **keys, **changes})
            return replace(attempt, call=provider.resolve(attempt.request, offered).call)

        return make

    def report_host_keys(self, provider, id):  # noqa: A002
        """Let the container's start script say its host key in the log."""
        self.vast.say(id, f"{HOST_KEY_PREFIX}{' '.join(new_host_key()[0].split()[:2])}")

    def set_leave_time(self, provider, id, at):  # noqa: A002
        """Let the host's contract with vast.ai end at `at`."""
        self.vast.contract(id).ask["end_date"] = at.timestamp()

    def lose_reply(self, provider):
        self.vast.faults.lose_reply("rent")

    def sell_out(self, provider, item):
        self.vast.faults.add("rent", error="no_such_ask", status=404)

    def let_time_pass(self, provider, at):
        """Let the model's clock run past a moment."""
        self.vast.advance(max(0.0, (at - self.vast.clock.now()).total_seconds()) + 1)
