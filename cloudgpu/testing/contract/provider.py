"""What every provider promises, as tests: a provider's test class inherits them all and cannot opt out.

    class TestAcme(ProviderContract, PausableContract, TaggableContract):
        @pytest.fixture
        def factory(self): return acme.make

The class must inherit the suite of every ability its provider has (`abilities.ABILITY_SUITES`), and may not
override or skip a test; the contract itself checks that.
"""

# ruff: noqa: S101  (a suite is asserts, and one class with many tests)

from __future__ import annotations

import socket
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import cast

import pytest

from cloudgpu.core.model.instances import TAG_ID, Instance, State
from cloudgpu.core.model.launch import Attempt
from cloudgpu.core.model.offers import Requirements
from cloudgpu.core.policies import guards
from cloudgpu.core.policies.guards import Safeguards, Timer
from cloudgpu.core.policies.policy import ReaperAction
from cloudgpu.core.values.naming import digest
from cloudgpu.errors import CloudgpuError, InstanceNotFound, LaunchUncertain, NoCapacity, ProviderUnavailable
from cloudgpu.parallel import Pool
from cloudgpu.providers.abilities import HasTimer, Imageable, Pausable, SetsTimer, limited_to_abilities
from cloudgpu.providers.base import Factory, Provider, ProviderSettings
from cloudgpu.testing.contract.abilities import ABILITY_SUITES
from cloudgpu.testing.contract.base import ContractBase, MakeAttempt


class ProviderContract(ContractBase):
    """What every provider promises."""

    def test_every_suite_is_run_and_none_is_changed(self, provider: Provider) -> None:
        """A provider cannot have an ability and leave out its tests."""
        assert violations_of(type(self), provider) == []

    def test_a_factory_asks_nothing_over_the_network(
        self, factory: Factory, settings: ProviderSettings, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Making a provider is instant and works without a network."""
        network_calls = record_network_calls(monkeypatch)
        provider = factory(replace(settings, home=settings.home.with_name("another")))
        assert provider.account == settings.account
        assert network_calls == []

    def test_an_account_is_known_by_one_identity(
        self, provider: Provider, factory: Factory, settings: ProviderSettings
    ) -> None:
        """A machine belongs to that account, whatever each member of a lab calls it in the settings."""
        region = provider.available(Requirements()).items[0].region
        identity = provider.identity(region)
        assert identity.kind
        assert identity.display_name
        assert identity.id == " ".join(identity.id.split())
        assert identity.id
        renamed_settings = replace(settings, account=f"{settings.account}-2")
        assert {
            provider.identity(region),
            factory(settings).identity(region),
            factory(renamed_settings).identity(region),
        } == {identity}

    def test_it_says_how_long_a_token_lives(self, provider: Provider) -> None:
        """Without that rule an uncertain launch cannot be resolved."""
        assert provider.token_rule.lifetime > timedelta(0)
        assert provider.token_rule.listing_proves_after >= timedelta(0)
        assert provider.token_rule.source

    def test_it_says_what_can_end_its_machines(self, provider: Provider) -> None:
        """Plans and budgets rely on it: a safeguard that does not exist must not be reported."""
        assert isinstance(provider.guards, Safeguards)
        has_timer = isinstance(provider, HasTimer)
        assert has_timer or provider.guards.timer is Timer.NONE
        timers_are_off = isinstance(provider, SetsTimer) and bool(provider.why_no_timer())
        assert provider.guards.timer is not Timer.NONE or not has_timer or timers_are_off

    def test_what_is_available_bears_its_names(self, provider: Provider) -> None:
        """Offers are joined with prices and launches by these names."""
        configurations = provider.available(Requirements()).items
        assert configurations
        assert {(item.provider, item.account) for item in configurations} == {(provider.kind, provider.account)}
        assert all(item.region and item.zone and item.instance_type for item in configurations)

    def test_an_impossible_gpu_is_not_available(self, provider: Provider) -> None:
        """An empty answer is no error."""
        assert provider.available(Requirements(gpu="impossible-gpu-9000")).items == ()

    def test_an_empty_account_lists_nothing_and_answers(self, provider: Provider) -> None:
        """An empty listing is complete."""
        assert self.list_living(provider) == []

    def test_a_launched_machine_is_what_was_requested(self, provider: Provider, make_attempt: MakeAttempt) -> None:
        """The launch's answer and all later ones describe the same machine."""
        attempt = make_attempt()
        configuration = attempt.offer.configuration
        launched = self.launch(provider, attempt)
        running = self.wait_for_state(provider, launched.id, State.RUNNING)
        for instance in (launched, running):
            assert (instance.provider, instance.account) == (provider.kind, provider.account)
            assert (instance.region, instance.zone) == (configuration.region, configuration.zone)
            assert (instance.instance_type, instance.market) == (configuration.instance_type, configuration.market)
            assert instance.id == launched.id

    def test_a_launched_machine_is_listed_with_exactly_its_tags(
        self, provider: Provider, make_attempt: MakeAttempt
    ) -> None:
        """Tags are given in the call that makes the machine, and none is lost or added."""
        attempt = make_attempt(tags={"cloudgpu-project": "with_under-score", "cloudgpu-hold-until": "1"})
        machine = self.launch_and_wait(provider, attempt)
        self.wait_until(lambda: [instance.id for instance in self.list_living(provider)] == [machine.id])
        for instance in (provider.get(machine.id), *self.list_living(provider)):
            assert dict(instance.tags) == dict(attempt.tags)

    def test_a_running_machine_is_billed(self, machine: Instance) -> None:
        """Running costs money."""
        assert machine.billed

    def test_times_are_aware_utc(self, machine: Instance) -> None:
        """A time without a zone cannot be compared. None: the provider does not say."""
        for moment in (machine.launched_at, machine.since, machine.last_active):
            assert moment is None or moment.utcoffset() == timedelta(0)
        if machine.since and machine.launched_at:
            assert machine.since >= machine.launched_at

    def test_the_same_token_never_makes_a_second_machine(
        self, provider: Provider, make_attempt: MakeAttempt, factory: Factory, settings: ProviderSettings
    ) -> None:
        """A replay returns the machine, also from another process (another provider value)."""
        attempt = make_attempt()
        first = self.launch(provider, attempt)
        second = self.launch(provider, attempt)
        repeated = self.launch_and_wait(provider, attempt)
        assert {first.id, second.id, repeated.id} == {first.id}
        self.wait_until(lambda: [instance.id for instance in self.list_living(provider)] == [first.id])
        assert self.replay_elsewhere(provider, factory(settings), attempt) == first.id

    def replay_elsewhere(self, provider: Provider, other: Provider, attempt: Attempt) -> str:  # noqa: ARG002
        """Return the id that a replay through another provider value of the same account gives."""
        return self.launch(other, attempt).id

    def test_a_fresh_home_never_makes_a_second_machine(
        self,
        provider: Provider,
        make_attempt: MakeAttempt,
        factory: Factory,
        settings: ProviderSettings,
    ) -> None:
        """A restored disk, or another computer with the same ledger: it finds the machine, or raises LaunchUncertain.

        Where the machines are in the home itself, a fresh home is another account, without that machine.
        """
        attempt = make_attempt(key="from-two-homes")
        machine = self.launch_and_wait(provider, attempt)
        self.let_time_pass(provider, settings.clock() + timedelta(minutes=3))
        fresh_provider = factory(replace(settings, home=settings.home.with_name("a-fresh-home")))
        if fresh_provider.identity(machine.region) != provider.identity(machine.region):
            assert machine.id not in {instance.id for instance in self.list_living(fresh_provider)}
            return
        with suppress(LaunchUncertain):
            assert self.launch(fresh_provider, attempt).id == machine.id
        self.wait_until(lambda: [instance.id for instance in self.list_living(provider)] == [machine.id])

    def test_a_lost_reply_makes_no_second_machine(
        self, provider: Provider, make_attempt: MakeAttempt, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The machine was made, and the reply was lost: the same call again finds it, or raises LaunchUncertain.

        Where no reply can be lost, a launch makes no call over a network.
        """
        attempt = make_attempt(key="lost-reply")
        if not self.can_happen("lose_reply"):
            with monkeypatch.context() as patched:
                network_calls = record_network_calls(patched)
                self.launch(provider, attempt)
            assert network_calls == []
            return
        self.lose_reply(provider)
        for _ in range(2):
            with suppress(ProviderUnavailable):
                self.launch(provider, attempt)
        self.wait_until(lambda: len(self.list_living(provider)) == 1)
        (machine,) = self.list_living(provider)
        assert machine.tags[TAG_ID] == attempt.machine
        assert self.launch(provider, attempt).id == machine.id
        assert [instance.id for instance in self.list_living(provider)] == [machine.id]

    def test_sold_out_is_a_word_of_its_own(self, provider: Provider, make_attempt: MakeAttempt) -> None:
        """It raises NoCapacity: nothing was made, and the next offer can be tried at once.

        An offer that cannot be sold out stays available, however many machines are launched from it.
        """
        attempt = make_attempt(key="sold-out")
        configuration = attempt.offer.configuration
        if not self.can_happen("sell_out"):
            machine = {
                self.launch(provider, make_attempt(key=key, configuration=configuration)).id
                for key in ("one", "two", "three")
            }
            assert len(machine) == 3  # noqa: PLR2004
            assert configuration in provider.available(Requirements(zone=configuration.zone)).items
            return
        self.sell_out(provider, configuration)
        with pytest.raises(NoCapacity):
            self.launch(provider, attempt)
        assert attempt.machine not in {instance.tags[TAG_ID] for instance in self.list_living(provider)}

    def test_another_token_makes_another_machine(self, provider: Provider, make_attempt: MakeAttempt) -> None:
        """Two launches that look alike but for the token are two machines."""
        machine = {self.launch(provider, make_attempt(key=key)).id for key in ("one", "two")}
        self.wait_until(lambda: {instance.id for instance in self.list_living(provider)} == machine)
        assert len(machine) == 2  # noqa: PLR2004

    def test_a_token_of_64_characters_is_accepted(self, provider: Provider, make_attempt: MakeAttempt) -> None:
        """The longest token that cloudgpu makes."""
        attempt = make_attempt(token=digest("a long token"))
        assert self.launch(provider, attempt).id == self.launch(provider, attempt).id

    def test_a_terminated_machine_is_gone_and_not_billed(self, provider: Provider, machine: Instance) -> None:
        """A later listing proves it."""
        self.terminate_and_wait(provider, machine.id)
        self.wait_until(lambda: self.list_living(provider) == [])
        with suppress(InstanceNotFound):
            assert not provider.get(machine.id).billed

    def test_every_end_that_a_pass_decides_can_be_carried_out(
        self, provider: Provider, make_attempt: MakeAttempt
    ) -> None:
        """At a lease's end, at renew-until, for a budget: stopped, parked or terminated, as far as the provider can."""
        attempt = make_attempt()
        offer_guards = guards.subject_of_offer(
            limited_to_abilities(provider, attempt.offer.configuration), attempt.request.setup
        )
        endings = {
            guards.gentlest_ending(offer_guards),
            guards.ending_at_renew_until(offer_guards, None),
            guards.automatic_ending(offer_guards, None) or ReaperAction.TERMINATE,
        }
        for number, action in enumerate(sorted(endings)):
            machine = self.launch_and_wait(provider, make_attempt(key=f"end-{number}"))
            self.end_machine(provider, machine.id, action)
            self.wait_until(partial(self.costs_nothing, provider, machine.id))

    def costs_nothing(self, provider: Provider, id: str) -> bool:  # noqa: A002
        """Say whether a machine is proved not to be billed."""
        return self.is_gone(provider, id) or not provider.get(id).billed

    def end_machine(self, provider: Provider, id: str, action: ReaperAction) -> None:  # noqa: A002
        """End a machine as a run of the reaper would."""
        if action is ReaperAction.STOP:
            cast("Pausable", provider).stop(id)
        elif action is ReaperAction.PARK:
            cast("Imageable", provider).terminate_keeping_disk(id)
        else:
            provider.terminate(id)

    def test_terminating_twice_is_fine(self, provider: Provider, make_attempt: MakeAttempt) -> None:
        """A request whose effect was not confirmed is repeated."""
        machine = self.launch(provider, make_attempt())
        provider.terminate(machine.id)
        provider.terminate(machine.id)
        self.wait_until_gone(provider, machine.id)
        provider.terminate(machine.id)

    def test_terminating_one_leaves_the_others(self, provider: Provider, make_attempt: MakeAttempt) -> None:
        """Only the machine that was named is ended."""
        remaining, ended = (self.launch_and_wait(provider, make_attempt(key=key)) for key in ("kept", "ended"))
        self.terminate_and_wait(provider, ended.id)
        assert provider.get(remaining.id).state is State.RUNNING

    def test_an_unknown_id_is_not_found(self, provider: Provider, make_attempt: MakeAttempt) -> None:
        """`get` raises InstanceNotFound, and `terminate` has nothing to do."""
        unknown = self.launch(provider, make_attempt()).id[:-4] + "0000"
        with pytest.raises(InstanceNotFound) as raised:
            provider.get(unknown)
        assert raised.value.message
        provider.terminate(unknown)

    def test_an_id_that_is_no_id_reaches_nothing(self, provider: Provider, machine: Instance) -> None:
        """An id comes from a file that may be damaged; it never becomes a path, a pattern or a second argument."""
        for invalid_id in ("../" + machine.id, "*", "", "--all", machine.id + "/", machine.id + "\n"):
            with pytest.raises(CloudgpuError):
                provider.get(invalid_id)
            with suppress(CloudgpuError):
                provider.terminate(invalid_id)
        assert provider.get(machine.id).state is State.RUNNING

    def test_ten_launches_at_once_make_ten_machines(self, provider: Provider, make_attempt: MakeAttempt) -> None:
        """Threads share a provider; every machine is made and listed."""
        attempts = [make_attempt(key=f"at-once-{number}") for number in range(self.parallel_launches)]
        with Pool(self.parallel_launches) as pool:
            machine = set(pool.map(lambda attempt: self.launch(provider, attempt).id, attempts))
        assert len(machine) == self.parallel_launches
        self.wait_until(lambda: {instance.id for instance in self.list_living(provider)} == machine)

    def test_one_token_launched_ten_times_at_once_makes_one_machine(
        self, provider: Provider, make_attempt: MakeAttempt
    ) -> None:
        """The same, when every thread sends the same call."""
        attempt = make_attempt()
        with Pool(self.parallel_launches) as pool:
            machine = set(pool.map(lambda _: self.launch(provider, attempt).id, range(self.parallel_launches)))
        assert len(machine) == 1
        self.wait_until(lambda: {instance.id for instance in self.list_living(provider)} == machine)

    parallel_launches = 10  # a class may take fewer, but at least 3, if its machines take long to launch

    def test_no_secret_is_in_a_repr(self, provider: Provider, make_attempt: MakeAttempt) -> None:
        """A value that is logged by accident must not give access to the machine."""
        attempt = make_attempt()
        secret = attempt.boot.host_private_key.splitlines()[2]
        machine = self.launch_and_wait(provider, attempt)
        assert machine.tags[TAG_ID] == attempt.machine
        assert not any(secret in repr(value) for value in (attempt, attempt.boot, machine, provider))


def record_network_calls(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Block all network calls from now on, and return the list to which they are appended."""
    network_calls: list[object] = []
    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, lambda *args: network_calls.append(args))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **_: network_calls.append(args))
    return network_calls


def violations_of(suite: type, provider: Provider) -> list[str]:
    """Return what is wrong with a test class: suites it lacks or may not have, and tests it overrides or skips."""
    violations = []
    for protocol, ability_suite in ABILITY_SUITES.items():
        has_ability, is_tested = isinstance(provider, protocol), issubclass(suite, ability_suite)
        if has_ability and not is_tested:
            violations.append(
                f"{suite.__name__} must inherit {ability_suite.__name__}: the provider is {protocol.__name__}"
            )
        if is_tested and not has_ability:
            violations.append(
                f"{suite.__name__} inherits {ability_suite.__name__}, but the provider is not {protocol.__name__}"
            )
    bases: list[type] = [ProviderContract, *ABILITY_SUITES.values()]
    for base in bases:
        if issubclass(suite, base):
            violations += [
                f"{suite.__name__} overrides {name}"
                for name, test in vars(base).items()
                if name.startswith("test_") and getattr(suite, name) is not test
            ]
    known_faults = {"lose_reply", "sell_out"}
    reasons = cast("ContractBase", suite).cannot_happen
    unexplained_faults = sorted(name for name, why in reasons.items() if name not in known_faults or not why)
    violations += [
        f"{suite.__name__}.cannot_happen says {name!r} without a reason, or it is not a fault"
        for name in unexplained_faults
    ]
    marks = [mark.name for mark in getattr(suite, "pytestmark", [])]
    violations += [f"{suite.__name__} is marked {mark}" for mark in marks if mark in ("skip", "skipif", "xfail")]
    return violations
