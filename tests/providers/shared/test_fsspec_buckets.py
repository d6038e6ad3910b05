"""Buckets behind fsspec: what is said where nothing is installed, and fsspec's own file system in memory."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from cloudgpu.core.model.buckets import bucket_address
from cloudgpu.errors import AuthFailed, InvalidRequest, MissingExtra, ProviderUnavailable
from cloudgpu.providers.base import ProviderSettings
from cloudgpu.providers.buckets import open_bucket, open_results_bucket
from cloudgpu.providers.shared.fsspec_buckets import FsspecBucket

SETTINGS = ProviderSettings("gcp", {}, Path("/nowhere"), lambda: datetime.now(UTC))


@pytest.mark.parametrize(("scheme", "package"), [("gs", "gcsfs"), ("az", "adlfs"), ("abfs", "adlfs")])
def test_a_bucket_whose_package_is_not_installed_names_it(scheme, package):
    assert find_spec(package) is None
    with pytest.raises(MissingExtra) as refused:
        open_bucket(bucket_address(f"{scheme}://lab/set"), SETTINGS)
    assert refused.value.next == f"Run: pip install {package}"
    assert refused.value.field == "--data"


@pytest.mark.parametrize(
    ("raised", "error"),
    [
        (ValueError, InvalidRequest),
        (KeyError, InvalidRequest),
        (FileNotFoundError, InvalidRequest),
        (PermissionError, AuthFailed),
        (ConnectionError, ProviderUnavailable),
        (TimeoutError, ProviderUnavailable),
    ],
)
def test_a_package_that_is_installed_and_lacks_its_settings_is_not_said_to_be_missing(monkeypatch, raised, error):
    class Unset(MemoryFileSystem):
        cachable = False

        def __init__(self, **_options):
            raise raised("Must provide account_name for https://secret.invalid")  # as adlfs does without one

    monkeypatch.setitem(sys.modules["fsspec.registry"]._registry, "az", Unset)
    with pytest.raises(error) as refused:
        open_bucket(bucket_address("az://lab/set"), SETTINGS)
    assert not isinstance(refused.value, MissingExtra)
    assert raised.__name__ in refused.value.message
    assert "secret" not in refused.value.message
    assert "pip install" not in refused.value.next


def test_results_go_to_no_bucket_that_cannot_be_written_to():
    with pytest.raises(InvalidRequest, match="only to S3 buckets and volumes"):
        open_results_bucket(bucket_address("gs://lab/runs"), SETTINGS)


def test_objects_are_listed_by_key_and_what_cannot_sign_is_refused():
    memory = MemoryFileSystem()
    for name, text in (("lab/set/b", b"22"), ("lab/set/a/c", b"1"), ("lab/other", b"")):
        memory.pipe(name, text)
    bucket = FsspecBucket(memory, bucket_address("gs://lab/set"), SETTINGS.clock)
    assert [(one.key, one.size) for one in bucket.objects("set")] == [("set/a/c", 1), ("set/b", 2)]
    assert list(bucket.objects("nothing")) == []
    with pytest.raises(InvalidRequest, match="cannot sign addresses"):
        bucket.presigned_url("set/b", 60)
