"""Buckets on S3, by real boto3 against moto's server: what was removed, and what S3 refused to remove."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cloudgpu.core.model.buckets import bucket_address
from cloudgpu.errors import AuthFailed
from cloudgpu.providers.aws.storage import buckets
from cloudgpu.providers.base import ProviderSettings
from tests.clouds.aws.s3 import s3, server

__all__ = ["s3", "server"]


@pytest.fixture
def bucket(s3, tmp_path):
    """The bucket with three objects, as a job uses it."""
    for key in ("runs/a", "runs/b", "runs/c"):
        s3.put_object(Bucket="lab", Key=key, Body=b"x")
    settings = ProviderSettings("aws", {}, tmp_path, lambda: datetime.now(UTC))
    return buckets.open_bucket(bucket_address("s3://lab/runs"), settings)


def test_objects_are_removed_and_one_that_is_not_there_is_no_error(server, s3, bucket):
    bucket.remove(["runs/a", "runs/none"])
    assert [one.key for one in bucket.objects("runs/")] == ["runs/b", "runs/c"]


def test_an_object_that_s3_does_not_remove_is_an_error_although_the_call_was_answered(server, s3, bucket, monkeypatch):
    denial = {"Effect": "Deny", "Principal": "*", "Action": "s3:DeleteObject", "Resource": "arn:aws:s3:::lab/runs/a"}
    s3.put_bucket_policy(Bucket="lab", Policy=json.dumps({"Version": "2012-10-17", "Statement": [denial]}))
    monkeypatch.setattr(buckets, "MAX_PER_CALL", 2)
    with pytest.raises(AuthFailed, match="may not do s3:DeleteObject"):
        bucket.remove(["runs/a", "runs/b", "runs/c"])
    assert [one.key for one in bucket.objects("runs/")] == ["runs/a"]  # all others went, those of the next call too


def test_a_file_that_takes_no_more_is_no_fault_of_the_credentials(server, s3, bucket):
    with Path("/dev/full").open("wb", buffering=0) as full, pytest.raises(OSError, match="No space left"):
        bucket.copy("runs/a", full)
