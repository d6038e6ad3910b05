"""What a provider promises about what launches leave beside machines and disks: it is listed, and can be removed."""

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

ORPHAN_KINDS = {
    Kind.ADDRESS,
    Kind.INTERFACE,
    Kind.KEY_PAIR,
    Kind.SECURITY_GROUP,
    Kind.SPOT_REQUEST,
    Kind.PLACEMENT_GROUP,
}


class HasOrphansContract(ContractBase):
    """Whatever a launch made beside the machine and its disk is listed with its ledger, and can be removed."""

    @pytest.fixture
    def cleaned_provider(self, provider: Provider) -> Iterator[Provider]:
        """Give the provider, and remove afterwards all that the launches of the tests have left.

        Fails, and removes nothing, if the account has an orphan of another ledger.
        """
        self.check_all_ours(self.list_orphans(provider))
        yield provider
        for instance in provider.list().instances:
            if self.is_ours(instance):
                self.terminate_and_wait(provider, instance.id)
        self.wait_until(lambda: self.remove_all(provider))
        self.check_all_ours(self.list_orphans(provider))

    def list_orphans(self, provider: Provider, region: str | None = None) -> list[ProviderResource]:
        """Return all orphans of a complete answer."""
        listing = cast("HasOrphans", provider).orphans(region)
        assert listing.unanswered == ()
        return list(listing.items)

    def remove_all(self, provider: Provider) -> bool:
        """Remove all orphans that the tests made and that are not in use; return whether none of them is left."""
        for resource in filter(self.is_ours, self.list_orphans(provider)):
            with suppress(InvalidRequest):
                cast("HasOrphans", provider).remove_orphan(resource)
        return not any(map(self.is_ours, self.list_orphans(provider)))

    def launch_and_end(self, provider: Provider, attempt: Attempt) -> list[ProviderResource]:
        """Launch a machine, end it, and return the orphans that are left."""
        machine = self.launch_and_wait(provider, attempt)
        self.terminate_and_wait(provider, machine.id)
        return self.list_orphans(provider)

    def test_an_account_without_launches_has_none(self, provider: Provider) -> None:
        """Nothing of anybody else's is taken for ours."""
        assert self.list_orphans(provider) == []

    def test_what_a_launch_leaves_bears_its_ledger_and_its_place(
        self, cleaned_provider: Provider, make_attempt: MakeAttempt
    ) -> None:
        """Its tags say whose it is."""
        attempt = make_attempt()
        configuration = attempt.offer.configuration
        for resource in self.launch_and_end(cleaned_provider, attempt):
            assert resource.kind in ORPHAN_KINDS
            assert resource.tags.get(TAG_LEDGER) == attempt.tags[TAG_LEDGER]
            assert (resource.provider, resource.account, resource.region) == (
                cleaned_provider.kind,
                cleaned_provider.account,
                configuration.region,
            )

    def test_an_orphan_is_listed_nowhere_else(self, cleaned_provider: Provider, make_attempt: MakeAttempt) -> None:
        """Nothing is listed twice, and nothing billed twice."""
        self.launch_and_wait(cleaned_provider, make_attempt())
        orphan_ids = [resource.id for resource in self.list_orphans(cleaned_provider)]
        other_resources = (
            cast("HasResources", cleaned_provider).resources().items
            if isinstance(cleaned_provider, HasResources)
            else ()
        )
        assert len(set(orphan_ids)) == len(orphan_ids)
        assert not set(orphan_ids) & {resource.id for resource in other_resources}

    def test_a_machine_goes_on_whatever_is_to_be_removed(
        self, cleaned_provider: Provider, make_attempt: MakeAttempt
    ) -> None:
        """Removing what it uses is refused."""
        machine = self.launch_and_wait(cleaned_provider, make_attempt())
        used_ids = {
            remaining.id
            for remaining in self.list_orphans(cleaned_provider)
            if remaining.attached_to == machine.id and remaining.kind is not Kind.SPOT_REQUEST
        }
        self.remove_all(cleaned_provider)
        assert cleaned_provider.get(machine.id).state is State.RUNNING
        assert used_ids <= {resource.id for resource in self.list_orphans(cleaned_provider)}

    def test_what_is_left_can_be_removed_and_is_removed_once(
        self, cleaned_provider: Provider, make_attempt: MakeAttempt
    ) -> None:
        """A repeated removal, or one of an unknown id, is no error."""
        orphans = self.launch_and_end(cleaned_provider, make_attempt())
        self.wait_until(lambda: self.remove_all(cleaned_provider))
        for resource in orphans:
            cast("HasOrphans", cleaned_provider).remove_orphan(resource)
            cast("HasOrphans", cleaned_provider).remove_orphan(replace(resource, id=resource.id[:-4] + "0000"))
        assert self.list_orphans(cleaned_provider) == []

    def test_a_region_tells_its_own_and_no_others(self, cleaned_provider: Provider, make_attempt: MakeAttempt) -> None:
        """The listing of one region has the orphans in it, and no others."""
        attempt = make_attempt()
        orphan_ids = {resource.id for resource in self.launch_and_end(cleaned_provider, attempt)}
        region = attempt.offer.configuration.region
        assert {resource.id for resource in self.list_orphans(cleaned_provider, region)} == orphan_ids
        others = {configuration.region for configuration in cleaned_provider.available(Requirements()).items} - {region}
        assert all(self.list_orphans(cleaned_provider, other) == [] for other in sorted(others)[:1])
