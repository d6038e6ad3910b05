"""Container images: how a reference is written, which GPUs an image supports, how large it is.

The image families are NVIDIA's own images, by their dated tags. That 20.02 needs compute capability 6.0 is in its
release notes, and that CUDA 13 needs 7.5 is in CUDA's. The other boundaries and all sizes are unverified, as nobody has
pulled the images: `source` of each says so.
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
_DATED_TAG = re.compile(r"([0-9]{2})\.([0-9]{2})\b")
_CUDA_MAJOR = re.compile(r"cuda([0-9]{2})")
_CUDA_13_MIN_CAPABILITY = Fraction(15, 2)  # CUDA 13.0 release notes: Maxwell, Pascal and Volta are gone
MAX_REFERENCE_LENGTH = 255
SYSTEM_GB = 20  # of the disk that the operating system takes
_DEFAULT_GB = (5.0, 12.0)  # compressed and unpacked, of an unknown image
FASTEST_S, SLOWEST_S = 20, 60  # seconds to pull and unpack a compressed GB (unverified)


class ImageReference(NamedTuple):
    """An image's name: `nvcr.io/nvidia/pytorch`, its tag and its digest, each empty for none."""

    repository: str
    tag: str
    digest: str


class ReleaseRange(NamedTuple):
    """The images from one release (year, month) on, with the lowest and highest compute capability that they support.

    `newest_tag` is the last of the range that cloudgpu names; `source` is where this is stated.
    """

    since: tuple[int, int]
    min_capability: Fraction
    max_capability: Fraction | None
    newest_tag: str
    source: str


@dataclass(frozen=True, slots=True)
class ImageFamily:
    """The images of a repository: its release ranges, the oldest first, and GB compressed and unpacked."""

    repository: str
    ranges: tuple[ReleaseRange, ...]
    compressed_gb: float
    unpacked_gb: float


@dataclass(frozen=True, slots=True)
class Misfit:
    """Why a GPU cannot run an image: the required and actual compute capability, and the newest tag that it can run."""

    required: str
    gpu_capability: str
    newest_tag: str


_RELEASE_NOTES = "release notes 20.02: 6.0 and higher; the rest is belief"
_BELIEF = "belief"  # the source of what is unverified
_TURING, _VOLTA, _PASCAL, _HOPPER = Fraction(15, 2), Fraction(7), Fraction(6), Fraction(9)
IMAGE_FAMILIES = (
    ImageFamily(
        "nvcr.io/nvidia/pytorch",
        (
            ReleaseRange((18, 1), _PASCAL, _HOPPER, "24.12-py3", _RELEASE_NOTES),
            ReleaseRange((25, 1), _TURING, None, "25.06-py3", _BELIEF),
        ),
        10,
        23,
    ),
    ImageFamily(
        "nvcr.io/nvidia/tensorflow",
        (
            ReleaseRange((18, 1), _PASCAL, _HOPPER, "24.12-tf2-py3", _BELIEF),
            ReleaseRange((25, 1), _TURING, None, "25.02-tf2-py3", _BELIEF),
        ),
        7,
        17,
    ),
    ImageFamily(
        "nvcr.io/nvidia/rapidsai/base",
        (
            ReleaseRange((23, 2), _PASCAL, _HOPPER, "23.12-cuda12.0-py3.10", _BELIEF),
            ReleaseRange((24, 2), _VOLTA, None, "25.06-cuda12.8-py3.12", _BELIEF),
        ),
        4,
        10,
    ),
)


def parse_reference(text: str) -> ImageReference | None:
    """Return the parts of an image reference; None for a text that is not one."""
    match = _REFERENCE.fullmatch(text) if len(text) <= MAX_REFERENCE_LENGTH else None
    return None if match is None else ImageReference(match["repository"], match["tag"] or "", match["digest"] or "")


def family_of(image: str) -> ImageFamily | None:
    """Return what is known about an image's repository, or None."""
    reference = parse_reference(image)
    return next((family for family in IMAGE_FAMILIES if reference and family.repository == reference.repository), None)


def misfit(image: str, capability: str) -> Misfit | None:
    """Return why a GPU of this compute capability (`7.0`) cannot run an image; None if it can, or nothing is known."""
    family, release_range = family_of(image), release_range_of(image)
    if family is None or release_range is None or not capability.replace(".", "", 1).isdigit():
        return None
    gpu_capability, required = Fraction(capability), _min_capability(image, release_range)
    if gpu_capability < required:
        return Misfit(f"{float(required):.1f} or more", capability, _newest_tag_for(family, gpu_capability))
    if release_range.max_capability is not None and gpu_capability >= release_range.max_capability + 1:
        return Misfit(
            f"less than {float(release_range.max_capability + 1):.1f}",
            capability,
            _newest_tag_for(family, gpu_capability),
        )
    return None


def release_range_of(image: str) -> ReleaseRange | None:
    """Return the release range of an image by its dated tag; None for a tag without a date or older than all ranges."""
    family, reference = family_of(image), parse_reference(image)
    dated = _DATED_TAG.match(reference.tag) if reference else None
    if family is None or dated is None:
        return None
    release = int(dated[1]), int(dated[2])
    return next((release_range for release_range in reversed(family.ranges) if release_range.since <= release), None)


def _min_capability(image: str, release_range: ReleaseRange) -> Fraction:
    cuda = _CUDA_MAJOR.search(image)
    has_cuda_13 = cuda is not None and int(cuda[1]) >= 13  # noqa: PLR2004  (CUDA 13)
    return max(release_range.min_capability, _CUDA_13_MIN_CAPABILITY) if has_cuda_13 else release_range.min_capability


def _newest_tag_for(family: ImageFamily, capability: Fraction) -> str:
    """Return the newest tag that a GPU of this compute capability can run, empty for none."""
    fitting = [
        release_range
        for release_range in family.ranges
        if release_range.min_capability <= capability
        and (release_range.max_capability is None or capability < release_range.max_capability + 1)
    ]
    return fitting[-1].newest_tag if fitting else ""


def min_disk_gb(image: str) -> int:
    """Return the GB of system disk that an image needs, in tens: it also holds the compressed layers."""
    compressed, unpacked = sizes_gb(image)
    return math.ceil((SYSTEM_GB + compressed + unpacked) / 10) * 10


def sizes_gb(image: str) -> tuple[float, float]:
    """Return GB of an image, compressed and unpacked; the defaults for an unknown image."""
    family = family_of(image)
    return _DEFAULT_GB if family is None else (family.compressed_gb, family.unpacked_gb)


def pull_minutes(image: str) -> tuple[int, int]:
    """Return how many minutes a pull takes, at least and at most: FASTEST_S to SLOWEST_S per compressed GB."""
    compressed, _ = sizes_gb(image)
    return math.ceil(compressed * FASTEST_S / 60), math.ceil(compressed * SLOWEST_S / 60)
