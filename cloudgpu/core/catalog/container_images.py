"""Container images: how a reference is written, which GPUs an image is made for, how large it is. Pure.

The rows are NVIDIA's own images, by their dated tags. That 20.02 needs compute capability 6.0 is in its release notes,
and that CUDA 13 needs 7.5 is in CUDA's; where else a boundary lies, and all sizes, are beliefs until somebody has
pulled them: each row says so in `source`.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

# What Docker takes (distribution/reference): a registry with an optional port, a path, a tag, a digest.
_REFERENCE = re.compile(
    r"(?P<repository>(?:[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?(?::[0-9]{1,5})?/)?"
    r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*)"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)
_DATED = re.compile(r"([0-9]{2})\.([0-9]{2})\b")
_CUDA_MAJOR = re.compile(r"cuda([0-9]{2})")
_CUDA_13 = Fraction(15, 2)  # CUDA 13.0 release notes: Maxwell, Pascal and Volta are gone
MAX_LENGTH = 255
SYSTEM_GB = 20  # what the machine's own system takes of its disk
_DEFAULT_GB = (5.0, 12.0)  # of an image of which nothing is known
FASTEST_S, SLOWEST_S = 20, 60  # seconds to pull and unpack a compressed GB [belief]


class Reference(NamedTuple):
    """An image's name: `nvcr.io/nvidia/pytorch`, its tag and its digest, each empty for none."""

    repository: str
    tag: str
    digest: str


class Era(NamedTuple):
    """From which release on (year, month) which GPUs are supported: least and newest compute capability.

    `newest_tag` is the last of the era that cloudgpu names; `source` says who says so.
    """

    since: tuple[int, int]
    least: Fraction
    newest: Fraction | None
    newest_tag: str
    source: str


@dataclass(frozen=True, slots=True)
class Family:
    """What is known of all images of a repository: its eras, the oldest first, and GB compressed and unpacked."""

    repository: str
    eras: tuple[Era, ...]
    compressed_gb: float
    unpacked_gb: float


@dataclass(frozen=True, slots=True)
class Misfit:
    """Why a GPU cannot run an image: what the image needs, what the GPU has, and the newest tag that it can run."""

    needs: str
    has: str
    newest_tag: str


_NOTES = "release notes 20.02: 6.0 and higher; the rest is belief"
_BELIEF = "belief"
_TURING, _VOLTA, _PASCAL, _HOPPER = Fraction(15, 2), Fraction(7), Fraction(6), Fraction(9)
FAMILIES = (
    Family(
        "nvcr.io/nvidia/pytorch",
        (
            Era((18, 1), _PASCAL, _HOPPER, "24.12-py3", _NOTES),
            Era((25, 1), _TURING, None, "25.06-py3", _BELIEF),
        ),
        10,
        23,
    ),
    Family(
        "nvcr.io/nvidia/tensorflow",
        (
            Era((18, 1), _PASCAL, _HOPPER, "24.12-tf2-py3", _BELIEF),
            Era((25, 1), _TURING, None, "25.02-tf2-py3", _BELIEF),
        ),
        7,
        17,
    ),
    Family(
        "nvcr.io/nvidia/rapidsai/base",
        (
            Era((23, 2), _PASCAL, _HOPPER, "23.12-cuda12.0-py3.10", _BELIEF),
            Era((24, 2), _VOLTA, None, "25.06-cuda12.8-py3.12", _BELIEF),
        ),
        4,
        10,
    ),
)


def parse_reference(text: str) -> Reference | None:
    """Return an image's reference in its parts; None for a text that is none."""
    match = _REFERENCE.fullmatch(text) if len(text) <= MAX_LENGTH else None
    return None if match is None else Reference(match["repository"], match["tag"] or "", match["digest"] or "")


def family_of(image: str) -> Family | None:
    """Return what is known of an image's repository, None for nothing."""
    reference = parse_reference(image)
    return next((family for family in FAMILIES if reference and family.repository == reference.repository), None)


def misfit(image: str, capability: str) -> Misfit | None:
    """Return why a GPU of this compute capability (`7.0`) cannot run an image; None where nothing says so."""
    family, era = family_of(image), era_of(image)
    if family is None or era is None or not capability.replace(".", "", 1).isdigit():
        return None
    has, least = Fraction(capability), _least(image, era)
    if has < least:
        return Misfit(f"{float(least):.1f} or more", capability, _newest_tag(family, has))
    if era.newest is not None and has >= era.newest + 1:
        return Misfit(f"less than {float(era.newest + 1):.1f}", capability, _newest_tag(family, has))
    return None


def era_of(image: str) -> Era | None:
    """Return the era of an image by its dated tag; None for a tag without a date, or one older than all eras."""
    family, reference = family_of(image), parse_reference(image)
    dated = _DATED.match(reference.tag) if reference else None
    if family is None or dated is None:
        return None
    release = int(dated[1]), int(dated[2])
    return next((era for era in reversed(family.eras) if era.since <= release), None)


def _least(image: str, era: Era) -> Fraction:
    cuda = _CUDA_MAJOR.search(image)
    return max(era.least, _CUDA_13) if cuda and int(cuda[1]) >= 13 else era.least  # noqa: PLR2004  (CUDA 13)


def _newest_tag(family: Family, has: Fraction) -> str:
    """Return the newest tag that a GPU can run, empty for none."""
    fits = [era for era in family.eras if era.least <= has and (era.newest is None or has < era.newest + 1)]
    return fits[-1].newest_tag if fits else ""


def least_disk_gb(image: str) -> int:
    """Return the GB of system disk that a machine needs for an image, in tens: the packed layers lie there, too."""
    packed, unpacked = sizes_gb(image)
    return math.ceil((SYSTEM_GB + packed + unpacked) / 10) * 10


def sizes_gb(image: str) -> tuple[float, float]:
    """Return GB of an image, compressed and unpacked; the defaults for an image of which nothing is known."""
    family = family_of(image)
    return _DEFAULT_GB if family is None else (family.compressed_gb, family.unpacked_gb)


def pull_minutes(image: str) -> tuple[int, int]:
    """Return how many minutes a pull takes, at least and at most: FASTEST_S to SLOWEST_S for each compressed GB."""
    packed, _ = sizes_gb(image)
    return math.ceil(packed * FASTEST_S / 60), math.ceil(packed * SLOWEST_S / 60)
