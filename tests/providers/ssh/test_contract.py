"""The ssh provider keeps every promise of the contract, over real SSH with real processes on four hosts."""

from __future__ import annotations

from typing import Any

import pytest

from cloudgpu.core.facts import Attempt, Market, Want
from cloudgpu.providers.base import Factory, Provider, ProviderSettings
from cloudgpu.providers.ssh.provider import make
from cloudgpu.testing import (
    HasPricesContract,
    KnowsHostKeysContract,
    PausableContract,
    ProviderContract,
    TaggableContract,
    make_attempt,
    new_host_key,
)
from cloudgpu.testing.contract import MakeAttempt
from tests.providers.ssh.hosts import Lab

pytest.importorskip("asyncssh", reason="the SSH server of the tests needs asyncssh: pip install 'cloudgpu[local]'")


class TestSsh(ProviderContract, PausableContract, TaggableContract, HasPricesContract, KnowsHostKeysContract):
    at_once = 4  # as many as there are hosts: a host has one machine

    @pytest.fixture
    def factory(self) -> Factory:
        return make

    @pytest.fixture
    def settings(self, own: Any, tmp_path: Any) -> ProviderSettings:
        return Lab(tmp_path, *(own(name) for name in ("ant", "bee", "cat", "dog"))).settings

    @pytest.fixture
    def make_attempt(self, provider: Provider, settings: ProviderSettings) -> MakeAttempt:
        """Give every launch key a host of its own, as a user with several machines does."""
        host_key, client_key, places = new_host_key(), new_host_key()[0], {}

        def make(*, key: str = "contract", market: Market = Market.ON_DEMAND, **changes: Any) -> Attempt:
            offered = [item for item in provider.available(Want(market=market)).items if item.market is market]
            place = places.setdefault(key, len(places))
            given = {"now": settings.clock(), "host_key": host_key, "client_public_keys": [client_key]}
            return make_attempt(offered[place], key=key, **{**given, **changes})

        return make
