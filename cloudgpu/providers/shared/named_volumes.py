"""Data volumes that tie a launch to a place, for every cloud: which one is meant, and what stands against it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from cloudgpu.core.model.identity import Unanswered
from cloudgpu.core.model.launch import Volume
from cloudgpu.core.model.offers import Requirements
from cloudgpu.core.values.naming import unknown_word
from cloudgpu.errors import InvalidRequest, ProviderUnavailable


@dataclass(frozen=True, slots=True)
class Data:
    """A data volume that exists: the cloud's own id, where it lies, how large it is, and who uses it, as an id."""

    name: str
    id: str
    zone: str
    size_gb: int
    holder: str | None = None


def meant(
    found: Sequence[Data],
    wanted: Volume,
    requirements: Requirements,
    region: str | None,
    region_of: Callable[[str], str | None],
) -> Data:
    """Return the one of the volumes of this name (one at least) that lies where it is wished for.

    `region` is the wished one, None for no wish. Raises InvalidRequest where several do, where none does, or for
    another size than it has.
    """
    here = [one for one in found if requirements.zone in (None, one.zone) and region in (None, region_of(one.zone))]
    if len(here) > 1:
        zones = sorted(one.zone for one in here)
        raise InvalidRequest(
            f"Volumes called {wanted.name!r} lie in {' and '.join(zones)}.",
            field="--zone",
            value=None,
            next=f"Say which: --zone {' | '.join(zones)}",
        )
    one = here[0] if here else found[0]
    agreed("volume", one.name, one.zone, requirements.zone or (one.zone if here else region), "--zone")
    if wanted.size_gb not in (None, one.size_gb):
        raise InvalidRequest(
            f"The volume {one.name} has {one.size_gb} GB, not {wanted.size_gb}; its size stays.",
            field="--volume",
            value=f"{one.name}:{wanted.size_gb}",
            next=f"Leave the size out: --volume {one.name}",
        )
    return one


def used(volume: Volume, machine: str) -> InvalidRequest:
    """Return the error for a volume that another machine (our id of it) uses."""
    message = f"The volume {volume.name} is used by the machine {machine}."
    way = "End that machine first (cloudgpu ls --refresh names it), or use another volume."
    return InvalidRequest(message, field="--volume", value=volume.name, next=way)


def agreed(what: str, name: str, lies: str, wished: str | None, option: str) -> str:
    """Return where it lies; raise InvalidRequest where something else is wished for."""
    if wished in (None, lies):
        return lies
    raise InvalidRequest(
        f"The {what} {name} lies in {lies}, not in {wished}.",
        field=option,
        value=wished,
        next=f"Launch there: {option} {lies}",
    )


def nowhere(
    what: str, field: str, name: str, known: Collection[str], silent: Sequence[Unanswered], way: str
) -> InvalidRequest | ProviderUnavailable:
    """Return the error for something that was not found, with the near one; a silent part may have it."""
    if silent:
        return ProviderUnavailable(
            f"No {what} {name!r} was found, and {silent[0].scope} did not answer: {silent[0].why}",
            field="--region",
            value=silent[0].scope,
            next="Run it again.",
        )
    return unknown_word(f"There is no {what} {name!r}", name, known, field=field, use="Use {}.", next=way)
