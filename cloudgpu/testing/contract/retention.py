"""What a provider promises about disks, volumes and images: what goes on costing money when its machine is gone."""

# ruff: noqa: S101  (a suite is asserts, and one class with many tests)

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import cast

import pytest

from cloudgpu.core.model.instances import (
    TAG_ID,
    TAG_IMAGE,
    TAG_LEDGER,
    TAG_OWNER,
    TAG_PROJECT,
    TAG_VOLUME,
    Instance,
    State,
)
from cloudgpu.core.model.launch import Attempt, Setup, Volume
from cloudgpu.core.model.offers import Requirements
from cloudgpu.core.model.resources import Kind, ProviderResource
from cloudgpu.errors import InvalidRequest
from cloudgpu.providers.abilities import HasResources, HasVolumes, Imageable, Resolves
from cloudgpu.providers.base import Provider
from cloudgpu.testing.contract.base import OTHER_TEST_LEDGER, ContractBase, MakeAttempt

IMAGE = "cloudgpu-contract-image"


class RetentionBase(ContractBase):
    """What the suites about disks and images share."""

    @pytest.fixture
    def emptied_provider(self, provider: Provider) -> Iterator[Provider]:
        """Give the provider, and remove afterwards what the tests have made and stays without a machine.

        Fails, and removes nothing, if the account has a resource of another ledger.
        """
        self.check_all_ours(self.list_resources(provider))
        yield provider
        used_by = {resource.attached_to for resource in self.list_ours(provider)} - {None}
        launched = {instance.id for instance in provider.list().instances if self.is_ours(instance)}
        for machine in used_by | launched:
            self.terminate_and_wait(provider, str(machine))
        self.wait_until(lambda: all(resource.attached_to is None for resource in self.list_ours(provider)))
        for resource in self.list_ours(provider):
            cast("HasResources", provider).remove(resource)
        self.wait_until(lambda: self.list_ours(provider) == [])
        self.check_all_ours(self.list_resources(provider))

    def list_ours(self, provider: Provider) -> list[ProviderResource]:
        """Return the resources that the tests have made."""
        return [resource for resource in self.list_resources(provider) if self.is_ours(resource)]

    def list_resources(self, provider: Provider, region: str | None = None) -> list[ProviderResource]:
        """Return all resources of a complete answer."""
        listing = cast("HasResources", provider).resources(region)
        assert listing.unanswered == ()
        return list(listing.items)

    def resources_of(self, provider: Provider, attempt: Attempt) -> list[ProviderResource]:
        """Return the resources that have the tags of this launch."""
        return [resource for resource in self.list_resources(provider) if resource.tags.get(TAG_ID) == attempt.machine]

    def launch_with_disk(self, provider: Provider, attempt: Attempt) -> tuple[Instance, ProviderResource]:
        """Launch a machine; return it and its system disk, once it runs and the disk is listed."""
        machine = self.launch_and_wait(provider, attempt)
        self.wait_until(
            lambda: [resource.attached_to for resource in self.resources_of(provider, attempt)] == [machine.id]
        )
        return machine, self.resources_of(provider, attempt)[0]

    def retained_disk(self, provider: Provider, attempt: Attempt) -> ProviderResource:
        """Launch, end the machine keeping its disk, and return that disk once it is free."""
        machine, _ = self.launch_with_disk(provider, attempt)
        cast("Imageable", provider).terminate_keeping_disk(machine.id)
        self.wait_until_gone(provider, machine.id)
        self.wait_until(
            lambda: (
                [(resource.attached_to, resource.ready) for resource in self.resources_of(provider, attempt)]
                == [(None, True)]
            )
        )
        return self.resources_of(provider, attempt)[0]

    def save_until_ready(
        self, provider: Provider, source: str, tags: Mapping[str, str], *, name: str = IMAGE
    ) -> ProviderResource:
        """Save an image: call `save_image` until it is ready."""
        saved: list[ProviderResource] = []

        def is_ready() -> bool:
            saved.append(cast("Imageable", provider).save_image(source, name, tags, restart=False))
            return saved[-1].kind is Kind.IMAGE and saved[-1].ready

        self.wait_until(is_ready)
        return saved[-1]

    def list_images(self, provider: Provider) -> list[ProviderResource]:
        """Return all images, and the snapshots that become one."""
        return [resource for resource in self.list_resources(provider) if resource.kind in (Kind.IMAGE, Kind.SNAPSHOT)]


class HasResourcesContract(RetentionBase):
    """Whatever costs money beside the machines can be found and removed, and nothing that is in use."""

    def test_an_empty_account_keeps_nothing(self, provider: Provider) -> None:
        """Nothing of anybody else's is taken for ours."""
        assert self.list_resources(provider) == []

    def test_a_machines_disk_is_listed_as_in_use(self, emptied_provider: Provider, make_attempt: MakeAttempt) -> None:
        """With what is needed to know whose it is, where, and what it costs."""
        attempt = make_attempt()
        machine, disk = self.launch_with_disk(emptied_provider, attempt)
        assert (disk.kind, disk.name) == (Kind.DISK, "")
        assert (disk.provider, disk.account) == (emptied_provider.kind, emptied_provider.account)
        assert (disk.region, disk.zone) == (machine.region, machine.zone)
        assert {key: disk.tags.get(key) for key in attempt.tags} == dict(attempt.tags)
        assert disk.size_gb > 0
        assert disk.stored_as

    def test_a_region_shows_its_own_and_no_others(self, emptied_provider: Provider, make_attempt: MakeAttempt) -> None:
        """The listing of one region has the resources in it, and no others."""
        attempt = make_attempt()
        machine, disk = self.launch_with_disk(emptied_provider, attempt)
        assert [resource.id for resource in self.list_resources(emptied_provider, machine.region)] == [disk.id]
        others = {configuration.region for configuration in emptied_provider.available(Requirements()).items} - {
            machine.region
        }
        assert all(self.list_resources(emptied_provider, region) == [] for region in sorted(others)[:1])

    def test_what_a_machine_uses_is_not_removed(self, emptied_provider: Provider, make_attempt: MakeAttempt) -> None:
        """A machine that runs loses nothing."""
        attempt = make_attempt()
        machine, disk = self.launch_with_disk(emptied_provider, attempt)
        with pytest.raises(InvalidRequest):
            cast("HasResources", emptied_provider).remove(disk)
        assert emptied_provider.get(machine.id).state is State.RUNNING
        assert [resource.id for resource in self.resources_of(emptied_provider, attempt)] == [disk.id]

    def test_a_terminated_machine_leaves_nothing(self, emptied_provider: Provider, make_attempt: MakeAttempt) -> None:
        """Its disk goes with it, whatever was set when it was launched."""
        attempt = make_attempt()
        machine, _ = self.launch_with_disk(emptied_provider, attempt)
        self.terminate_and_wait(emptied_provider, machine.id)
        self.wait_until(lambda: self.resources_of(emptied_provider, attempt) == [])

    def test_what_is_not_there_is_removed_already(self, emptied_provider: Provider, make_attempt: MakeAttempt) -> None:
        """Removing is repeated after a lost answer."""
        attempt = make_attempt()
        _, disk = self.launch_with_disk(emptied_provider, attempt)
        cast("HasResources", emptied_provider).remove(replace(disk, id=disk.id[:-4] + "0000", attached_to=None))
        assert [resource.id for resource in self.resources_of(emptied_provider, attempt)] == [disk.id]


class ImageableContract(RetentionBase):
    """A machine can end while its disk stays, and come back from the image of it. Never two images of one name."""

    def test_a_machine_can_end_while_its_disk_stays(
        self, emptied_provider: Provider, make_attempt: MakeAttempt
    ) -> None:
        """The disk is free, and bears the tags of the launch; the machine is not billed."""
        attempt = make_attempt()
        disk = self.retained_disk(emptied_provider, attempt)
        assert disk.kind is Kind.DISK
        assert {key: disk.tags.get(key) for key in attempt.tags} == dict(attempt.tags)
        assert self.list_living(emptied_provider) == []

    def test_ending_with_the_disk_retained_is_fine_again(
        self, emptied_provider: Provider, make_attempt: MakeAttempt
    ) -> None:
        """Twice while it ends, once when it has ended, and for what was never there."""
        attempt = make_attempt()
        machine = self.launch_and_wait(emptied_provider, attempt)
        end = cast("Imageable", emptied_provider).terminate_keeping_disk
        for _ in range(2):
            end(machine.id)
        self.wait_until_gone(emptied_provider, machine.id)
        end(machine.id)
        end(machine.id[:-4] + "0000")
        self.wait_until(
            lambda: [resource.attached_to for resource in self.resources_of(emptied_provider, attempt)] == [None]
        )

    def test_a_retained_disk_can_be_removed(self, emptied_provider: Provider, make_attempt: MakeAttempt) -> None:
        """After that the launch costs nothing, and removing it again is no error."""
        attempt = make_attempt()
        disk = self.retained_disk(emptied_provider, attempt)
        cast("HasResources", emptied_provider).remove(disk)
        self.wait_until(lambda: self.resources_of(emptied_provider, attempt) == [])
        cast("HasResources", emptied_provider).remove(disk)

    def test_a_disk_becomes_one_image_however_often_it_is_requested(
        self, emptied_provider: Provider, make_attempt: MakeAttempt
    ) -> None:
        """Repeated until it is ready, and afterwards: it is the same image, with the tags it was given."""
        disk = self.retained_disk(emptied_provider, make_attempt())
        tags = {**disk.tags, TAG_IMAGE: "trained"}
        image = self.save_until_ready(emptied_provider, disk.id, tags)
        assert self.save_until_ready(emptied_provider, disk.id, tags).id == image.id
        self.wait_until(
            lambda: (
                [(listed_image.id, listed_image.kind) for listed_image in self.list_images(emptied_provider)]
                == [(image.id, Kind.IMAGE)]
            )
        )
        (image,) = self.list_images(emptied_provider)
        assert {key: image.tags.get(key) for key in tags} == tags
        assert (image.name, image.ready, image.region) == ("trained", True, disk.region)
        assert image.size_gb > 0

    def test_an_image_is_the_same_when_its_disk_has_gone(
        self, emptied_provider: Provider, make_attempt: MakeAttempt
    ) -> None:
        """Who asks again after a crash makes no second one, and none is lost."""
        attempt = make_attempt()
        disk = self.retained_disk(emptied_provider, attempt)
        image = self.save_until_ready(emptied_provider, disk.id, disk.tags)
        cast("HasResources", emptied_provider).remove(disk)
        self.wait_until(
            lambda: [resource.kind for resource in self.resources_of(emptied_provider, attempt)] == [Kind.IMAGE]
        )
        assert self.save_until_ready(emptied_provider, disk.id, disk.tags).id == image.id
        assert [listed_image.id for listed_image in self.list_images(emptied_provider)] == [image.id]

    def test_a_machine_comes_back_from_its_image(self, emptied_provider: Provider, make_attempt: MakeAttempt) -> None:
        """It is launched from it, and the image can go while it runs."""
        disk = self.retained_disk(emptied_provider, make_attempt())
        image = self.save_until_ready(emptied_provider, disk.id, disk.tags)
        cast("HasResources", emptied_provider).remove(disk)
        configuration = next(
            configuration
            for configuration in emptied_provider.available(Requirements(region=disk.region)).items
            if configuration.zone == disk.zone
        )
        attempt_from_image = make_attempt(number=2, configuration=configuration, setup=Setup(image=image.id))
        machine = self.launch_and_wait(emptied_provider, attempt_from_image)
        cast("HasResources", emptied_provider).remove(image)
        self.wait_until(lambda: self.list_images(emptied_provider) == [])
        assert emptied_provider.get(machine.id).state is State.RUNNING

    def test_a_running_machine_can_be_saved_and_goes_on(
        self, emptied_provider: Provider, make_attempt: MakeAttempt
    ) -> None:
        """An image of it is made; it is the same machine, running, and its end does not remove the image."""
        attempt = make_attempt()
        machine = self.launch_and_wait(emptied_provider, attempt)
        tags = {TAG_IMAGE: "trained", TAG_LEDGER: attempt.tags[TAG_LEDGER]}
        image = self.save_until_ready(emptied_provider, machine.id, tags)
        assert self.wait_for_state(emptied_provider, machine.id, State.RUNNING).id == machine.id
        self.terminate_and_wait(emptied_provider, machine.id)
        assert [(listed_image.id, listed_image.name) for listed_image in self.list_images(emptied_provider)] == [
            (image.id, "trained")
        ]
        assert self.save_until_ready(emptied_provider, machine.id, tags).id == image.id

    def test_an_image_that_was_removed_is_gone_with_all_of_it(
        self, emptied_provider: Provider, make_attempt: MakeAttempt
    ) -> None:
        """Nothing that is billed stays behind it, and removing it again is no error."""
        disk = self.retained_disk(emptied_provider, make_attempt())
        image = self.save_until_ready(emptied_provider, disk.id, disk.tags)
        for resource in (disk, image, image):
            cast("HasResources", emptied_provider).remove(resource)
        self.wait_until(lambda: self.list_resources(emptied_provider) == [])

    def test_what_is_unknown_cannot_be_saved(self, emptied_provider: Provider, make_attempt: MakeAttempt) -> None:
        """An unknown id raises InstanceNotFound."""
        imageable = cast("Imageable", emptied_provider)
        self.check_not_found(emptied_provider, make_attempt(), lambda unknown: imageable.save_image(unknown, IMAGE, {}))
        assert self.list_images(emptied_provider) == []


VOLUME_GB = 12


class HasVolumesContract(RetentionBase):
    """A volume has one name, is made once, outlives its machines, and is used by one of them at a time."""

    volume = Volume("data", VOLUME_GB)

    def volume_tags(self, attempt: Attempt) -> Mapping[str, str]:
        """Return the tags of a volume: its ledger, owner, project and name, but no machine."""
        tags = {key: attempt.tags[key] for key in (TAG_LEDGER, TAG_OWNER, TAG_PROJECT)}
        return {**tags, TAG_VOLUME: self.volume.name}

    def list_volumes(self, provider: Provider) -> list[tuple[str, str | None]]:
        """Return the id of each volume and who uses it."""
        return [
            (resource.id, resource.attached_to)
            for resource in self.list_resources(provider)
            if resource.kind is Kind.VOLUME
        ]

    def launch_with_volume(self, provider: Provider, attempt: Attempt) -> ProviderResource:
        """Launch a machine, attach the volume to it and return that."""
        machine = self.launch_and_wait(provider, attempt)
        return cast("HasVolumes", provider).attach(machine.id, self.volume, self.volume_tags(attempt))

    def volume_without_machine(self, provider: Provider, attempt: Attempt) -> ProviderResource:
        """Launch a machine with a volume, end the machine, and return the volume."""
        volume = self.launch_with_volume(provider, attempt)
        self.terminate_and_wait(provider, str(volume.attached_to))
        self.wait_until(lambda: self.list_volumes(provider) == [(volume.id, None)])
        return volume

    def test_a_volume_is_made_in_the_machines_zone_and_attached(
        self, emptied_provider: Provider, make_attempt: MakeAttempt
    ) -> None:
        """With its name, its size and its tags; it is listed so, too."""
        attempt = make_attempt()
        volume = self.launch_with_volume(emptied_provider, attempt)
        machine = emptied_provider.get(str(volume.attached_to))
        assert (volume.kind, volume.name, volume.size_gb) == (Kind.VOLUME, "data", VOLUME_GB)
        assert (volume.region, volume.zone) == (machine.region, machine.zone)
        assert {key: volume.tags.get(key) for key in self.volume_tags(attempt)} == self.volume_tags(attempt)
        assert TAG_ID not in volume.tags
        assert self.list_volumes(emptied_provider) == [(volume.id, machine.id)]

    def test_attaching_twice_makes_no_second_volume(
        self, emptied_provider: Provider, make_attempt: MakeAttempt
    ) -> None:
        """The same one is there, attached to the same machine."""
        attempt = make_attempt()
        volume = self.launch_with_volume(emptied_provider, attempt)
        same_volume = cast("HasVolumes", emptied_provider).attach(
            str(volume.attached_to), self.volume, self.volume_tags(attempt)
        )
        assert same_volume.id == volume.id
        assert self.list_volumes(emptied_provider) == [(volume.id, volume.attached_to)]

    def test_a_volume_outlives_its_machine_and_is_found_again(
        self, emptied_provider: Provider, make_attempt: MakeAttempt
    ) -> None:
        """By its name, without a size, from another machine in its zone."""
        volume = self.volume_without_machine(emptied_provider, make_attempt())
        attempt = make_attempt(key="second")
        machine = self.launch_and_wait(emptied_provider, attempt)
        same_volume = cast("HasVolumes", emptied_provider).attach(machine.id, Volume("data"), self.volume_tags(attempt))
        assert (same_volume.id, same_volume.size_gb, same_volume.attached_to) == (volume.id, VOLUME_GB, machine.id)

    def test_a_volume_that_is_used_is_not_given_to_another(
        self, emptied_provider: Provider, make_attempt: MakeAttempt
    ) -> None:
        """Two machines on one file system destroy it."""
        volume = self.launch_with_volume(emptied_provider, make_attempt())
        other = make_attempt(key="second")
        second = self.launch_and_wait(emptied_provider, other)
        with pytest.raises(InvalidRequest):
            cast("HasVolumes", emptied_provider).attach(second.id, self.volume, self.volume_tags(other))
        assert self.list_volumes(emptied_provider) == [(volume.id, volume.attached_to)]

    def test_another_ledgers_volume_is_not_taken(self, emptied_provider: Provider, make_attempt: MakeAttempt) -> None:
        """The volumes of each ledger have names of their own."""
        volume = self.volume_without_machine(emptied_provider, make_attempt())
        attempt = make_attempt(key="second", ledger=OTHER_TEST_LEDGER)
        machine = self.launch_and_wait(emptied_provider, attempt)
        other = cast("HasVolumes", emptied_provider).attach(machine.id, self.volume, self.volume_tags(attempt))
        assert other.id != volume.id

    def test_a_volume_that_is_not_there_needs_a_size(
        self, emptied_provider: Provider, make_attempt: MakeAttempt
    ) -> None:
        """A name that was mistyped makes no disk."""
        attempt = make_attempt()
        machine = self.launch_and_wait(emptied_provider, attempt)
        with pytest.raises(InvalidRequest):
            cast("HasVolumes", emptied_provider).attach(machine.id, Volume("dada"), self.volume_tags(attempt))
        assert self.list_volumes(emptied_provider) == []

    def test_a_volume_cannot_be_attached_to_what_is_unknown(
        self, emptied_provider: Provider, make_attempt: MakeAttempt
    ) -> None:
        """It raises InstanceNotFound, and no volume is made."""
        attempt = make_attempt()
        volumes, tags = cast("HasVolumes", emptied_provider), self.volume_tags(attempt)
        self.check_not_found(emptied_provider, attempt, lambda unknown: volumes.attach(unknown, self.volume, tags))
        assert self.list_volumes(emptied_provider) == []

    def test_a_volume_ties_the_next_launch_to_its_zone(
        self, emptied_provider: Provider, make_attempt: MakeAttempt
    ) -> None:
        """Where the provider looks things up, it says so before the launch; elsewhere the volume alone says it."""
        volume = self.volume_without_machine(emptied_provider, make_attempt())
        if not isinstance(emptied_provider, Resolves):
            assert volume.region
            assert volume.zone
            return
        setup = Setup(volume=Volume("data"))
        assert (
            emptied_provider.placement_constraint(setup, Requirements()).region,
            emptied_provider.placement_constraint(setup, Requirements()).zone,
        ) == (volume.region, volume.zone)
        others = {configuration.zone for configuration in emptied_provider.available(Requirements()).items} - {
            volume.zone
        }
        for zone in sorted(others)[:1]:
            with pytest.raises(InvalidRequest):
                emptied_provider.placement_constraint(setup, Requirements(zone=zone))
