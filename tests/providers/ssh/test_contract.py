"""The ssh provider keeps every promise of the contract, over real SSH with real processes on three hosts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cloudgpu.core.model.launch import Attempt
from cloudgpu.core.model.offers import MachineConfiguration, Market, Requirements
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


# Tests with several machines, and two that would find a second one elsewhere: each host is asked again and again.
SEVERAL = {
    "test_a_launched_machine_is_listed_with_exactly_its_tags",
    "test_another_token_makes_another_machine",
    "test_every_end_that_a_pass_decides_can_be_carried_out",
    "test_ten_launches_at_once_make_ten_machines",
    "test_terminating_one_leaves_the_others",
    "test_the_same_token_never_makes_a_second_machine",
}


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[OwnHost]]:
    """Three hosts for all tests: to start their SSH servers anew for each would take longer than the tests."""
    root = tmp_path_factory.mktemp("hosts")
    hosts = [OwnHost(root, name).start() for name in ("ant", "bee", "cat")]
    yield hosts
    for host in hosts:
        host.off()


@pytest.fixture
def hosts(three: list[OwnHost], request: pytest.FixtureRequest) -> Iterator[list[OwnHost]]:
    """One of them, or all where a test has several machines, as if new; at the end nothing may run there."""
    used = three if request.node.name in SEVERAL else three[:1]
    for host in used:
        host.renew()
    yield used
    left = [process for host in used for process in host.ended()]
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

    def sell_out(self, provider: Provider, item: MachineConfiguration) -> None:
        """Let somebody else's machine have the host."""
        self.launch(provider, make_attempt(item, key="another", now=provider._clock(), **self.keys))

    parallel_launches = 3  # as many as there are hosts: a host has one machine

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
            if market not in offers:  # a look at each host
                found = provider.available(Requirements(market=market)).items
                offers[market] = [item for item in found if item.market is market]
            place = places.setdefault(key, len(places))
            given = {"now": settings.clock(), **self.keys}
            return make_attempt(offers[market][place], key=key, **{**given, **changes})

        return make
