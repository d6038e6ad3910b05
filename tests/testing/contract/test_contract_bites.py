"""The contract finds what a provider does wrong: each fault here is one that a real provider could have."""

from __future__ import annotations

import inspect

import pytest

from cloudgpu.providers import abilities as further, account_abilities, base, cluster_abilities
from cloudgpu.testing import (
    FullFakeProvider,
    ManualClock,
    MinimalFakeProvider,
    PausableContract,
    ProviderContract,
    new_host_key,
)
from cloudgpu.testing.contract.abilities import ABILITY_SUITES
from cloudgpu.testing.contract.provider import violations_of
from cloudgpu.testing.fake.full import PrepaidFakeProvider

pytest_plugins = ["pytester"]
new_host_key()  # now: each inner run forgets what it imported, and cryptography cannot be imported twice

HEAD = """
import pytest
from dataclasses import replace
from cloudgpu.core.model.instances import Listing, State
from cloudgpu.core.model.resources import Kind, ResourceListing
from cloudgpu.core.model.offers import Requirements
from cloudgpu.errors import InstanceNotFound, NoCapacity, ProviderUnavailable
from cloudgpu.providers.abilities import PlacementConstraint
from cloudgpu.providers.base import ProviderSettings
from cloudgpu.testing import *
"""

SUITE = """
class Cloud{number}(FullFakeProvider):
    {fault}


class Test{number}(ProviderContract, *ABILITY_SUITES.values()):
    @pytest.fixture
    def factory(self):
        return lambda settings: self.made.setdefault(settings.home, Cloud{number}(settings))

    @pytest.fixture
    def settings(self, tmp_path):
        self.made, self.clock = {{}}, ManualClock()
        options = {{"boot_s": 2, "image_s": 5, "timer": "moves"}}
        return ProviderSettings("contract", options, tmp_path / "home", self.clock)

    def wait_until(self, condition):
        for _ in range(200):
            if condition():
                return
            self.clock.advance(1)
        pytest.fail("never")

    def leave_room(self, provider, item, count):
        provider.leave_room(item.zone, count)

    def lose_reply(self, provider):
        provider.lose_reply("launch")

    def sell_out(self, provider, item):
        provider.leave_room(item.zone, 0)

    def launch_together_elsewhere(self, provider, other, attempts):
        return [one.id for one in self.launch_together(other, attempts)]

    def report_use(self, provider, id, at):
        provider.report_activity(id, at)

    def set_leave_time(self, provider, id, at):
        provider.let_leave(id, at)

    def report_host_keys(self, provider, id):
        provider.say_host_key(id, "ssh-ed25519 " + "AAAAC3NzaC1lZDI1NTE5AAAAI" + "A" * 43)
"""

FAULTS = {
    "says of no machine when its host leaves": (
        "def let_leave(self, id, at): pass",
        "test_a_machine_tells_when_its_host_leaves",
    ),
    "says of what is unknown that its host stays": (
        "def leaves_at(self, id): return dict(self._leaves).get(id)",
        "test_the_host_of_what_is_unknown_leaves_at_no_time",
    ),
    "makes a part of a cluster where there is no room for all": (
        "def _remaining_capacity(self, cloud, zone): return 99",
        "test_none_is_made_where_there_is_room_for_all_but_one",
    ),
    "makes a cluster twice": (
        "def _machines_of_token(self, cloud, attempts): return []",
        "test_the_same_call_again_gives_the_same_machines",
    ),
    "gives all nodes the tags of the first": (
        (
            "def _make_node(self, cloud, attempts, node):\n"
            "        return super()._make_node(cloud, [replace(one, tags=attempts[0].tags) for one in attempts], node)"
        ),
        "test_all_nodes_come_in_order_and_each_bears_its_own_tags",
    ),
    "takes away what running nodes share": (
        "def _machines_using(self, cloud, group): return []",
        "test_nodes_end_one_by_one_and_what_they_share_after_the_last",
    ),
    "forgets the token": (
        "def _machines_of_token(self, cloud, token, call): return []",
        "test_the_same_token_never_makes_a_second_machine",
    ),
    "makes a second machine after a lost reply": (
        (
            "def launch(self, attempt, *, deadline):\n"
            "        self.is_lost_reply = 'lost-reply' in attempt.request.key\n"
            "        return super().launch(attempt, deadline=deadline)\n"
            "    def _machines_of_token(self, cloud, token, call):\n"
            "        return [] if self.is_lost_reply else super()._machines_of_token(cloud, token, call)"
        ),
        "test_a_lost_reply_makes_no_second_machine",
    ),
    "says that it is unsure where there is no capacity": (
        (
            "def launch(self, attempt, *, deadline):\n"
            "        try: return super().launch(attempt, deadline=deadline)\n"
            "        except NoCapacity as e: raise ProviderUnavailable(str(e))"
        ),
        "test_sold_out_is_a_word_of_its_own",
    ),
    "takes another offer's token for its own": (
        "def _machines_of_token(self, cloud, token, call): return list(cloud.machines.values())[:1]",
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
        "def _as_instance(self, m): return replace(super()._as_instance(m), billed=True)",
        "test_a_stopped_machine_is_not_billed",
    ),
    "gives times without a zone": (
        "def _as_instance(self, m): i = super()._as_instance(m); return replace(i, since=i.since.replace(tzinfo=None))",
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
        "def _fire_due_timers(self, cloud): pass",
        "test_the_timer_ends_the_machine_by_itself",
    ),
    "sets a timer once and never moves it": (
        "def set_timer(self, id, at, *, action=None): self.timer(id) or super().set_timer(id, at, action=action)",
        "test_a_timer_is_where_it_was_set_last",
    ),
    "drops every timer": (
        "def drop_timer(self, id): self._store._cloud.timers.clear()",
        "test_each_machine_has_its_own_timer",
    ),
    "sets a timer for nothing": (
        "def set_timer(self, id, at, **how): id in self._store._cloud.machines and super().set_timer(id, at, **how)",
        "test_a_timer_for_what_is_unknown_is_refused",
    ),
    "forgets the role of timers": (
        "def make_timer_role(self, document): pass",
        "test_a_timer_role_is_made_once_and_taken_away_whole",
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
        "def available(self, requirements): return super().available(replace(requirements, gpu=None))",
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
    "forgets whom its budget is to tell": (
        "def set_budget_alert(self, alert): super().set_budget_alert(replace(alert, emails=alert.emails[:1]))",
        "test_a_budget_alert_is_as_it_was_set_last",
    ),
    "makes the machine while it looks things up": (
        (
            "def resolve(self, request, item):\n"
            "        attempt = replace(make_attempt(item), request=request, made_at=self.clock())\n"
            "        if not self.list().instances: super().launch(attempt, deadline=self.clock())\n"
            "        return super().resolve(request, item)"
        ),
        "test_looking_up_makes_nothing_and_says_the_same_twice",
    ),
    "looks another thing up every time": (
        (
            "def resolve(self, request, item):\n"
            "        return replace(super().resolve(request, item), call={'image': None, 'n': self.calls['resolve']})"
        ),
        "test_looking_up_makes_nothing_and_says_the_same_twice",
    ),
    "takes a mistyped image for no wish": (
        "def placement_constraint(self, setup, requirements): return PlacementConstraint()",
        "test_an_image_that_is_not_there_is_refused",
    ),
    "forgets what the disks cost": (
        "def resolve(self, request, item): return replace(super().resolve(request, item), attached=())",
        "test_what_costs_beside_the_machine_is_named_and_counted",
    ),
    "lets the caller's old address stay": (
        (
            "def allow(self, id, label, cidr):\n"
            "        door = self._store._cloud.firewalls[self.get(id).id]\n"
            "        door['old'] = door.get(label, ''); super().allow(id, label, cidr)"
        ),
        "test_a_caller_who_has_moved_is_let_in_from_there_only",
    ),
    "closes an address with the first label that goes": (
        (
            "def allow(self, id, label, cidr):\n"
            "        door = self._store._cloud.firewalls[self.get(id).id]; old = door.get(label)\n"
            "        super().allow(id, label, cidr)\n"
            "        if cidr is None: [door.pop(k) for k in [k for k, v in door.items() if v == old]]"
        ),
        "test_two_labels_at_one_address_do_not_lose_it_together",
    ),
    "opens the door of a machine that is not there": (
        "def allowed(self, id): return self._store._cloud.firewalls.get(id, {})",
        "test_what_is_unknown_lets_nobody_in",
    ),
    "leaves the disk of what was terminated": (
        "def terminate(self, id): self.terminate_keeping_disk(id)",
        "test_a_terminated_machine_leaves_nothing",
    ),
    "removes the disk of a running machine": (
        "def remove(self, resource): self._store._cloud.resources.pop(resource.id, None)",
        "test_what_a_machine_uses_is_not_removed",
    ),
    "lists only what no machine uses": (
        (
            "def resources(self, region=None):\n"
            "        return ResourceListing(tuple(i for i in super().resources(region).items if i.attached_to is None))"
        ),
        "test_a_machines_disk_is_listed_as_in_use",
    ),
    "answers for every region when it is asked for one": (
        "def resources(self, region=None): return super().resources()",
        "test_a_region_shows_its_own_and_no_others",
    ),
    "loses the disk that was to be kept": (
        "def terminate_keeping_disk(self, id): self.terminate(id)",
        "test_a_machine_can_end_while_its_disk_stays",
    ),
    "fails to end what has ended": (
        (
            "def terminate_keeping_disk(self, id): "
            "self._find_living_machine(self._store._cloud, id); super().terminate_keeping_disk(id)"
        ),
        "test_ending_with_the_disk_retained_is_fine_again",
    ),
    "makes a second image when it is asked again": (
        (
            "def save_image(self, source, name, tags, *, restart=True):\n"
            "        there = [t for t in self._store._cloud.resources.values() if t.full_name == name]\n"
            "        ready = [t for t in there if t.kind is Kind.IMAGE]\n"
            "        return super().save_image(source, name + 'i' * len(ready), tags, restart=restart)"
        ),
        "test_a_disk_becomes_one_image_however_often_it_is_requested",
    ),
    "looks for the disk before it looks for the image": (
        (
            "def save_image(self, source, name, tags, *, restart=True):\n"
            "        if source not in {**self._store._cloud.resources, **self._store._cloud.machines}:\n"
            "            raise InstanceNotFound(source)\n"
            "        return super().save_image(source, name, tags, restart=restart)"
        ),
        "test_an_image_is_the_same_when_its_disk_has_gone",
    ),
    "leaves the snapshot of an image that was removed": (
        (
            "def remove(self, resource):\n"
            "        super().remove(resource)\n"
            "        if resource.kind is Kind.IMAGE: self.left = (replace(resource, kind=Kind.SNAPSHOT),)\n"
            "    def resources(self, region=None):\n"
            "        return ResourceListing(super().resources(region).items + getattr(self, 'left', ()))"
        ),
        "test_an_image_that_was_removed_is_gone_with_all_of_it",
    ),
    "has images from which nothing can be launched": (
        (
            "def _check_launch(self, cloud, attempt):\n"
            "        raise ProviderUnavailable('no') if attempt.call.get('image') else None"
        ),
        "test_a_machine_comes_back_from_its_image",
    ),
    "stops the machine that it saves": (
        (
            "def save_image(self, source, name, tags, *, restart=True):\n"
            "        image = super().save_image(source, name, tags, restart=restart)\n"
            "        if source in self._store._cloud.machines: self.stop(source)\n"
            "        return image"
        ),
        "test_a_running_machine_can_be_saved_and_goes_on",
    ),
    "makes a volume for every machine": (
        (
            "def attach(self, id, volume, tags):\n"
            "        for t in list(self._store._cloud.resources.values()):\n"
            "            if t.kind is Kind.VOLUME: self._store._cloud.resources[t.id] = replace(t, tags={})\n"
            "        return super().attach(id, replace(volume, size_gb=volume.size_gb or 1), tags)"
        ),
        "test_a_volume_outlives_its_machine_and_is_found_again",
    ),
    "gives a volume to two machines": (
        (
            "def attach(self, id, volume, tags):\n"
            "        for t in list(self._store._cloud.resources.values()):\n"
            "            if t.kind is Kind.VOLUME: self._store._cloud.resources[t.id] = replace(t, attached_to=None)\n"
            "        return super().attach(id, volume, tags)"
        ),
        "test_a_volume_that_is_used_is_not_given_to_another",
    ),
    "deletes the volume with its machine": (
        (
            "def attach(self, id, volume, tags):\n"
            "        made = super().attach(id, volume, tags); things = self._store._cloud.resources\n"
            "        things[made.id] = replace(things[made.id], stays=False)\n"
            "        return made"
        ),
        "test_a_volume_outlives_its_machine_and_is_found_again",
    ),
    "makes a volume for a mistyped name": (
        "def attach(self, id, v, tags): return super().attach(id, replace(v, size_gb=v.size_gb or 1), tags)",
        "test_a_volume_that_is_not_there_needs_a_size",
    ),
    "grants no wish and says nothing": (
        "def request_quota(self, region, code, limit): return ''",
        "test_a_higher_limit_can_be_requested",
    ),
    "asks for a quota that is none": (
        "def request_quota(self, region, code, limit): return 'asked'",
        "test_a_limit_that_is_none_cannot_be_raised",
    ),
    "counts what other regions use": (
        "def quotas(self, region): return [replace(q, used=1) for q in super().quotas(region)]",
        "test_nothing_is_used_in_an_empty_account",
    ),
    "has no page for its limits": (
        "def quota_page(self, region, code): return ''",
        "test_each_limit_has_a_page_of_its_own",
    ),
    "takes silence for a sign of life": (
        "def activity(self, ids): return {i: t or self.clock() for i, t in super().activity(ids).items()}",
        "test_a_machine_tells_when_it_was_in_use",
    ),
    "lets one that is gone silence the others": (
        "def activity(self, ids): return {i: self.get(i) and super(type(self), self).activity([i])[i] for i in ids}",
        "test_what_is_unknown_says_so_in_its_place",
    ),
    "asks everybody when nobody is meant": (
        "def activity(self, ids): return super().activity(ids) or {'': None}",
        "test_no_ids_need_no_call",
    ),
    "shows one machine's host key for all": (
        "def host_keys(self, id): self.get(id); return [k for m in self._store._cloud.host_keys.values() for k in m]",
        "test_a_machine_tells_its_host_keys_once_it_has_some",
    ),
    "takes no machine for one that is silent": (
        "def host_keys(self, id): return ()",
        "test_what_is_unknown_has_no_host_key",
    ),
    "finds fault without a way out": (
        "def findings(self, region=None): return [replace(f, is_ok=False) for f in super().findings(region)]",
        "test_every_finding_says_what_it_found",
    ),
    "finds something else at each look": (
        "def findings(self, region=None): return [replace(f, message=str(self.calls())) for f in super().findings()]",
        "test_looking_twice_finds_the_same",
    ),
    "tries its account out": (
        (
            "def findings(self, region=None):\n"
            "        attempt = make_attempt(pick(self.available(Requirements()).items), now=self.clock())\n"
            "        self.launch(attempt, deadline=self.clock()); self.clock.advance(2)\n"
            "        return super().findings(region)"
        ),
        "test_looking_makes_nothing",
    ),
    "forgets a region": (
        "def regions(self): return super().regions()[1:]",
        "test_what_is_available_lies_in_a_region",
    ),
    "tries its permissions out": (
        (
            "def permissions(self, region=None):\n"
            "        attempt = make_attempt(pick(self.available(Requirements()).items), now=self.clock())\n"
            "        self.launch(attempt, deadline=self.clock()); self.clock.advance(2)\n"
            "        return super().permissions(region)"
        ),
        "test_asking_makes_nothing",
    ),
    "says that everything is denied": (
        "def permissions(self, region=None): return [replace(p, allowed=False) for p in super().permissions(region)]",
        "test_a_credential_that_may_do_everything_is_denied_nothing",
    ),
    "stops nothing where one is not there": (
        (
            "def stop_many(self, ids):\n"
            "        gone = {i: r for i, r in self.get_many(ids).items() if isinstance(r, InstanceNotFound)}\n"
            "        return gone or super().stop_many(ids)"
        ),
        "test_one_that_is_unknown_keeps_no_other_running",
    ),
    "stops all when none is named": (
        "def stop_many(self, ids): return super().stop_many(ids or [i.id for i in self.list().instances])",
        "test_none_is_not_all",
    ),
    "leaves out what it cannot find": (
        "def get_many(self, ids): return {k: v for k, v in super().get_many(ids).items() if hasattr(v, 'state')}",
        "test_many_are_seen_as_each_is_alone",
    ),
    "leaves the role behind": (
        "def remove_machine_role(self): pass",
        "test_a_role_is_made_once_and_taken_away_whole",
    ),
}


def outcomes(pytester: pytest.Pytester, suites: dict[str, str], wanted: str) -> dict[str, str]:
    """Run the contract on several clouds; return how each of the wanted tests came out."""
    pytester.makepyfile(HEAD + "".join(SUITE.format(number=number, fault=code) for number, code in suites.items()))
    run = pytester.inline_run("-p", "no:cacheprovider", "-q", "-k", wanted)
    passed, _skipped, failed = run.listoutcomes()
    reports = [(report, "passed") for report in passed] + [(report, "failed") for report in failed]
    return {report.nodeid.partition("::")[2]: outcome for report, outcome in reports if report.when == "call"}


@pytest.mark.soak
def test_every_wrong_provider_is_found(pytester: pytest.Pytester) -> None:
    suites = {str(number): code for number, (code, _) in enumerate(FAULTS.values())}
    tests = {f"Test{number}::{test}": fault for number, (fault, (_, test)) in enumerate(FAULTS.items())}
    wanted = " or ".join("({})".format(test.replace("::", " and ")) for test in tests)
    found = outcomes(pytester, suites, wanted)
    assert {tests[test] for test, outcome in found.items() if outcome == "failed" and test in tests} == set(FAULTS)


@pytest.mark.soak
def test_the_right_provider_passes_where_the_wrong_ones_fail(pytester: pytest.Pytester) -> None:
    tests = {test for _, test in FAULTS.values()}
    found = outcomes(pytester, {"Right": "pass"}, " or ".join(tests))
    assert found == {f"TestRight::{test}": "passed" for test in tests}


def abilities() -> set[type]:
    """Return the ability protocols of the seam: those that are asked for by isinstance."""
    return {
        kind
        for module in (base, further, account_abilities, cluster_abilities)
        for _, kind in inspect.getmembers(module, inspect.isclass)
        if kind.__module__ == module.__name__ and getattr(kind, "_is_runtime_protocol", False)
    }


def test_every_ability_has_its_suite() -> None:
    assert set(ABILITY_SUITES) == abilities()
    assert len(set(ABILITY_SUITES.values())) == len(ABILITY_SUITES)


def test_every_suite_has_tests_of_its_own() -> None:
    for suite in (ProviderContract, *ABILITY_SUITES.values()):
        assert [name for name in vars(suite) if name.startswith("test_")]


@pytest.fixture
def able(tmp_path):
    class Able(PrepaidFakeProvider, FullFakeProvider):
        """The fake cloud with every ability there is, that of a prepaid one included."""

    return Able(base.ProviderSettings("contract", {}, tmp_path, ManualClock()))


@pytest.fixture
def bare(tmp_path):
    return MinimalFakeProvider(base.ProviderSettings("contract", {}, tmp_path, ManualClock()))


def test_an_ability_without_its_suite_is_found(able, bare) -> None:
    class TestThin(ProviderContract):
        __test__ = False

    assert {fault.split(" must inherit ")[1].split(":")[0] for fault in violations_of(TestThin, able)} == {
        suite.__name__ for suite in ABILITY_SUITES.values()
    }
    assert violations_of(TestThin, bare) == []


def test_a_suite_without_the_ability_is_found(bare) -> None:
    class TestBoastful(ProviderContract, PausableContract):
        __test__ = False

    assert len(violations_of(TestBoastful, bare)) == 1


def test_an_opt_out_is_found(bare) -> None:
    @pytest.mark.skip
    class TestLazy(ProviderContract):
        __test__ = False

        def test_terminating_twice_is_fine(self):
            pass

    assert violations_of(TestLazy, bare) == [
        "TestLazy overrides test_terminating_twice_is_fine",
        "TestLazy is marked skip",
    ]


@pytest.mark.soak
def test_a_suite_that_makes_no_faults_and_does_not_say_why_fails(pytester) -> None:
    body = """
class TestThin(ProviderContract):
    @pytest.fixture
    def factory(self):
        return MinimalFakeProvider


class TestHonest(TestThin):
    cannot_happen = {"lose_reply": "it is in memory", "sell_out": "it never ends"}
"""
    pytester.makepyfile(HEAD + body)
    done = pytester.runpytest("-q", "-p", "no:cacheprovider", "-k", "lost_reply or sold_out or none_is_changed")
    done.assert_outcomes(passed=4, failed=2, warnings=2)
    done.stdout.fnmatch_lines(["*TestThin.lose_reply is missing: make that fault happen*"])
    done.stdout.fnmatch_lines(["*TestHonest: no test of lose_reply, since it is in memory*"])


def test_a_fault_that_is_none_or_has_no_reason_is_found(bare) -> None:
    class TestSilent(ProviderContract):
        __test__ = False
        cannot_happen = {"lose_reply": "", "sold_out": "it never ends"}  # noqa: RUF012

    assert [fault.split(",")[0] for fault in violations_of(TestSilent, bare)] == [
        "TestSilent.cannot_happen says 'lose_reply' without a reason",
        "TestSilent.cannot_happen says 'sold_out' without a reason",
    ]


def test_a_launch_over_a_network_cannot_say_that_no_answer_is_lost(pytester) -> None:
    body = """
class Calls(MinimalFakeProvider):
    def launch(self, attempt, *, deadline):
        import socket; socket.socket().connect(("127.0.0.1", 9))
        return super().launch(attempt, deadline=deadline)


class TestCalls(ProviderContract):
    cannot_happen = {"lose_reply": "it never does", "sell_out": "it never ends"}

    @pytest.fixture
    def factory(self):
        return Calls
"""
    pytester.makepyfile(HEAD + body)
    pytester.runpytest("-q", "-p", "no:cacheprovider", "-k", "lost_reply").assert_outcomes(failed=1, warnings=1)
