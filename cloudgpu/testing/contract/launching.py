"""What a provider promises about the moment before a launch, and about who may connect after it."""

# ruff: noqa: S101  (a suite is asserts, and one class with many tests)

from __future__ import annotations

import json
from dataclasses import replace
from typing import cast

import pytest

from cloudgpu.core.model.instances import Instance, State
from cloudgpu.core.model.launch import Network, Setup, Volume
from cloudgpu.core.model.offers import Market, Requirements
from cloudgpu.errors import InvalidRequest, NoCapacity
from cloudgpu.providers.abilities import HasFirewall, HasVolumes, PlacementConstraint, Resolves
from cloudgpu.providers.base import Provider
from cloudgpu.testing.contract.base import ContractBase, MakeAttempt

# CIDRs: of the caller at the launch, of the caller later, of a colleague
HERE, THERE, LAB = "203.0.113.7/32", "198.51.100.9/32", "192.0.2.0/24"
FROM_HERE = Setup(network=Network(ssh_from=(HERE,)))


class ResolvesContract(ContractBase):
    """What the call of a launch needs is looked up before it; looking up changes nothing."""

    def test_looking_up_makes_nothing_and_says_the_same_twice(
        self, provider: Provider, make_attempt: MakeAttempt
    ) -> None:
        """A plan may be made as often as anybody likes."""
        attempt = make_attempt()
        first, second = (
            cast("Resolves", provider).resolve(attempt.request, attempt.offer.configuration) for _ in range(2)
        )
        assert dict(first.call) == dict(second.call) == dict(attempt.call)
        assert self.list_living(provider) == []

    def test_a_call_that_was_saved_launches(self, provider: Provider, make_attempt: MakeAttempt) -> None:
        """A resolved call is plain JSON: read back from a file, it makes the machine, and again the same one."""
        attempt = make_attempt()
        saved = replace(attempt, call=json.loads(json.dumps(dict(attempt.call))))
        machine = self.launch_and_wait(provider, saved)
        assert self.launch(provider, attempt).id == machine.id

    def test_each_market_can_be_looked_up(self, provider: Provider, make_attempt: MakeAttempt) -> None:
        """For whatever is available, on spot too where there is spot."""
        for market in Market:
            if provider.available(Requirements(market=market)).items:
                assert make_attempt(market=market, key=str(market)).request.requirements.market is market

    def test_a_setup_of_nothing_ties_to_no_place(self, provider: Provider) -> None:
        """And neither does a volume that is to be made."""
        for setup in (Setup(), Setup(volume=Volume("brand-new", 20))):
            constraint = cast("Resolves", provider).placement_constraint(setup, Requirements())
            assert (constraint.region, constraint.zone) == (PlacementConstraint().region, PlacementConstraint().zone)

    def test_an_image_that_is_not_there_is_refused(self, provider: Provider) -> None:
        """Before anything is launched, with the option's name."""
        with pytest.raises(InvalidRequest) as refused:
            cast("Resolves", provider).placement_constraint(Setup(image="no-such-image"), Requirements())
        assert refused.value.field == "--image"

    def test_a_volume_that_is_not_there_and_has_no_size_is_refused(self, provider: Provider) -> None:
        """A mistyped name creates no volume."""
        with pytest.raises(InvalidRequest) as refused:
            cast("Resolves", provider).placement_constraint(Setup(volume=Volume("no-such-volume")), Requirements())
        assert refused.value.field == "--volume"

    def test_what_is_not_sold_there_is_refused(self, provider: Provider, make_attempt: MakeAttempt) -> None:
        """Offers age: what was offered a while ago is looked at again."""
        attempt = make_attempt()
        configuration = replace(attempt.offer.configuration, instance_type="impossible.9000")
        with pytest.raises((NoCapacity, InvalidRequest)):
            cast("Resolves", provider).resolve(attempt.request, configuration)

    def test_what_costs_beside_the_machine_is_named_and_counted(
        self, provider: Provider, make_attempt: MakeAttempt
    ) -> None:
        """A system disk of a chosen size, and a volume where the provider has them, cost money: both are listed."""
        attempt = make_attempt()
        volume = Volume("brand-new", 444) if isinstance(provider, HasVolumes) else None
        request = replace(attempt.request, setup=Setup(disk_gb=333, volume=volume))
        resolved = cast("Resolves", provider).resolve(request, attempt.offer.configuration)
        sizes = {333.0, 444.0} if volume else {333.0}
        assert sizes <= {float(resource.quantity) for resource in resolved.attached}
        assert all(resource.what and resource.stored_as and resource.quantity > 0 for resource in resolved.attached)


class ReachableContract(ContractBase):
    """SSH is open to the CIDRs that were allowed, each under a label, and to no others."""

    def launch_reachable(self, provider: Provider, make_attempt: MakeAttempt) -> Instance:
        """Return a running machine that was launched from `HERE`."""
        return self.launch_and_wait(provider, make_attempt(setup=FROM_HERE))

    def allow_each(self, provider: Provider, id: str, **cidr_by_label: str | None) -> dict[str, str]:  # noqa: A002
        """Let each label in from its CIDR, in order; return who may connect then."""
        for label, cidr in cidr_by_label.items():
            cast("HasFirewall", provider).allow(id, label, cidr)
        return dict(cast("HasFirewall", provider).allowed(id))

    def test_only_the_caller_may_connect_at_first(self, provider: Provider, make_attempt: MakeAttempt) -> None:
        """From the address of the launch."""
        machine = self.launch_reachable(provider, make_attempt)
        assert dict(cast("HasFirewall", provider).allowed(machine.id)) == {"caller": HERE}

    def test_a_caller_who_has_moved_is_let_in_from_there_only(
        self, provider: Provider, make_attempt: MakeAttempt
    ) -> None:
        """The new address replaces the old one; the same call again changes nothing."""
        machine = self.launch_reachable(provider, make_attempt)
        for _ in range(2):
            assert self.allow_each(provider, machine.id, caller=THERE) == {"caller": THERE}
        assert provider.get(machine.id).state is State.RUNNING

    def test_a_label_comes_and_goes_without_the_others(self, provider: Provider, make_attempt: MakeAttempt) -> None:
        """A colleague is allowed and removed; each call twice is no error."""
        machine = self.launch_reachable(provider, make_attempt)
        for _ in range(2):
            assert self.allow_each(provider, machine.id, ada=LAB) == {"caller": HERE, "ada": LAB}
        for _ in range(2):
            assert self.allow_each(provider, machine.id, ada=None) == {"caller": HERE}

    def test_two_labels_at_one_address_do_not_lose_it_together(
        self, provider: Provider, make_attempt: MakeAttempt
    ) -> None:
        """Two people behind one router: one goes, the other stays."""
        machine = self.launch_reachable(provider, make_attempt)
        assert self.allow_each(provider, machine.id, ada=HERE) == {"caller": HERE, "ada": HERE}
        assert self.allow_each(provider, machine.id, ada=None) == {"caller": HERE}

    def test_what_is_unknown_lets_nobody_in(self, provider: Provider, make_attempt: MakeAttempt) -> None:
        """An unknown machine has no firewall to open."""
        firewall, attempt = cast("HasFirewall", provider), make_attempt(setup=FROM_HERE)
        self.check_not_found(
            provider, attempt, firewall.allowed, lambda unknown: firewall.allow(unknown, "caller", THERE)
        )
