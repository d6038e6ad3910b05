"""Data of a job that is in buckets: listed here with the user's SDK, fetched by the machine with presigned URLs."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING

from cloudgpu.core.jobs.transfers import Download, PlacedData, Transfers
from cloudgpu.core.model.buckets import CLOUD_NAMES, BucketAddress, BucketObject, bucket_address
from cloudgpu.core.model.machine import is_on_prem
from cloudgpu.core.values.money import Money
from cloudgpu.errors import CloudgpuError, InvalidRequest, LedgerUnavailable, ProviderUnavailable
from cloudgpu.providers.attached_costs import egress_rate
from cloudgpu.providers.base import ProviderSettings
from cloudgpu.providers.buckets import Bucket, open_bucket

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from cloudgpu.control.session.session import Session
    from cloudgpu.core.events.job_events import DataRecord
    from cloudgpu.core.jobs.job import Job

PRESIGNED_URL_TTL_S = 12 * 3600  # how long a machine may fetch with the URLs of one start
MAX_OBJECTS = 50_000  # each has a URL: more would be too much for one request
GB, CENT = 10**9, 10**7  # in bytes; in nano-dollars

ListedObjects = list[tuple[str, BucketObject]]  # the path below the destination, empty for the destination itself


@dataclass(frozen=True, slots=True)
class BucketData:
    """Data in a bucket, as a plan shows it.

    `objects` and `bytes` are how many there are, `region` is that of the bucket. `traffic` is a sentence on what their
    transfer to the machine costs; empty: nothing is known of costs.
    """

    source: str
    target: str
    objects: int
    bytes: int
    region: str | None
    traffic: str


def bucket_settings_of(
    session: Session, address: BucketAddress, launch_options: Mapping[str, str | bool]
) -> ProviderSettings:
    """Return the settings of the account whose credentials read a bucket.

    That is the launch's account where it is of the bucket's cloud, else that cloud's first; without a configured
    account of that cloud, one with its SDK's usual credentials.
    """
    session.account(address.cloud)  # makes a default account where none of that cloud is configured
    accounts = [account for account in session.settings.accounts.values() if account.provider == address.cloud]
    account = next((account for account in accounts if account.name == launch_options.get("account")), accounts[0])
    home = session.home.provider_dir(account.provider, account.name)
    return ProviderSettings(account.name, dict(account.options), home, session.clock, session.pause)


def bucket_data(
    session: Session, data: Iterable[DataRecord], launch_options: Mapping[str, str | bool], location: tuple[str, str]
) -> tuple[BucketData, ...]:
    """Return what a job will fetch from buckets to a machine at `location`: its provider and region.

    Raises InvalidRequest for a bucket or prefix with nothing in it, MissingExtra for an SDK that is not installed,
    AuthFailed, ProviderUnavailable.
    """
    planned = []
    for record, address, bucket, objects in _list_sources(session, data, launch_options):
        total_bytes, region = sum(bucket_object.size for _, bucket_object in objects), bucket.region()
        traffic = traffic_text(address.cloud, region, total_bytes, location)
        planned.append(BucketData(record["source"], record["target"], len(objects), total_bytes, region, traffic))
    return tuple(planned)


def _list_sources(
    session: Session, data: Iterable[DataRecord], launch_options: Mapping[str, str | bool]
) -> Iterator[tuple[DataRecord, BucketAddress, Bucket, ListedObjects]]:
    """Yield each source that is in a bucket, with its address, the open bucket and its objects."""
    for record in data:
        address = bucket_address(record["source"])
        if address is not None:
            bucket = open_bucket(address, bucket_settings_of(session, address, launch_options))
            yield record, address, bucket, list_objects(bucket, address)


def check_data_readable(session: Session, job: Job) -> None:
    """Raise ProviderUnavailable where a job's data in buckets cannot be read from here: elsewhere, or later, it may be.

    So no machine is launched that could not get its data, and no machine ends for another one.
    """
    try:
        list(_list_sources(session, job.spec["data"], job.spec["launch"]))
    except LedgerUnavailable:
        raise
    except CloudgpuError as error:
        message = f"The data of {job.name} cannot be read from here: {error.message}"
        raise ProviderUnavailable(message, field="--data", value=error.value, next=error.next) from error


def data_transfers(session: Session, job: Job) -> Transfers:
    """Return what an attempt fetches of its data, listed and signed now. Raises as `bucket_data`."""
    downloads, placed, expiries = list[Download](), list[PlacedData](), list[datetime]()
    for record, address, bucket, objects in _list_sources(session, job.spec["data"], job.spec["launch"]):
        expiries.append(bucket.url_expires_at(PRESIGNED_URL_TTL_S))
        downloads += [_download(bucket, address, bucket_object) for _, bucket_object in objects]
        contents = tuple((path, _content_name(address, bucket_object)) for path, bucket_object in objects)
        placed.append(PlacedData(record["target"], contents))
    return Transfers(tuple(downloads), tuple(placed), min(expiries, default=None))


def list_objects(bucket: Bucket, address: BucketAddress) -> ListedObjects:
    """Return the objects at an address, each with its path below it. Raises as `bucket_data`.

    They are those below `PREFIX/`; where there are none, the object PREFIX itself. Empty objects that stand for
    directories are left out.
    """
    directory_prefix = f"{address.prefix}/" if address.prefix else ""
    below_prefix, exact_match = ListedObjects(), ListedObjects()
    for bucket_object in bucket.objects(address.prefix):
        if bucket_object.key == address.prefix:
            exact_match = [("", bucket_object)]
        elif bucket_object.key.startswith(directory_prefix) and not (
            bucket_object.key.endswith("/") and bucket_object.size == 0
        ):
            below_prefix.append((bucket_object.key.removeprefix(directory_prefix), bucket_object))
        if len(below_prefix) > MAX_OBJECTS:
            message = f"{address.text} holds more than {MAX_OBJECTS:,} objects."
            raise _request_error(message, address, "Pack them into fewer, larger ones, or name a longer prefix.")
    if not below_prefix and not exact_match:
        raise _request_error(f"{address.text} holds nothing.", address, "Correct the bucket or the prefix.")
    _check_paths([path for path, _ in below_prefix], address)
    return below_prefix or exact_match


def _check_paths(paths: Sequence[str], address: BucketAddress) -> None:
    """Raise InvalidRequest for a key that cannot be a file's path, or that another one needs as a directory."""
    names = set(paths)
    for path in paths:
        parts = path.split("/")
        parents = {"/".join(parts[:count]) for count in range(1, len(parts))}
        if "\0" in path or any(part in ("", ".", "..") for part in parts) or parents & names:
            message = f"{address.text} has an object {path[:100]!r}, which cannot be a file's path."
            raise _request_error(message, address, "Rename it, or name a prefix that does not have it.")


def _request_error(message: str, address: BucketAddress, remedy: str) -> InvalidRequest:
    return InvalidRequest(message, field="--data", value=address.text, next=remedy)


def _download(bucket: Bucket, address: BucketAddress, bucket_object: BucketObject) -> Download:
    """Return the download of one object, by a presigned URL."""
    label = f"{address.scheme}://{address.bucket}/{bucket_object.key}"
    parts = ((bucket.presigned_url(bucket_object.key, PRESIGNED_URL_TTL_S), bucket_object.size),)
    etag = bucket_object.etag if address.scheme == "s3" else None  # other clouds' etags cannot be sent in If-Match
    return Download("data", _content_name(address, bucket_object), label, bucket_object.size, parts, etag)


def _content_name(address: BucketAddress, bucket_object: BucketObject) -> str:
    """Return the file name of an object's content on a machine, a hash: another content has another name."""
    identity = "\0".join(
        (address.scheme, address.bucket, bucket_object.key, bucket_object.etag, str(bucket_object.size))
    )
    return hashlib.sha256(identity.encode("utf-8", "surrogateescape")).hexdigest()


def traffic_text(cloud: str, region: str | None, size: int, location: tuple[str, str]) -> str:
    """Return what it costs to transfer `size` bytes out of a cloud's region, as a clause; empty within one region.

    `location` is the provider and region of the receiver. Empty, too, where no price is known or it is below a cent.
    """
    provider, machine_region = location
    cloud_name = CLOUD_NAMES.get(cloud, cloud)
    if provider == cloud and region is not None and region == machine_region:
        return ""
    if provider == cloud:
        route_clause = f"between {region} and {machine_region}" if region else "between regions"
        return f"{cloud_name} charges for traffic {route_clause}; its price is not in the catalogue"
    rate = None if is_on_prem(cloud) else egress_rate(cloud, region or "", size)
    if rate is None or rate.price is None:
        return ""
    amount = Money(int(rate.price.nanos * Decimal(size) / GB))
    return f"{cloud_name} charges at most {amount.text(2)} for what leaves it" if amount.nanos >= CENT else ""
