"""A suite that is run by mistake against an account in use leaves alone what it did not make."""

from __future__ import annotations

import pytest

from cloudgpu.core.model.account import BudgetAlert
from cloudgpu.core.model.launch import Volume
from cloudgpu.core.model.offers import Requirements
from cloudgpu.core.model.resources import Kind
from cloudgpu.core.values.money import Money
from cloudgpu.providers.base import ProviderSettings
from cloudgpu.testing import (
    FullFakeProvider,
    HasBudgetAlertContract,
    HasMachineRoleContract,
    ManualClock,
    NarrowsSshContract,
    make_attempt,
    new_host_key,
    pick,
)

pytest_plugins = ["pytester"]
new_host_key()  # now: each inner run forgets what it imported, and cryptography cannot be imported twice

SUITE = """
import pytest
from cloudgpu.providers.base import ProviderSettings
from cloudgpu.testing import *

class TestInUse(ProviderContract, *ABILITY_SUITES.values()):
    @pytest.fixture
    def factory(self):
        return FullFakeProvider

    @pytest.fixture
    def settings(self, tmp_path):
        self.clock = ManualClock()
        return ProviderSettings("contract", {{"state_file": {state_file!r}}}, tmp_path, self.clock)

    def wait_until(self, condition):
        for _ in range(200):
            if condition():
                return
            self.clock.advance(1)
        pytest.fail("never")
"""


@pytest.fixture
def provider(tmp_path):
    options = {"state_file": str(tmp_path / "cloud.json")}
    return FullFakeProvider(ProviderSettings("contract", options, tmp_path / "home", ManualClock()))


@pytest.fixture
def run(pytester, tmp_path):
    """Run tests of a suite against the account of `provider`; return how many passed and failed."""

    def run_tests(*names: str) -> tuple[int, int]:
        pytester.makepyfile(SUITE.format(state_file=str(tmp_path / "cloud.json")))
        outcome = pytester.inline_run("-p", "no:cacheprovider", "-q", "-k", " or ".join(names)).listoutcomes()
        return len(outcome[0]), len(outcome[2])

    return run_tests


def launched_by_a_colleague(provider):
    attempt = make_attempt(
        pick(provider.available(Requirements()).items), ledger="led-of-a-colleague", now=provider.clock()
    )
    machine = provider.launch(attempt, deadline=provider.clock())
    provider.attach(machine.id, Volume("data", 12), {"cloudgpu-ledger": "led-of-a-colleague"})
    return machine


def test_a_colleagues_machine_and_volume_outlive_a_suite_that_refuses_their_account(provider, run) -> None:
    machine = launched_by_a_colleague(provider)
    passed, failed = run("test_a_retained_disk_can_be_removed", "test_what_is_left_can_be_removed_and_is_removed_once")
    assert (passed, failed) == (0, 2)
    assert [instance.id for instance in provider.list().instances] == [machine.id]
    assert Kind.VOLUME in {resource.kind for resource in provider.resources().items}


def test_a_colleagues_volume_without_a_machine_outlives_a_suite(provider, run) -> None:
    machine = launched_by_a_colleague(provider)
    provider.terminate(machine.id)
    assert run("test_a_retained_disk_can_be_removed")[0] == 0
    assert [resource.kind for resource in provider.resources().items] == [Kind.VOLUME]


def test_a_budget_alert_that_was_set_before_a_suite_stays(provider) -> None:
    alert = BudgetAlert(Money.usd("500"), ("payer@example.org",))
    provider.set_budget_alert(alert)
    with pytest.raises(AssertionError, match="has a budget alert"):
        HasBudgetAlertContract().test_a_budget_alert_is_as_it_was_set_last(provider)
    assert provider.budget_alert() == alert


def test_a_role_that_was_made_before_a_suite_stays(provider) -> None:
    document = HasMachineRoleContract.policy_document
    provider.make_machine_role(document)
    with pytest.raises(AssertionError, match="existed before"):
        HasMachineRoleContract().test_a_role_is_made_once_and_taken_away_whole(provider)
    assert all(part.exists for part in provider.machine_role(document).parts)


def test_ssh_is_open_to_the_same_networks_after_a_suite(provider) -> None:
    provider.narrow_ssh(["198.18.0.0/15"])
    NarrowsSshContract().test_only_the_networks_that_were_named_last_get_in(provider)
    assert list(provider.ssh_sources()) == ["198.18.0.0/15"]
