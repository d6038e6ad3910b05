"""Buckets on S3, by real boto3 against moto's server: what was removed, and what S3 refused to remove."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime

import boto3
import pytest

from cloudgpu.core.model.buckets import bucket_address
from cloudgpu.errors import AuthFailed
from cloudgpu.providers.aws.storage import buckets
from cloudgpu.providers.base import ProviderSettings
from tests.clouds.aws.s3 import REGION, BucketServer


@pytest.fixture(scope="module")
def server():
    made = BucketServer()
    yield made
    made.stop()


@pytest.fixture
def s3(server, monkeypatch):
    """A bucket `lab` with three objects, and the environment of a user who may use it."""
    server.forget()
    for name in [one for one in os.environ if one.startswith("AWS_")]:
        monkeypatch.delenv(name)
    absent = {"AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull}
    for name, value in {**server.environ, **absent, "AWS_EC2_METADATA_DISABLED": "true"}.items():
        monkeypatch.setenv(name, value)
    client = boto3.client("s3", region_name=REGION)
    client.create_bucket(Bucket="lab", CreateBucketConfiguration={"LocationConstraint": REGION})
    for key in ("runs/a", "runs/b", "runs/c"):
        client.put_object(Bucket="lab", Key=key, Body=b"x")
    return client


@pytest.fixture
def bucket(s3, tmp_path):
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
