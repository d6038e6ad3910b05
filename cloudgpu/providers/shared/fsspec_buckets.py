"""Buckets of Google Cloud and Azure that are read through fsspec's implementations, where they are installed.

Unverified: it never ran against gcsfs or adlfs. What is called is fsspec's own interface: `find` with `detail=True`,
and `sign`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol

from cloudgpu.core.model.buckets import BucketAddress, BucketObject
from cloudgpu.errors import AuthFailed, InvalidRequest, MissingExtra, ProviderUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from cloudgpu.providers.base import ProviderSettings

PACKAGES = {"gs": "gcsfs", "az": "adlfs", "abfs": "adlfs"}  # that implements a URL scheme, by scheme
_WRONG_PATH = (FileNotFoundError, IsADirectoryError, NotADirectoryError)  # of a file of credentials, say
_VERSION_KEYS = (
    "etag",
    "ETag",
    "md5Hash",
    "content_md5",
    "generation",
)  # what changes with an object, as each calls it


class FileSystem(Protocol):
    """The methods of fsspec's `AbstractFileSystem` that are called here."""

    def find(self, path: str, *, detail: bool) -> Mapping[str, Mapping[str, Any]]:
        """Return the files below a path, each with its facts: `type`, `size`, and keys of _VERSION_KEYS."""

    def sign(self, path: str, expiration: int) -> str:
        """Return a URL at which a file can be read for so many seconds."""


def open_bucket(address: BucketAddress, settings: ProviderSettings) -> FsspecBucket:
    """Return a bucket.

    Raises MissingExtra where fsspec has no implementation for its scheme, InvalidRequest or AuthFailed where that
    cannot be used as it is set up, ProviderUnavailable where it reached nobody.
    """
    package = PACKAGES[address.scheme]
    try:
        import fsspec

        implementation = fsspec.get_filesystem_class(address.scheme)
    except (ImportError, ValueError) as error:  # its own word for a scheme that nothing implements
        message = f"Data at {address.scheme}:// needs the package {package}, which is not installed."
        remedy = f"Run: pip install {package}"
        raise MissingExtra(message, field="--data", value=address.text, next=remedy) from error
    try:
        file_system = implementation()
    except Exception as error:  # its text may hold an address, so it is not repeated
        if isinstance(error, OSError) and not isinstance(error, _WRONG_PATH):  # a login that reached nobody, say
            raise _read_error(address.text, error) from error
        message = f"{package} cannot be used as it is set up: {type(error).__name__}."
        remedy = f"Give it its settings and its login, as the documentation of {package} says."
        raise InvalidRequest(message, field="--data", value=address.text, next=remedy) from error
    return FsspecBucket(file_system, address, settings.clock)


def _read_error(address_text: str, error: Exception) -> AuthFailed | ProviderUnavailable:
    """Return our error for what an implementation raised. Its text may hold an address, so it is not repeated."""
    message = f"{address_text} could not be read: {type(error).__name__}."
    if isinstance(error, PermissionError):
        remedy = "Sign in with that cloud's command-line tool, and grant yourself access to the bucket."
        return AuthFailed(message, field="--data", value=address_text, next=remedy)
    return ProviderUnavailable(message, field="--data", value=address_text, next="Try again.")


class FsspecBucket:
    """One bucket, or container, behind fsspec."""

    def __init__(self, files: FileSystem, address: BucketAddress, clock: Callable[[], datetime]) -> None:
        self._files, self._bucket, self._address_text, self._clock = files, address.bucket, address.text, clock

    def region(self) -> None:
        """Return None: fsspec does not report a region."""
        return

    def objects(self, prefix: str) -> Iterator[BucketObject]:
        """Yield the objects below a prefix, sorted by path. Raises AuthFailed, ProviderUnavailable."""
        try:
            files = self._files.find(f"{self._bucket}/{prefix}".rstrip("/"), detail=True)
        except FileNotFoundError:
            return
        except Exception as error:
            raise _read_error(self._address_text, error) from error
        for path, facts in sorted(files.items()):
            key = path.lstrip("/").removeprefix(f"{self._bucket}/")
            version = next((str(facts[name]) for name in _VERSION_KEYS if facts.get(name)), "")
            if facts.get("type", "file") == "file":
                yield BucketObject(key, int(facts["size"]), version)

    def url_expires_at(self, seconds: int) -> datetime:
        """Return until when (aware UTC) a URL that is signed now for so many seconds can be used."""
        return self._clock() + timedelta(seconds=seconds)

    def presigned_url(self, key: str, seconds: int) -> str:
        """Return a URL at which an object can be read for so many seconds."""
        try:
            return self._files.sign(f"{self._bucket}/{key}", expiration=seconds)
        except NotImplementedError as error:
            raise InvalidRequest(
                f"What is installed for {self._address_text} cannot sign addresses, and a machine has no key.",
                field="--data",
                value=self._address_text,
                next="Copy the data in --setup, with credentials of its own.",
            ) from error
        except Exception as error:
            raise _read_error(self._address_text, error) from error
