"""What a provider promises about what launches leave beside machines and disks: all of it is told, and can go."""

# ruff: noqa: S101  (a suite is asserts, and one class with many tests)

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import cast

import pytest

from cloudgpu.core.model.instances import TAG_LEDGER, State
from cloudgpu.core.model.launch import Attempt
from cloudgpu.core.model.offers import Requirements
from cloudgpu.core.model.resources import Kind, ProviderResource
from cloudgpu.errors import InvalidRequest
from cloudgpu.providers.abilities import HasOrphans, HasResources
from cloudgpu.providers.base import Provider
from cloudgpu.testing.contract.base import ContractBase, MakeAttempt

KINDS = {
    Kind.ADDRESS,
    Kind.INTERFACE,
    Kind.KEY_PAIR,
    Kind.SECURITY_GROUP,
    Kind.SPOT_REQUEST,
    Kind.PLACEMENT_GROUP,
}


class HasOrphansContract(ContractBase):
    """Whatever a launch made beside the machine and its disk is told with its ledger, and can be removed."""

    @pytest.fixture
    def leaver(self, provider: Provider) -> Iterator[Provider]:
        """Give the provider, and remove afterwards all that launches have left."""
        yield provider
        for instance in provider.list().instances:
            provider.terminate(instance.id)
            self.settle_gone(provider, instance.id)
        self.wait_until(lambda: self.removed(provider))

    def orphans(self, provider: Provider, region: str | None = None) -> list[ProviderResource]:
        """Return all of a complete answer."""
        found = cast("HasOrphans", provider).orphans(region)
        assert found.unanswered == ()
        return list(found.items)

    def removed(self, provider: Provider) -> bool:
        """Ask to remove whatever is left; say whether nothing is any more. What is in use is left to the next time."""
        for resource in self.orphans(provider):
            with suppress(InvalidRequest):
                cast("HasOrphans", provider).remove_orphan(resource)
        return self.orphans(provider) == []

    def ended(self, provider: Provider, attempt: Attempt) -> list[ProviderResource]:
        """Launch a machine, end it, and return what that has left."""
        made = self.running(provider, attempt)
        provider.terminate(made.id)
        self.settle_gone(provider, made.id)
        return self.orphans(provider)

    def test_an_account_without_launches_has_none(self, provider: Provider) -> None:
        """Nothing of anybody else's is taken for ours."""
        assert self.orphans(provider) == []

    def test_what_a_launch_leaves_bears_its_ledger_and_its_place(
        self, leaver: Provider, make_attempt: MakeAttempt
    ) -> None:
        """Whoever finds it knows whose it is."""
        attempt = make_attempt()
        item = attempt.offer.available
        for resource in self.ended(leaver, attempt):
            assert resource.kind in KINDS
            assert resource.tags.get(TAG_LEDGER) == attempt.tags[TAG_LEDGER]
            assert (resource.provider, resource.account, resource.region) == (leaver.kind, leaver.account, item.region)

    def test_an_orphan_is_listed_nowhere_else(self, leaver: Provider, make_attempt: MakeAttempt) -> None:
        """Nothing is listed twice, and nothing billed twice."""
        self.running(leaver, make_attempt())
        ours = [resource.id for resource in self.orphans(leaver)]
        others = cast("HasResources", leaver).resources().items if isinstance(leaver, HasResources) else ()
        assert len(set(ours)) == len(ours)
        assert not set(ours) & {resource.id for resource in others}

    def test_a_machine_goes_on_whatever_is_to_be_removed(self, leaver: Provider, make_attempt: MakeAttempt) -> None:
        """What it uses is refused, and is still there."""
        made = self.running(leaver, make_attempt())
        used = {
            one.id for one in self.orphans(leaver) if one.attached_to == made.id and one.kind is not Kind.SPOT_REQUEST
        }
        for resource in self.orphans(leaver):
            with suppress(InvalidRequest):
                cast("HasOrphans", leaver).remove_orphan(resource)
        assert leaver.get(made.id).state is State.RUNNING
        assert used <= {resource.id for resource in self.orphans(leaver)}

    def test_what_is_left_can_be_removed_and_is_removed_once(self, leaver: Provider, make_attempt: MakeAttempt) -> None:
        """Nothing stays; asked again, or about what was never there, it is no error."""
        left = self.ended(leaver, make_attempt())
        self.wait_until(lambda: self.removed(leaver))
        for resource in left:
            cast("HasOrphans", leaver).remove_orphan(resource)
            cast("HasOrphans", leaver).remove_orphan(replace(resource, id=resource.id[:-4] + "0000"))
        assert self.orphans(leaver) == []

    def test_a_region_tells_its_own_and_no_others(self, leaver: Provider, make_attempt: MakeAttempt) -> None:
        """The answer for one region is the part of the whole that lies there."""
        attempt = make_attempt()
        left = {resource.id for resource in self.ended(leaver, attempt)}
        region = attempt.offer.available.region
        assert {resource.id for resource in self.orphans(leaver, region)} == left
        others = {item.region for item in leaver.available(Requirements()).items} - {region}
        assert all(self.orphans(leaver, other) == [] for other in sorted(others)[:1])
