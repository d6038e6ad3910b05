"""The fixtures and helpers that the suite of every ability uses."""

# ruff: noqa: S101  (a suite is asserts)

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from cloudgpu.core.model.instances import TAG_LEDGER, Instance, State
from cloudgpu.core.model.launch import Attempt
from cloudgpu.core.model.offers import MachineConfiguration, Market, Requirements
from cloudgpu.core.model.resources import ProviderResource
from cloudgpu.errors import InstanceNotFound
from cloudgpu.providers.abilities import Resolves
from cloudgpu.providers.base import Factory, Provider, ProviderSettings
from cloudgpu.testing.helpers import TEST_LEDGER, make_attempt, new_host_key, pick

MakeAttempt = Callable[..., Attempt]
WAIT_TIMEOUT_S = 30.0
LAUNCH_TIMEOUT_S = 120.0
OTHER_TEST_LEDGER = "led-other"  # of the test in which two ledgers share an account
_MISSING_OVERRIDE = (
    "{0}.{1} is missing: make that fault happen in the cloud that the suite runs against. Where it cannot happen, say "
    'why: cannot_happen = {{"{1}": "..."}}.'
)


class NotApplicable(UserWarning):
    """A part of the contract that does not apply to a provider."""


class ContractBase:
    """The fixtures and helpers that every suite uses; override `factory`, `settings` and, rarely, the others."""

    @pytest.fixture
    def factory(self) -> Factory:
        """Give the provider's factory; every provider has to."""
        raise NotImplementedError

    @pytest.fixture
    def settings(self, tmp_path: Path) -> ProviderSettings:
        """Give the settings of an account in which cloudgpu has nothing; one run of the tests at a time uses it."""
        return ProviderSettings("contract", {}, tmp_path / "provider", lambda: datetime.now(UTC))

    @pytest.fixture
    def provider(self, factory: Factory, settings: ProviderSettings) -> Iterator[Provider]:
        """Give a fresh provider, and end the machines that the tests have launched.

        Fails, and ends nothing, if the account has a machine of another ledger: the tests count what an account has.
        """
        provider = factory(settings)
        self.check_all_ours(self.list_all_living(provider))
        yield provider
        for instance in provider.list().instances:
            if self.is_ours(instance):
                self.terminate_and_wait(provider, instance.id)
        self.check_all_ours(self.list_all_living(provider))

    @pytest.fixture
    def make_attempt(self, provider: Provider, settings: ProviderSettings) -> MakeAttempt:
        """Give a function that makes a valid attempt for the first configuration that is available.

        `market` or `configuration` choose another one. If the provider resolves launches, the attempt contains what it
        resolved.
        """
        host_key, client_key = new_host_key(), new_host_key()[0]

        def make(
            *, market: Market = Market.ON_DEMAND, configuration: MachineConfiguration | None = None, **changes: Any
        ) -> Attempt:
            available = configuration or pick(provider.available(Requirements(market=market)).items, market)
            defaults = {"now": settings.clock(), "host_key": host_key, "client_public_keys": [client_key]}
            attempt = make_attempt(available, **{**defaults, **changes})
            if not isinstance(provider, Resolves):
                return attempt
            return replace(attempt, call=provider.resolve(attempt.request, available).call)

        return make

    @pytest.fixture
    def machine(self, provider: Provider, make_attempt: MakeAttempt) -> Instance:
        """Give a machine that runs."""
        return self.launch_and_wait(provider, make_attempt())

    def is_ours(self, item: Instance | ProviderResource) -> bool:
        """Say whether a test has made this: it has the ledger tag of the tests."""
        return item.tags.get(TAG_LEDGER) in (TEST_LEDGER, OTHER_TEST_LEDGER)

    def check_all_ours(self, items: Iterable[Instance | ProviderResource]) -> None:
        """Fail if the tests have not made one of these. They leave it alone: it may be a colleague's."""
        others = [item.id for item in items if not self.is_ours(item)]
        if others:
            pytest.fail(
                f"The account has {', '.join(others)}, without the ledger tag of these tests: they end only what they "
                "made. Run them in an account in which cloudgpu has nothing."
            )

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until `condition` holds; a suite on a manual clock advances that instead."""
        deadline = time.monotonic() + WAIT_TIMEOUT_S
        while not condition():
            assert time.monotonic() < deadline, f"not within {WAIT_TIMEOUT_S:.0f} seconds"
            time.sleep(0.05)

    def launch(self, provider: Provider, attempt: Attempt) -> Instance:
        """Launch with a deadline that is not reached."""
        return provider.launch(attempt, deadline=attempt.made_at + timedelta(seconds=LAUNCH_TIMEOUT_S))

    def launch_and_wait(self, provider: Provider, attempt: Attempt) -> Instance:
        """Launch, and return the machine once it runs."""
        return self.wait_for_state(provider, self.launch(provider, attempt).id, State.RUNNING)

    def wait_for_state(self, provider: Provider, id: str, *states: State) -> Instance:  # noqa: A002
        """Wait until the machine is in one of `states` and return it."""
        states_seen: list[Instance] = []

        def is_in_state() -> bool:
            states_seen.append(provider.get(id))
            return states_seen[-1].state in states

        try:
            self.wait_until(is_in_state)
        except AssertionError as error:
            last_states = [str(instance.state) for instance in states_seen[-1:]]
            raise AssertionError(f"{id} came to {last_states}, not to {[str(state) for state in states]}") from error
        return states_seen[-1]

    def wait_until_gone(self, provider: Provider, id: str) -> None:  # noqa: A002
        """Wait until the machine is proved gone: terminated, or unknown to a provider that answers."""
        self.wait_until(lambda: self.is_gone(provider, id))

    def terminate_and_wait(self, provider: Provider, id: str) -> None:  # noqa: A002
        """Terminate a machine, and wait until it is proved gone."""
        provider.terminate(id)
        self.wait_until_gone(provider, id)

    def let_time_pass(self, provider: Provider, at: datetime) -> None:
        """Move the provider's clock past `at`; does nothing if it uses the real clock, where `wait_until` waits."""

    cannot_happen: Mapping[str, str] = MappingProxyType(
        {}
    )  # "lose_reply" or "sell_out" -> why this provider cannot have it

    def lose_reply(self, provider: Provider) -> None:  # noqa: ARG002
        """Make the cloud do the next launch and lose its reply; to override if the provider uses a network."""
        pytest.fail(_MISSING_OVERRIDE.format(type(self).__name__, "lose_reply"))

    def sell_out(self, provider: Provider, configuration: MachineConfiguration) -> None:  # noqa: ARG002
        """Make the cloud have no more of this offer; a provider whose offers can run out overrides this."""
        pytest.fail(_MISSING_OVERRIDE.format(type(self).__name__, "sell_out"))

    def can_happen(self, fault: str) -> bool:
        """Say whether a fault can happen to this provider; if not, warn with the reason of `cannot_happen`.

        The test of the fault then checks that reason instead.
        """
        why = self.cannot_happen.get(fault)
        if why is not None:
            warnings.warn(f"{type(self).__name__}: no test of {fault}, since {why}", NotApplicable, stacklevel=2)
        return why is None

    def check_not_found(self, provider: Provider, attempt: Attempt, *calls: Callable[[str], object]) -> None:
        """Check that `calls` raise InstanceNotFound for the id of no machine; `attempt` is launched for a valid id."""
        unknown_id = self.launch(provider, attempt).id[:-4] + "0000"
        for call in calls:
            with pytest.raises(InstanceNotFound):
                call(unknown_id)

    def is_gone(self, provider: Provider, id: str) -> bool:  # noqa: A002
        """Say whether the machine is proved gone."""
        try:
            return provider.get(id).state is State.TERMINATED
        except InstanceNotFound:
            return True

    def list_all_living(self, provider: Provider) -> list[Instance]:
        """Return the living machines of the scopes that answered."""
        return [instance for instance in provider.list().instances if instance.state is not State.TERMINATED]

    def list_living(self, provider: Provider) -> list[Instance]:
        """Return all living machines of a complete listing."""
        listing = provider.list()
        assert listing.unanswered == ()
        return [instance for instance in listing.instances if instance.state is not State.TERMINATED]
