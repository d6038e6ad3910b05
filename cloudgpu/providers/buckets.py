"""Finds the SDK behind a bucket's address, and says what is asked of one. Only the one that is needed is loaded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from importlib import import_module
from typing import TYPE_CHECKING, BinaryIO, Protocol, cast

from cloudgpu.errors import InvalidRequest

if TYPE_CHECKING:
    from cloudgpu.core.model.buckets import BucketAddress, BucketObject, PresignedPost
    from cloudgpu.providers.base import ProviderSettings

_BY_SCHEME = {
    "s3": "cloudgpu.providers.aws.storage.buckets",
    "gs": "cloudgpu.providers.shared.fsspec_buckets",
    "az": "cloudgpu.providers.shared.fsspec_buckets",
    "abfs": "cloudgpu.providers.shared.fsspec_buckets",
}
MAY_WRITE = ("s3",)  # schemes of the buckets that results can go to


class Bucket(Protocol):
    """A bucket that is read with the user's own SDK and key, which stay on this computer."""

    def region(self) -> str | None:
        """Return the region that it is in; None where its cloud does not say. Raises as `objects`."""

    def objects(self, prefix: str) -> Iterator[BucketObject]:
        """Yield the objects whose keys begin with the prefix, by key.

        Raises InvalidRequest for a bucket that is not there, AuthFailed, ProviderUnavailable.
        """

    def url_expires_at(self, seconds: int) -> datetime:
        """Return until when an address is good that is made now for so many seconds: credentials may end before."""

    def presigned_url(self, key: str, seconds: int) -> str:
        """Return an address at which whoever has it may read one object, for so long. It is a secret."""


class ResultsBucket(Bucket, Protocol):
    """A bucket to which a machine may be allowed to write."""

    def presigned_post(self, prefix: str, seconds: int, max_bytes: int) -> PresignedPost:
        """Return what allows objects of at most so many bytes to be made whose keys begin with the prefix."""

    def read(self, key: str) -> bytes | None:
        """Return the content of an object; None where there is none. Raises as `objects`."""

    def copy(self, key: str, file: BinaryIO) -> None:
        """Write the content of an object to a file. Raises as `objects`."""

    def remove(self, keys: Sequence[str]) -> None:
        """Remove objects; one that is not there is no error. Raises as `objects`."""


def open_bucket(address: BucketAddress, settings: ProviderSettings) -> Bucket:
    """Return a bucket, asked with the credentials of this account. Asks nothing over the network.

    Raises MissingExtra where the SDK is not installed.
    """
    opened: Bucket = import_module(_BY_SCHEME[address.scheme]).open_bucket(address, settings)
    return opened


def open_results_bucket(address: BucketAddress, settings: ProviderSettings) -> ResultsBucket:
    """Return a bucket that a machine may be allowed to write to. Raises as `open_bucket`, and for another scheme."""
    if address.scheme not in MAY_WRITE:
        raise InvalidRequest(
            f"Results cannot go to {address.text}: only to S3 buckets and volumes.",
            field="--results-to",
            value=address.text,
            next="Name s3://BUCKET/PREFIX or volume:NAME, or leave --results-to out.",
        )
    return cast("ResultsBucket", open_bucket(address, settings))
