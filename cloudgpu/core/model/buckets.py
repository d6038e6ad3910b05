"""Buckets as values: addresses, objects, and presigned uploads for a machine without credentials of its own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

CLOUD_OF = {"s3": "aws", "gs": "gcp", "az": "azure", "abfs": "azure"}  # by URL scheme
CLOUD_NAMES = {"aws": "AWS", "gcp": "Google Cloud", "azure": "Azure"}
_ADDRESS = re.compile(
    r"(?P<scheme>[a-z0-9]+)://(?P<bucket>[A-Za-z0-9][A-Za-z0-9._@-]{1,253})(?:/(?P<prefix>.*))?", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class BucketAddress:
    """`s3://BUCKET/PREFIX`. The prefix has no slash at either end, and is empty for the whole bucket."""

    scheme: str
    bucket: str
    prefix: str

    @property
    def cloud(self) -> str:
        """The provider of the bucket: `aws`, `gcp` or `azure`."""
        return CLOUD_OF[self.scheme]

    @property
    def text(self) -> str:
        """The address as a URL."""
        return f"{self.scheme}://{self.bucket}" + (f"/{self.prefix}" if self.prefix else "")

    def joined(self, *names: str) -> BucketAddress:
        """Return the address of these path segments under this prefix."""
        return BucketAddress(self.scheme, self.bucket, "/".join(filter(None, (self.prefix, *names))))


@dataclass(frozen=True, slots=True)
class BucketObject:
    """One object: its key, its size in bytes, and its ETag, which changes with its content."""

    key: str
    size: int
    etag: str


@dataclass(frozen=True, slots=True)
class PresignedPost:
    """A signed form: whoever has it may upload objects whose keys begin with `prefix`, until `until`. A secret."""

    url: str = field(repr=False)
    fields: Mapping[str, str] = field(repr=False)
    prefix: str
    until: datetime


def bucket_address(text: str) -> BucketAddress | None:
    """Return the bucket address that a text is, or None."""
    match = _ADDRESS.fullmatch(text)
    if match is None or match["scheme"] not in CLOUD_OF or not text.isprintable():
        return None
    prefix = (match["prefix"] or "").strip("/")
    if any(part in ("", ".", "..") for part in prefix.split("/")) and prefix:
        return None
    return BucketAddress(match["scheme"], match["bucket"], prefix)
