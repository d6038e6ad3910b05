"""What a provider promises about volumes: data disks with a name, which outlive machines."""

# ruff: noqa: S101  (a suite is asserts, and one class with many tests)

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import pytest

from cloudgpu.core.model.instances import TAG_ID, TAG_LEDGER, TAG_OWNER, TAG_PROJECT, TAG_VOLUME
from cloudgpu.core.model.launch import Attempt, Setup, Volume
from cloudgpu.core.model.offers import Requirements
from cloudgpu.core.model.resources import Kind, ProviderResource
from cloudgpu.errors import InstanceNotFound, InvalidRequest
from cloudgpu.providers.abilities import HasVolumes, Resolves
from cloudgpu.providers.base import Provider
from cloudgpu.testing.contract.base import MakeAttempt
from cloudgpu.testing.contract.retention import RetentionBase

VOLUME_GB = 12


class HasVolumesContract(RetentionBase):
    """A volume has one name, is made once, outlives its machines, and is used by one of them at a time."""

    data = Volume("data", VOLUME_GB)

    def tags(self, attempt: Attempt) -> Mapping[str, str]:
        """Return the tags of a volume: those of a person's work, and of no machine."""
        tags = {key: attempt.tags[key] for key in (TAG_LEDGER, TAG_OWNER, TAG_PROJECT)}
        return {**tags, TAG_VOLUME: self.data.name}

    def volumes(self, provider: Provider) -> list[tuple[str, str | None]]:
        """Return the id of each volume and who uses it."""
        return [
            (resource.id, resource.attached_to) for resource in self.stored(provider) if resource.kind is Kind.VOLUME
        ]

    def attached(self, provider: Provider, attempt: Attempt) -> ProviderResource:
        """Launch a machine, attach the volume to it and return that."""
        made = self.running(provider, attempt)
        return cast("HasVolumes", provider).attach(made.id, self.data, self.tags(attempt))

    def left(self, provider: Provider, attempt: Attempt) -> ProviderResource:
        """Return a volume whose machine is gone."""
        volume = self.attached(provider, attempt)
        provider.terminate(str(volume.attached_to))
        self.settle_gone(provider, str(volume.attached_to))
        self.wait_until(lambda: self.volumes(provider) == [(volume.id, None)])
        return volume

    def test_a_volume_is_made_in_the_machines_zone_and_attached(
        self, keeper: Provider, make_attempt: MakeAttempt
    ) -> None:
        """With its name, its size and its tags; it is listed so, too."""
        attempt = make_attempt()
        volume = self.attached(keeper, attempt)
        machine = keeper.get(str(volume.attached_to))
        assert (volume.kind, volume.name, volume.size_gb) == (Kind.VOLUME, "data", VOLUME_GB)
        assert (volume.region, volume.zone) == (machine.region, machine.zone)
        assert {key: volume.tags.get(key) for key in self.tags(attempt)} == self.tags(attempt)
        assert TAG_ID not in volume.tags
        assert self.volumes(keeper) == [(volume.id, machine.id)]

    def test_attaching_twice_makes_no_second_volume(self, keeper: Provider, make_attempt: MakeAttempt) -> None:
        """The same one is there, attached to the same machine."""
        attempt = make_attempt()
        volume = self.attached(keeper, attempt)
        again = cast("HasVolumes", keeper).attach(str(volume.attached_to), self.data, self.tags(attempt))
        assert again.id == volume.id
        assert self.volumes(keeper) == [(volume.id, volume.attached_to)]

    def test_a_volume_outlives_its_machine_and_is_found_again(
        self, keeper: Provider, make_attempt: MakeAttempt
    ) -> None:
        """By its name, without a size, from another machine in its zone."""
        volume = self.left(keeper, make_attempt())
        attempt = make_attempt(key="second")
        made = self.running(keeper, attempt)
        again = cast("HasVolumes", keeper).attach(made.id, Volume("data"), self.tags(attempt))
        assert (again.id, again.size_gb, again.attached_to) == (volume.id, VOLUME_GB, made.id)

    def test_a_volume_that_is_used_is_not_given_to_another(self, keeper: Provider, make_attempt: MakeAttempt) -> None:
        """Two machines on one file system destroy it."""
        volume = self.attached(keeper, make_attempt())
        other = make_attempt(key="second")
        second = self.running(keeper, other)
        with pytest.raises(InvalidRequest):
            cast("HasVolumes", keeper).attach(second.id, self.data, self.tags(other))
        assert self.volumes(keeper) == [(volume.id, volume.attached_to)]

    def test_another_ledgers_volume_is_not_taken(self, keeper: Provider, make_attempt: MakeAttempt) -> None:
        """A name belongs to whoever gave it."""
        volume = self.left(keeper, make_attempt())
        attempt = make_attempt(key="second", ledger="led-other")
        made = self.running(keeper, attempt)
        other = cast("HasVolumes", keeper).attach(made.id, self.data, self.tags(attempt))
        assert other.id != volume.id

    def test_a_volume_that_is_not_there_needs_a_size(self, keeper: Provider, make_attempt: MakeAttempt) -> None:
        """A name that was mistyped makes no disk."""
        attempt = make_attempt()
        made = self.running(keeper, attempt)
        with pytest.raises(InvalidRequest):
            cast("HasVolumes", keeper).attach(made.id, Volume("dada"), self.tags(attempt))
        assert self.volumes(keeper) == []

    def test_a_volume_cannot_be_attached_to_what_is_unknown(self, keeper: Provider, make_attempt: MakeAttempt) -> None:
        """And none is made for it."""
        attempt = make_attempt()
        unknown = self.launch(keeper, attempt).id[:-4] + "0000"
        with pytest.raises(InstanceNotFound):
            cast("HasVolumes", keeper).attach(unknown, self.data, self.tags(attempt))
        assert self.volumes(keeper) == []

    def test_a_volume_ties_the_next_launch_to_its_zone(self, keeper: Provider, make_attempt: MakeAttempt) -> None:
        """Where the provider looks things up, it says so before the launch; elsewhere the volume alone says it."""
        volume = self.left(keeper, make_attempt())
        if not isinstance(keeper, Resolves):
            assert volume.region
            assert volume.zone
            return
        setup = Setup(volume=Volume("data"))
        assert (
            keeper.placement_constraint(setup, Requirements()).region,
            keeper.placement_constraint(setup, Requirements()).zone,
        ) == (volume.region, volume.zone)
        others = {item.zone for item in keeper.available(Requirements()).items} - {volume.zone}
        for zone in sorted(others)[:1]:
            with pytest.raises(InvalidRequest):
                keeper.placement_constraint(setup, Requirements(zone=zone))
