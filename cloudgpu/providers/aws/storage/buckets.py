"""Buckets on S3: listed and read with the user's credentials, and signed for machines that have none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, BinaryIO

from cloudgpu.core.model.buckets import BucketAddress, BucketObject, PresignedPost
from cloudgpu.errors import InvalidRequest
from cloudgpu.providers.aws.client import Aws, call_tolerating, pages
from cloudgpu.providers.base import ProviderSettings

CHUNK = 1 << 20  # bytes
MAX_PER_CALL = 1000  # objects that one call removes
_NO_OBJECT = ("NoSuchKey", "404", "NotFound")
_NO_BUCKET = ("NoSuchBucket", "404", "NotFound")


def open_bucket(address: BucketAddress, settings: ProviderSettings) -> S3Bucket:
    """Return a bucket, read with the credentials of this account. No network call."""
    return S3Bucket(Aws(settings), address.bucket)


class S3Bucket:
    """One bucket. Its region is read once: S3 refuses a URL that is signed for another one."""

    def __init__(self, aws: Aws, name: str) -> None:
        self._aws, self._name = aws, name
        self._region: str | None = None

    def region(self) -> str:
        """Return its region. One call, HeadBucket, the first time."""
        if self._region is None:
            home_region = self._aws.options.home_region
            found = self._call("ListBucket", home_region, "HeadBucket", missing_codes=_NO_BUCKET, Bucket=self._name)
            headers = found["ResponseMetadata"]["HTTPHeaders"]
            self._region = str(headers.get("x-amz-bucket-region") or home_region)
        return self._region

    def objects(self, prefix: str) -> Iterator[BucketObject]:
        """Yield the objects below a prefix, by key; raise InvalidRequest for a bucket that is not there."""
        with self._aws.calling("s3:ListBucket", self.region(), value=self._name):
            for page in pages(self._client(), "list_objects_v2", Bucket=self._name, Prefix=prefix):
                for one in page.get("Contents", ()):
                    yield BucketObject(str(one["Key"]), int(one["Size"]), str(one["ETag"]).strip('"'))

    def url_expires_at(self, seconds: int) -> datetime:
        """Return when a URL made now expires: with the credentials that sign it at the latest."""
        end = self._aws.clock() + timedelta(seconds=seconds)
        login_expires_at = self._aws.login_expires_at()
        return end if login_expires_at is None else min(end, login_expires_at)

    def presigned_url(self, key: str, seconds: int) -> str:
        """Return a URL with which an object can be read for so many seconds."""
        with self._aws.calling("s3:GetObject", self.region(), value=self._name):
            parameters = {"Bucket": self._name, "Key": key}
            return str(self._client().generate_presigned_url("get_object", parameters, ExpiresIn=seconds))

    def presigned_post(self, prefix: str, seconds: int, max_bytes: int) -> PresignedPost:
        """Return a form that makes objects below the prefix: POST Object, with a signed policy."""
        region, expires_at = self.region(), self.url_expires_at(seconds)
        with self._aws.calling("s3:PutObject", region, value=self._name):
            signed = self._client().generate_presigned_post(
                self._name,
                f"{prefix}${{filename}}",  # boto3 makes it a condition that keys begin with the prefix
                Conditions=[["content-length-range", 0, max_bytes]],
                ExpiresIn=seconds,
            )
        return PresignedPost(str(signed["url"]), dict(signed["fields"]), prefix, expires_at)

    def read(self, key: str) -> bytes | None:
        """Return an object's content; None where there is none."""
        found = self._call("GetObject", self.region(), "GetObject", none_codes=_NO_OBJECT, Bucket=self._name, Key=key)
        if found is None:
            return None
        with self._aws.calling("s3:GetObject", self.region(), value=self._name):
            return bytes(found["Body"].read())

    def copy(self, key: str, file: BinaryIO) -> None:
        """Write an object's content to a file."""
        found = self._call(
            "GetObject", self.region(), "GetObject", missing_codes=_NO_OBJECT, Bucket=self._name, Key=key
        )
        file.writelines(self._chunks(found["Body"]))

    def _chunks(self, body: Any) -> Iterator[bytes]:
        """Yield the content of an answer; what the reader does with it raises its own errors: a full disk, say."""
        with self._aws.calling("s3:GetObject", self.region(), value=self._name):
            yield from body.iter_chunks(CHUNK)

    def remove(self, keys: Sequence[str]) -> None:
        """Remove objects, a thousand with each call. Raises the error of the first that S3 did not remove."""
        from botocore.exceptions import ClientError

        errors = []
        for start in range(0, len(keys), MAX_PER_CALL):
            batch = {"Objects": [{"Key": key} for key in keys[start : start + MAX_PER_CALL]], "Quiet": True}
            answer = self._call("DeleteObject", self.region(), "DeleteObjects", Bucket=self._name, Delete=batch)
            errors += answer.get("Errors", ())  # of single objects, in an answer with status 200
        if errors:
            with self._aws.calling("s3:DeleteObject", self.region(), value=self._name):
                raise ClientError({"Error": errors[0]}, "DeleteObjects")

    def _client(self) -> Any:
        return self._aws.client("s3", self._region or self._aws.options.home_region)

    def _call(
        self,
        permission: str,
        region: str,
        action: str,
        *,
        none_codes: Sequence[str] = (),
        missing_codes: Sequence[str] = (),
        **parameters: Any,
    ) -> Any:
        """Return what an action of S3 answers; None for an error code in `none_codes`.

        Raises InvalidRequest for one in `missing_codes`.
        """
        tolerated, client = (*none_codes, *missing_codes), self._client()
        answer = call_tolerating(
            self._aws, client, action, region, f"s3:{permission}", self._name, tolerated, **parameters
        )
        if not isinstance(answer, str):
            return answer
        if answer in none_codes:
            return None
        lacks = f", or lacks {parameters['Key']}" if "Key" in parameters else ""
        raise InvalidRequest(
            f"The bucket s3://{self._name} is not there{lacks}.",
            field="bucket",
            value=self._name,
            next="Correct the address. To see your buckets: aws s3 ls",
        )
