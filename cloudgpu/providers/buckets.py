"""What a bucket can do (as Python protocols), and opening the one at an address. Only the SDK it needs is loaded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from importlib import import_module
from typing import TYPE_CHECKING, BinaryIO, Protocol, cast

from cloudgpu.errors import InvalidRequest

if TYPE_CHECKING:
    from cloudgpu.core.model.buckets import BucketAddress, BucketObject, PresignedPost
    from cloudgpu.providers.base import ProviderSettings

_MODULES_BY_SCHEME = {
    "s3": "cloudgpu.providers.aws.storage.buckets",
    "gs": "cloudgpu.providers.shared.fsspec_buckets",
    "az": "cloudgpu.providers.shared.fsspec_buckets",
    "abfs": "cloudgpu.providers.shared.fsspec_buckets",
}
WRITABLE_SCHEMES = ("s3",)  # schemes of the buckets that results can go to


class Bucket(Protocol):
    """A bucket that is read with the user's own credentials, which stay on this computer."""

    def region(self) -> str | None:
        """Return the bucket's region; None where its cloud does not say. Raises as `objects`."""

    def objects(self, prefix: str) -> Iterator[BucketObject]:
        """Yield the objects whose keys begin with the prefix, by key.

        Raises InvalidRequest for a bucket that is not there, AuthFailed, ProviderUnavailable.
        """

    def url_expires_at(self, seconds: int) -> datetime:
        """Return when a URL made now for so many seconds expires: the credentials may expire before."""

    def presigned_url(self, key: str, seconds: int) -> str:
        """Return a URL with which anyone may read one object for so many seconds. It is a secret."""


class ResultsBucket(Bucket, Protocol):
    """A bucket to which a machine may be allowed to write."""

    def presigned_post(self, prefix: str, seconds: int, max_bytes: int) -> PresignedPost:
        """Return a form that permits creating objects of at most so many bytes whose keys begin with the prefix."""

    def read(self, key: str) -> bytes | None:
        """Return the content of an object; None where there is none. Raises as `objects`."""

    def copy(self, key: str, file: BinaryIO) -> None:
        """Write the content of an object to a file. Raises as `objects`."""

    def remove(self, keys: Sequence[str]) -> None:
        """Remove objects; one that is not there is no error. Raises as `objects`."""


def open_bucket(address: BucketAddress, settings: ProviderSettings) -> Bucket:
    """Return a bucket that is read with the credentials of this account. Sends nothing.

    Raises MissingExtra where the SDK is not installed.
    """
    bucket: Bucket = import_module(_MODULES_BY_SCHEME[address.scheme]).open_bucket(address, settings)
    return bucket


def open_results_bucket(address: BucketAddress, settings: ProviderSettings) -> ResultsBucket:
    """Return a bucket that a machine may be allowed to write to. Raises as `open_bucket`, and for another scheme."""
    if address.scheme not in WRITABLE_SCHEMES:
        raise InvalidRequest(
            f"Results cannot go to {address.text}: only to S3 buckets and volumes.",
            field="--results-to",
            value=address.text,
            next="Name s3://BUCKET/PREFIX or volume:NAME, or leave --results-to out.",
        )
    return cast("ResultsBucket", open_bucket(address, settings))
