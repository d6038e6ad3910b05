"""The runpod provider keeps every promise of the contract on our model of RunPod; it never ran against RunPod."""

from __future__ import annotations

import pytest

from cloudgpu.providers.base import ProviderSettings
from cloudgpu.providers.runpod.provider import make
from cloudgpu.testing import (
    ExaminesContract,
    HasLoginContract,
    HasPricesContract,
    HasRegionsContract,
    PausableContract,
    ProviderContract,
    ReadsCreditContract,
    ReadsHostKeysContract,
    ResolvesContract,
)
from cloudgpu.testing.helpers import new_host_key
from tests.clouds.runpod.fixtures import runpod, runpod_process

__all__ = ["runpod", "runpod_process"]


class TestRunpod(
    ProviderContract,
    HasPricesContract,
    HasRegionsContract,
    PausableContract,
    ReadsHostKeysContract,
    ResolvesContract,
    HasLoginContract,
    ReadsCreditContract,
    ExaminesContract,
):
    parallel_launches = 3

    @pytest.fixture
    def factory(self):
        return make

    @pytest.fixture
    def settings(self, runpod, tmp_path):
        self.runpod = runpod
        return ProviderSettings("contract", {}, tmp_path / "runpod", runpod.clock.now, runpod.advance)

    def report_host_keys(self, provider, id):  # noqa: A002
        """Let the start script say the host key that it has made."""
        kind, key = new_host_key()[0].split()[:2]
        self.runpod.say(id, f"cloudgpu-host-key: {kind} {key}")

    def lose_reply(self, provider):
        self.runpod.faults.lose_reply("pods.create")

    def sell_out(self, provider, item):
        self.runpod.no_capacity()

    def let_time_pass(self, provider, at):
        """Let the model's clock run past a moment."""
        self.runpod.advance(max(0.0, (at - self.runpod.clock.now()).total_seconds()) + 1)
