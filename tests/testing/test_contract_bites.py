"""The contract finds what a provider does wrong: each fault here is one that a real provider could have."""

from __future__ import annotations

import inspect

import pytest

from cloudgpu.providers import base
from cloudgpu.testing import (
    BareFakeProvider,
    FakeProvider,
    ManualClock,
    PausableContract,
    ProviderContract,
    new_host_key,
)
from cloudgpu.testing.abilities import ABILITY_SUITES, faults_of

pytest_plugins = ["pytester"]
new_host_key()  # now: each inner run forgets what it imported, and cryptography cannot be imported twice

HEAD = """
import pytest
from dataclasses import replace
from cloudgpu.core.facts import Listing, State
from cloudgpu.errors import InstanceNotFound, ProviderUnavailable
from cloudgpu.providers.base import ProviderSettings
from cloudgpu.testing import *
"""

SUITE = """
class Cloud{number}(FakeProvider):
    {fault}


class Test{number}(ProviderContract, PausableContract, TaggableContract, HasPricesContract, HasTimerContract,
                   CanRehearseInterruptionContract, KnowsHostKeysContract):
    @pytest.fixture
    def factory(self):
        return lambda settings: self.made.setdefault(settings.home, Cloud{number}(settings))

    @pytest.fixture
    def settings(self, tmp_path):
        self.made, self.clock = {{}}, ManualClock()
        return ProviderSettings("contract", {{"boot_s": 2}}, tmp_path / "home", self.clock)

    def wait_until(self, condition):
        for _ in range(200):
            if condition():
                return
            self.clock.advance(1)
        pytest.fail("never")
"""

FAULTS = {
    "forgets the token": (
        "def _made_before(self, cloud, attempt): return None",
        "test_the_same_token_never_makes_a_second_machine",
    ),
    "takes another offer's token for its own": (
        "def _made_before(self, cloud, attempt): return next(iter(cloud.machines.values()), None)",
        "test_another_token_makes_another_machine",
    ),
    "loses a tag": (
        "def list(self): return Listing(tuple(replace(i, tags={}) for i in super().list().instances))",
        "test_a_launched_machine_is_listed_with_exactly_its_tags",
    ),
    "calls what it cannot find a failure": (
        (
            "def get(self, id):\n"
            "        try: return super().get(id)\n"
            "        except InstanceNotFound as e: raise ProviderUnavailable(str(e))"
        ),
        "test_an_unknown_id_is_not_found",
    ),
    "does not end what it was told to end": (
        "def terminate(self, id): pass",
        "test_a_terminated_machine_is_gone_and_not_billed",
    ),
    "says that a stopped machine is billed": (
        "def _shown(self, m): return replace(super()._shown(m), billed=True)",
        "test_a_stopped_machine_is_not_billed",
    ),
    "gives times without a zone": (
        "def _shown(self, m): i = super()._shown(m); return replace(i, since=i.since.replace(tzinfo=None))",
        "test_times_are_aware_utc",
    ),
    "replaces all tags by the new ones": (
        "def tag(self, id, tags): m = self._store._cloud.machines; m[id] = replace(m[id], tags=dict(tags))",
        "test_a_tag_is_set_and_the_others_stay",
    ),
    "starts a stopped machine on a replay": (
        (
            "def launch(self, attempt, *, deadline):\n"
            "        i = super().launch(attempt, deadline=deadline)\n"
            "        if i.state in (State.STOPPING, State.STOPPED): self.start(i.id)\n"
            "        return i"
        ),
        "test_a_replayed_launch_does_not_start_a_stopped_machine",
    ),
    "has a timer that does not fire": (
        (
            "def launch(self, attempt, *, deadline):\n"
            "        tags = {**attempt.tags, 'cloudgpu-renew-until': '9999999999'}\n"
            "        return super().launch(replace(attempt, tags=tags), deadline=deadline)"
        ),
        "test_the_timer_ends_the_machine_by_itself",
    ),
    "looks up its endpoint while it is made": (
        (
            "def __init__(self, s):\n"
            "        super().__init__(s)\n"
            "        import socket; socket.getaddrinfo('localhost', 80)"
        ),
        "test_a_factory_asks_nothing_over_the_network",
    ),
    "offers everything for a GPU nobody has": (
        "def available(self, want): return super().available(replace(want, gpu=None))",
        "test_an_impossible_gpu_is_not_available",
    ),
    "gives prices in another order": (
        "def prices(self, offers): return sorted(super().prices(offers), key=lambda p: p.per_hour)",
        "test_every_offer_gets_its_price_in_order",
    ),
    "ignores an interruption": (
        "def interrupt(self, id): self.get(id); return self.clock()",
        "test_an_interruption_ends_the_machine_after_its_notice",
    ),
}


def outcomes(pytester: pytest.Pytester, suites: dict[str, str], wanted: str) -> dict[str, str]:
    """Run the contract on several clouds; return how each of the wanted tests came out."""
    pytester.makepyfile(HEAD + "".join(SUITE.format(number=number, fault=code) for number, code in suites.items()))
    run = pytester.inline_run("-p", "no:cacheprovider", "-q", "-k", wanted)
    passed, _skipped, failed = run.listoutcomes()
    reports = [(report, "passed") for report in passed] + [(report, "failed") for report in failed]
    return {report.nodeid.partition("::")[2]: outcome for report, outcome in reports if report.when == "call"}


def test_every_wrong_provider_is_found(pytester: pytest.Pytester) -> None:
    suites = {str(number): code for number, (code, _) in enumerate(FAULTS.values())}
    tests = {f"Test{number}::{test}": fault for number, (fault, (_, test)) in enumerate(FAULTS.items())}
    wanted = " or ".join("({})".format(test.replace("::", " and ")) for test in tests)
    found = outcomes(pytester, suites, wanted)
    assert {tests[test] for test, outcome in found.items() if outcome == "failed" and test in tests} == set(FAULTS)


def test_the_right_provider_passes_where_the_wrong_ones_fail(pytester: pytest.Pytester) -> None:
    tests = {test for _, test in FAULTS.values()}
    found = outcomes(pytester, {"Right": "pass"}, " or ".join(tests))
    assert found == {f"TestRight::{test}": "passed" for test in tests}


def abilities() -> set[type]:
    """Return the ability protocols of the seam: those that are asked for by isinstance."""
    return {
        kind
        for _, kind in inspect.getmembers(base, inspect.isclass)
        if kind.__module__ == base.__name__ and getattr(kind, "_is_runtime_protocol", False)
    }


def test_every_ability_has_its_suite() -> None:
    assert set(ABILITY_SUITES) == abilities()
    assert len(set(ABILITY_SUITES.values())) == len(ABILITY_SUITES)


def test_every_suite_has_tests_of_its_own() -> None:
    for suite in (ProviderContract, *ABILITY_SUITES.values()):
        assert [name for name in vars(suite) if name.startswith("test_")]


@pytest.fixture
def able(tmp_path):
    return FakeProvider(base.ProviderSettings("contract", {}, tmp_path, ManualClock()))


@pytest.fixture
def bare(tmp_path):
    return BareFakeProvider(base.ProviderSettings("contract", {}, tmp_path, ManualClock()))


def test_an_ability_without_its_suite_is_found(able, bare) -> None:
    class TestThin(ProviderContract):
        __test__ = False

    assert {fault.split(" must inherit ")[1].split(":")[0] for fault in faults_of(TestThin, able)} == {
        suite.__name__ for suite in ABILITY_SUITES.values()
    }
    assert faults_of(TestThin, bare) == []


def test_a_suite_without_the_ability_is_found(bare) -> None:
    class TestBoastful(ProviderContract, PausableContract):
        __test__ = False

    assert len(faults_of(TestBoastful, bare)) == 1


def test_an_opt_out_is_found(bare) -> None:
    @pytest.mark.skip
    class TestLazy(ProviderContract):
        __test__ = False

        def test_terminating_twice_is_fine(self):
            pass

    assert faults_of(TestLazy, bare) == ["TestLazy overrides test_terminating_twice_is_fine", "TestLazy is marked skip"]
