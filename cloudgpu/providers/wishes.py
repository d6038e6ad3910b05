"""What of a wish is judged the same on every cloud: how large the system disk is, and in which region it lies. Pure."""

from __future__ import annotations

from collections.abc import Callable

from cloudgpu.core.model.offers import Want
from cloudgpu.errors import InvalidRequest


def disk_gb(wished: int | None, image: str, least: int, *, usual: int, most: int, whose: str) -> int:
    """Return how large the system disk is to be, in GB: what is wished for, else the usual.

    `least` is what `image` needs, `most` what `whose` disks have. Raises InvalidRequest for what is not between them.
    """
    if wished is None:
        return max(usual, least)
    if least <= wished <= most:
        return wished
    says = f"{image} needs {least}" if wished < least else f"{whose} has {most:,}"
    bound = "at least" if wished < least else "at most"
    raise InvalidRequest(
        f"A system disk of {wished:,} GB cannot be: {says} GB {bound}.",
        field="--disk",
        value=str(wished),
        next=f"Ask for {max(1, least)} to {most} GB.",
    )


def region(want: Want, region_of: Callable[[str], str | None], no_zone: str, way: str) -> str | None:
    """Return the region that a wish names, by itself or by its zone; None for no wish. Asks nobody.

    Raises InvalidRequest for a zone that is none (`no_zone` says of whom, `way` how one is written), or that lies in
    another region than the one that is named.
    """
    if want.zone is None:
        return want.region
    found = region_of(want.zone)
    if found is None:
        raise InvalidRequest(f"{want.zone!r} is {no_zone}.", field="--zone", value=want.zone, next=way)
    if want.region not in (None, found):
        message = f"The zone {want.zone} lies in {found}, not in {want.region}."
        raise InvalidRequest(message, field="--zone", value=want.zone, next=f"Leave --region out, or name {found}.")
    return found
