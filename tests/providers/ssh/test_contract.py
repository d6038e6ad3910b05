"""The ssh provider keeps every promise of the contract, over real SSH with real processes on three hosts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cloudgpu.core.model.launch import Attempt
from cloudgpu.core.model.offers import Available, Market, Requirements
from cloudgpu.providers.base import Factory, Provider, ProviderSettings
from cloudgpu.providers.ssh.provider import make
from cloudgpu.testing import (
    HasMeteredPriceContract,
    HasPricesContract,
    KnowsHostKeysContract,
    LeavesFilesContract,
    PausableContract,
    ProviderContract,
    ReportsProcessesContract,
    TaggableContract,
    WritesAtHomeContract,
    make_attempt,
    new_host_key,
)
from cloudgpu.testing.contract.base import MakeAttempt
from tests.providers.ssh.hosts import Lab, OwnHost

pytest.importorskip("asyncssh", reason="the SSH server of the tests needs asyncssh: pip install 'cloudgpu[local]'")


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[OwnHost]]:
    """Three hosts for all tests: to start their SSH servers anew for each would take longer than the tests."""
    root = tmp_path_factory.mktemp("hosts")
    hosts = [OwnHost(root, name).start() for name in ("ant", "bee", "cat")]
    yield hosts
    for host in hosts:
        host.off()


@pytest.fixture
def hosts(three: list[OwnHost]) -> Iterator[list[OwnHost]]:
    """The three, as if new; at the end nothing may run on them."""
    for host in three:
        host.renew()
    yield three
    left = [process for host in three for process in host.ended()]
    assert not left, f"still running: {left}"


class TestSsh(
    ProviderContract,
    PausableContract,
    TaggableContract,
    HasPricesContract,
    HasMeteredPriceContract,
    KnowsHostKeysContract,
    ReportsProcessesContract,
    WritesAtHomeContract,
    LeavesFilesContract,
):
    def lose_reply(self, provider: Provider) -> None:
        self.hosts[0].lose_reply()

    def sell_out(self, provider: Provider, item: Available) -> None:
        """Let somebody else's machine have the host."""
        self.launch(provider, make_attempt(item, key="another", now=provider._clock(), **self.keys))

    at_once = 3  # as many as there are hosts: a host has one machine

    @pytest.fixture
    def factory(self) -> Factory:
        return make

    @pytest.fixture
    def settings(self, hosts: list[OwnHost], tmp_path: Path) -> ProviderSettings:
        self.hosts = hosts
        return Lab(tmp_path, *hosts).settings

    @pytest.fixture
    def make_attempt(self, provider: Provider, settings: ProviderSettings) -> MakeAttempt:
        """Give every launch key a host of its own, as a user with several machines does."""
        self.keys = {"host_key": new_host_key(), "client_public_keys": [new_host_key()[0]]}
        places, offers = {}, {}

        def make(*, key: str = "contract", market: Market = Market.ON_DEMAND, **changes: Any) -> Attempt:
            if market not in offers:  # a look at three hosts
                found = provider.available(Requirements(market=market)).items
                offers[market] = [item for item in found if item.market is market]
            place = places.setdefault(key, len(places))
            given = {"now": settings.clock(), **self.keys}
            return make_attempt(offers[market][place], key=key, **{**given, **changes})

        return make
