"""Data volumes, which tie a launch to their zone, on every cloud: which one a request names, or why it cannot be used.

`volume` is what the request says (a name, maybe a size), a `DataVolume` is a disk that the cloud has.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cloudgpu.core.model.identity import Unanswered
from cloudgpu.core.model.launch import Setup, Volume
from cloudgpu.core.model.offers import MachineConfiguration, Requirements
from cloudgpu.core.values.naming import unknown_word
from cloudgpu.errors import InvalidRequest, ProviderUnavailable
from cloudgpu.providers.abilities import AttachedResource
from cloudgpu.providers.attached_costs import address_kind

Raw = Mapping[str, Any]  # a disk as the cloud's API describes it


@dataclass(frozen=True, slots=True)
class DataVolume:
    """A data volume that exists: `id` is the cloud's id of the disk, `used_by` our id of the machine that uses it."""

    name: str
    id: str
    zone: str
    size_gb: int
    used_by: str | None = None
    disk_type: str = ""  # its type at the cloud, where not every machine takes every type


def requested_volume(
    same_name: Sequence[DataVolume],
    volume: Volume,
    requirements: Requirements,
    region: str | None,
    region_of: Callable[[str], str | None],
) -> DataVolume:
    """Return which of the volumes of one name (`same_name`, at least one) is in the requested zone and region.

    `region` None: any. Raises InvalidRequest if several are there, if none is, or for a size that is not its size.
    """
    matching = [
        chosen
        for chosen in same_name
        if requirements.zone in (None, chosen.zone) and region in (None, region_of(chosen.zone))
    ]
    if len(matching) > 1:
        raise ambiguous_name(f"Volumes called {volume.name!r}", sorted(chosen.zone for chosen in matching), "--zone")
    chosen = matching[0] if matching else same_name[0]
    check_location(
        "volume",
        chosen.name,
        chosen.zone,
        requirements.zone or (chosen.zone if matching else region),
        "--zone",
    )
    if volume.size_gb not in (None, chosen.size_gb):
        raise InvalidRequest(
            f"The volume {chosen.name} has {chosen.size_gb} GB, not {volume.size_gb}; its size stays.",
            field="--volume",
            value=f"{chosen.name}:{volume.size_gb}",
            next=f"Leave the size out: --volume {chosen.name}",
        )
    return chosen


def existing_volume(
    volume: Volume,
    existing: Sequence[DataVolume],
    requirements: Requirements,
    region: str | None,
    *,
    region_of: Callable[[str], str | None],
    sizes_gb: tuple[int, int],
    limit_sentence: str,
    unanswered: Sequence[Unanswered] = (),
) -> DataVolume | None:
    """Return the volume of this name, wherever it lies; None where it is to be made.

    `existing` are the volumes of all regions, even where the request names one: nobody would find a second volume of
    the same name. `region_of` returns a zone's region, `sizes_gb` are the smallest and the largest size of a new one,
    and `limit_sentence` says so, without a full stop. Raises as `requested_volume` does, InvalidRequest for no volume
    and no size to make one with, or a size that cannot be, ProviderUnavailable where it may be in a region that was
    `unanswered`.
    """
    same_name = [data_volume for data_volume in existing if data_volume.name == volume.name]
    if same_name:
        return requested_volume(same_name, volume, requirements, region, region_of)
    if unanswered or volume.size_gb is None:
        known_names = {data_volume.name for data_volume in existing}
        raise not_found_error(
            "volume", "--volume", volume.name, known_names, unanswered, "Give it a size to make it: --volume NAME:GB"
        )
    _check_size(volume, *sizes_gb, limit_sentence)
    return None


def free_volume(
    volume: Volume | None, zone: str, read_volumes: Callable[[], Sequence[DataVolume]]
) -> DataVolume | None:
    """Return the volume of this name in an offer's zone; None where it does not exist yet, or none is requested.

    Where one is requested, `read_volumes` returns the account's. Raises InvalidRequest where another machine uses it,
    so that this one would run without it.
    """
    if volume is None:
        return None
    found = next((one for one in read_volumes() if (one.name, one.zone) == (volume.name, zone)), None)
    if found is not None and found.used_by is not None:
        raise volume_in_use_error(volume, found.used_by)
    return found


def _check_size(volume: Volume, min_gb: int, max_gb: int, limit_sentence: str) -> None:
    """Raise InvalidRequest for a size that the cloud would refuse only when the machine runs already."""
    size_gb = volume.size_gb or min_gb
    if not min_gb <= size_gb <= max_gb:
        raise InvalidRequest(
            f"A volume of {size_gb:,} GB cannot be: {limit_sentence}.",
            field="--volume",
            value=f"{volume.name}:{size_gb}",
            next=f"For example --volume {volume.name}:{min_gb if size_gb < min_gb else max_gb}",
        )


def ambiguous_name(what: str, places: Sequence[str], option: str) -> InvalidRequest:
    """Return the error for a name that exists in several places: `what` begins the sentence, `option` chooses one."""
    return InvalidRequest(
        f"{what} are in {' and '.join(places)}.",
        field=option,
        value=None,
        next=f"Name one: {option} {' | '.join(places)}",
    )


def attached_resources(
    setup: Setup,
    configuration: MachineConfiguration,
    disk_gb: int,
    disk_kind: str,
    volume: DataVolume | None,
    volume_kind: Callable[[int], str],
) -> Iterator[AttachedResource]:
    """Yield what is billed with a machine: its system disk, its public address, its data volume.

    `disk_kind` is a kind of storage in the catalogue's price list, and `volume_kind` returns that of a volume by its
    size in GB. The disk and the volume are billed while the machine is stopped, too; the address is not.
    """
    yield AttachedResource(f"system disk of {disk_gb} GB", disk_kind, disk_gb, while_stopped=True)
    address = address_kind(configuration.provider, configuration.market)
    if setup.network.public_ip and address is not None:
        yield AttachedResource("public IPv4 address", address, 1, while_stopped=False)
    requested = setup.volume
    size_gb = volume.size_gb if volume else requested.size_gb if requested else None
    if requested and size_gb:
        storage_kind = volume_kind(size_gb)
        yield AttachedResource(
            f"volume {requested.name} of {size_gb} GB", storage_kind, size_gb, while_stopped=True, named=True
        )


def pick_in_zone(
    zone: str, volumes: Sequence[Raw], zone_of: Callable[[Raw], str], id_key: str, volume: Volume
) -> Raw | None:
    """Return which of the disks with a volume's name lies in a machine's `zone`; None where `volumes` is empty.

    `id_key` is the key of a disk's id in the cloud's answer. Raises InvalidRequest where all lie elsewhere.
    """
    in_zone = [disk for disk in volumes if zone_of(disk) == zone]
    if volumes and not in_zone:
        other_zone = zone_of(volumes[0])
        message = f"The volume {volume.name} is in {other_zone}, and the machine is in {zone}."
        raise InvalidRequest(message, field="--volume", value=volume.name, next=f"Launch with --zone {other_zone}.")
    return min(in_zone, key=lambda disk: str(disk[id_key]), default=None)


def size_to_make(volume: Volume, zone: str) -> int:
    """Return the size in GB of a volume that is to be made in a zone; raise InvalidRequest where none was given."""
    if volume.size_gb is None:
        message = f"There is no volume {volume.name} in {zone}; to create it, give its size."
        remedy = f"Give its size in GB: --volume {volume.name}:100"
        raise InvalidRequest(message, field="--volume", value=volume.name, next=remedy)
    return volume.size_gb


def volume_in_use_error(volume: Volume, machine: str) -> InvalidRequest:
    """Return the error for a volume that another machine (our id of it) uses."""
    message = f"The volume {volume.name} is used by the machine {machine}."
    remedy = "End that machine first (cloudgpu ls --refresh names it), or use another volume."
    return InvalidRequest(message, field="--volume", value=volume.name, next=remedy)


def check_location(what: str, name: str, location: str, requested: str | None, option: str) -> str:
    """Return `location` of the resource (`what`: "volume", say); raise InvalidRequest where another was requested."""
    if requested in (None, location):
        return location
    raise InvalidRequest(
        f"The {what} {name} is in {location}, not in {requested}.",
        field=option,
        value=requested,
        next=f"Launch there: {option} {location}",
    )


def not_found_error(
    what: str, field: str, name: str, known: Collection[str], unanswered: Sequence[Unanswered], remedy: str
) -> InvalidRequest | ProviderUnavailable:
    """Return the error for something (`what`, "volume") that was not found among the names `known`.

    It names the closest name, or the region that was `unanswered`, which may have it.
    """
    if unanswered:
        return ProviderUnavailable(
            f"No {what} {name!r} was found, and {unanswered[0].scope} did not answer: {unanswered[0].why}",
            field="--region",
            value=unanswered[0].scope,
            next="Run it again.",
        )
    return unknown_word(f"There is no {what} {name!r}", name, known, field=field, use="Use {}.", next=remedy)
