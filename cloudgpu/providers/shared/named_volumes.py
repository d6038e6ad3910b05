"""Data volumes that tie a launch to a zone, for every cloud: which one a request names, and why it cannot be used."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cloudgpu.core.model.identity import Unanswered
from cloudgpu.core.model.launch import Setup, Volume
from cloudgpu.core.model.offers import Requirements
from cloudgpu.core.values.naming import unknown_word
from cloudgpu.errors import InvalidRequest, ProviderUnavailable
from cloudgpu.providers.abilities import AttachedResource

Raw = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Data:
    """A data volume that exists: the cloud's own id, where it lies, how large it is, and who uses it, as an id."""

    name: str
    id: str
    zone: str
    size_gb: int
    holder: str | None = None


def requested_volume(
    found: Sequence[Data],
    volume: Volume,
    requirements: Requirements,
    region: str | None,
    region_of: Callable[[str], str | None],
) -> Data:
    """Return the one of these volumes of one name (at least one) that is in the requested zone and region.

    `region` None: any. Raises InvalidRequest if several are there, if none is, or for a size that is not its size.
    """
    here = [one for one in found if requirements.zone in (None, one.zone) and region in (None, region_of(one.zone))]
    if len(here) > 1:
        raise ambiguous_name(f"Volumes called {volume.name!r}", sorted(one.zone for one in here), "--zone")
    one = here[0] if here else found[0]
    check_location("volume", one.name, one.zone, requirements.zone or (one.zone if here else region), "--zone")
    if volume.size_gb not in (None, one.size_gb):
        raise InvalidRequest(
            f"The volume {one.name} has {one.size_gb} GB, not {volume.size_gb}; its size stays.",
            field="--volume",
            value=f"{one.name}:{volume.size_gb}",
            next=f"Leave the size out: --volume {one.name}",
        )
    return one


def volume_named(
    volume: Volume,
    there: Sequence[Data],
    requirements: Requirements,
    region: str | None,
    *,
    region_of: Callable[[str], str | None],
    check_size: Callable[[Volume], None],
    silent: Sequence[Unanswered] = (),
) -> Data | None:
    """Return the volume of this name, wherever it lies; None where it is to be made.

    `there` are those of all places, also where one is named: nobody would find a second one of the same name. Raises as
    `requested_volume` and `check_size` do, and where there is none and no size to make it with, or a part was `silent`.
    """
    found = [one for one in there if one.name == volume.name]
    if found:
        return requested_volume(found, volume, requirements, region, region_of)
    if silent or volume.size_gb is None:
        known = {one.name for one in there}
        raise not_found_error(
            "volume", "--volume", volume.name, known, silent, "Give it a size to make it: --volume NAME:GB"
        )
    check_size(volume)
    return None


def check_volume_size(volume: Volume, least: int, most: int, says: str) -> None:
    """Raise InvalidRequest for a size in GB that the cloud would refuse only when the machine runs already."""
    size = volume.size_gb or least
    if not least <= size <= most:
        raise InvalidRequest(
            f"A volume of {size:,} GB cannot be: {says}.",
            field="--volume",
            value=f"{volume.name}:{size}",
            next=f"For example --volume {volume.name}:{least if size < least else most}",
        )


def ambiguous_name(what: str, places: Sequence[str], option: str) -> InvalidRequest:
    """Return the error for a name that several places have: `what` begins the sentence, `option` names one."""
    return InvalidRequest(
        f"{what} are in {' and '.join(places)}.",
        field=option,
        value=None,
        next=f"Name one: {option} {' | '.join(places)}",
    )


def attached(
    setup: Setup, disk_gb: int, disk_kind: str, address: str, volume: Data | None, volume_kind: Callable[[int], str]
) -> Iterator[AttachedResource]:
    """Yield what is billed with a machine: its system disk, its public address, its data volume.

    `disk_kind` and `address` are names of the catalogue's storage prices, and so is `volume_kind` of a size in GB. The
    disk and the volume are billed while the machine is stopped, too; the address is not.
    """
    yield AttachedResource(f"system disk of {disk_gb} GB", disk_kind, disk_gb, while_stopped=True)
    if setup.network.public_ip:
        yield AttachedResource("public IPv4 address", address, 1, while_stopped=False)
    wanted = setup.volume
    size = volume.size_gb if volume else wanted.size_gb if wanted else None
    if wanted and size:
        kind = volume_kind(size)
        yield AttachedResource(f"volume {wanted.name} of {size} GB", kind, size, while_stopped=True, named=True)


def pick_in_zone(
    zone: str, volumes: Sequence[Raw], zone_of: Callable[[Raw], str], id_key: str, volume: Volume
) -> Raw | None:
    """Return which of the disks with a volume's name lies in a machine's zone; None where there is none at all.

    `id_key` is the key of the cloud's own name of a disk. Raises InvalidRequest where all lie elsewhere.
    """
    here = [one for one in volumes if zone_of(one) == zone]
    if volumes and not here:
        other_zone = zone_of(volumes[0])
        message = f"The volume {volume.name} is in {other_zone}, and the machine is in {zone}."
        raise InvalidRequest(message, field="--volume", value=volume.name, next=f"Launch with --zone {other_zone}.")
    return min(here, key=lambda one: str(one[id_key]), default=None)


def size_to_make(volume: Volume, zone: str) -> int:
    """Return the size in GB of a volume that is to be made; raise InvalidRequest where nobody has said it."""
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
    """Return its location; raise InvalidRequest where another one was requested."""
    if requested in (None, location):
        return location
    raise InvalidRequest(
        f"The {what} {name} is in {location}, not in {requested}.",
        field=option,
        value=requested,
        next=f"Launch there: {option} {location}",
    )


def not_found_error(
    what: str, field: str, name: str, known: Collection[str], silent: Sequence[Unanswered], remedy: str
) -> InvalidRequest | ProviderUnavailable:
    """Return the error for something that was not found, with the near one; a silent part may have it."""
    if silent:
        return ProviderUnavailable(
            f"No {what} {name!r} was found, and {silent[0].scope} did not answer: {silent[0].why}",
            field="--region",
            value=silent[0].scope,
            next="Run it again.",
        )
    return unknown_word(f"There is no {what} {name!r}", name, known, field=field, use="Use {}.", next=remedy)
