"""Reads `--data SRC:DEST`, `--results-to`, and paths that have to lie inside the workdir."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import PurePosixPath

from cloudgpu.config.files.user_files import shown
from cloudgpu.control.inputs.launch_request import parse_volume
from cloudgpu.core.events.job_events import DataRecord
from cloudgpu.core.jobs.stored import VOLUME
from cloudgpu.core.model.buckets import bucket_address
from cloudgpu.errors import InvalidRequest
from cloudgpu.providers.buckets import WRITABLE_SCHEMES

_BUCKET_URL = re.compile(r"[a-z][a-z0-9+.-]*://.*", re.IGNORECASE | re.DOTALL)
_DATA_EXAMPLE = "For example --data s3://lab/imagenet:data, --data /mnt/imagenet:data, or --data volume:data:data"
_RESULTS_EXAMPLE = "For example --results-to s3://lab/runs, or --results-to volume:data"


def parse_data(texts: Sequence[str]) -> tuple[DataRecord, ...]:
    """Return each `SRC:DEST`; raise InvalidRequest for one that cannot be read, or a DEST that is used twice.

    SRC is a bucket (`s3://BUCKET/PREFIX`), an absolute path on the machine or `volume:NAME`; DEST an absolute path, or
    one inside the workdir.
    """
    records: list[DataRecord] = []
    for text in texts:
        record = _parse_record(text)
        if any(record["target"] == other["target"] for other in records):
            message = f"Two of --data have the destination {record['target']}."
            raise _data_error(message, text, "Name another destination for one of them.")
        records.append(record)
    return tuple(records)


def check_apart(data: Sequence[DataRecord], written: Mapping[str, str | None]) -> None:
    """Raise InvalidRequest for data at, above or below a directory that the command writes to, by its option.

    The command would write into the data, and the data would come back with the results.
    """
    for record, (option, directory) in product(data, written.items()):
        target, own = PurePosixPath(record["target"]), PurePosixPath(directory or "/")
        if directory is not None and (target.is_relative_to(own) or own.is_relative_to(target)):
            message = f"--data has the destination {target}, and {option} is {directory}: one is inside the other."
            raise _data_error(message, record["target"], "Name another destination, data, say.")


def workdir_path(text: str, option: str, example: str) -> str:
    """Return a relative path inside the workdir, without `.` parts; raise InvalidRequest for any other."""
    path = PurePosixPath(text)
    is_plain = text.strip() == text and text.isprintable() and "\\" not in text
    if is_plain and path.parts and not path.is_absolute() and ".." not in path.parts and not text.startswith("~"):
        return str(path)
    raise InvalidRequest(
        f"{option} {shown(text)!r} is not a directory inside the workdir.",
        field=option,
        value=shown(text),
        next=f"Name it relative to the workdir, without '..': {option} {example}",
    )


def _parse_record(text: str) -> DataRecord:
    source, colon, target = text.rpartition(":")
    if not colon or not source or not target or target.startswith("//"):  # the colon is that of `s3://`
        raise _data_error(f"--data {shown(text)!r} is not SRC:DEST.", text, _DATA_EXAMPLE)
    return {"source": _parse_source(source, text), "target": _parse_target(target)}


def parse_results_to(text: str | None) -> str | None:
    """Return the bucket or volume that results go to; raise InvalidRequest for what is neither."""
    if text is None:
        return None
    address = bucket_address(text)
    if address is not None and address.scheme in WRITABLE_SCHEMES:
        return address.text
    volume = parse_volume(text.removeprefix(VOLUME)) if text.startswith(VOLUME) else None
    if volume is not None and volume.size_gb is None:
        return text
    problem = (
        "neither s3://BUCKET/PREFIX nor volume:NAME" if address is None else "not a bucket of S3: only those can be"
    )
    message = f"--results-to {shown(text)!r} is {problem}{' written to' if address else ''}."
    raise InvalidRequest(message, field="--results-to", value=shown(text), next=_RESULTS_EXAMPLE)


def volume_for(results_to: str | None, data: Sequence[DataRecord], volume: str | None) -> str | None:
    """Return the volume that a launched machine gets: that of `--volume`, else of `--results-to` or `--data`.

    Raises InvalidRequest where two are named: a machine has one.
    """
    sources = (results_to, *(record["source"] for record in data))
    named_volumes = [source for source in sources if source and source.startswith(VOLUME)]
    attached = parse_volume(volume)
    for source in named_volumes:
        name = source.removeprefix(VOLUME)
        volume_name = attached.name if attached is not None else named_volumes[0].removeprefix(VOLUME)
        if name != volume_name:
            option = "--results-to" if source is results_to else "--data"
            message = f"{option} {source} names another volume than {volume_name}, and a machine has one."
            remedy = f"Use volume:{volume_name} for it, or a bucket."
            raise InvalidRequest(message, field=option, value=source, next=remedy)
    return volume if attached is not None or not named_volumes else named_volumes[0].removeprefix(VOLUME)


def _parse_source(source: str, text: str) -> str:
    if _BUCKET_URL.fullmatch(source):
        return _parse_bucket(source, text)
    if source.startswith(VOLUME):
        volume = parse_volume(source.removeprefix(VOLUME))
        if volume is not None and volume.size_gb is None:
            return source
    elif PurePosixPath(source).is_absolute() and ".." not in PurePosixPath(source).parts:
        return str(PurePosixPath(source))
    message = f"--data {shown(source)!r} is neither a bucket, an absolute path on the machine nor volume:NAME."
    raise _data_error(message, text, f"{_DATA_EXAMPLE}. What is in the workdir travels with it.")


def _parse_bucket(source: str, text: str) -> str:
    address = bucket_address(source)
    if address is not None:
        return address.text
    message = f"--data {shown(source)!r} is not the address of a bucket that cloudgpu can read."
    raise _data_error(message, text, "Use s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX.")


def _parse_target(target: str) -> str:
    path = PurePosixPath(target)
    if path.is_absolute() and ".." not in path.parts and len(path.parts) > 1:
        return str(path)
    return workdir_path(target, "--data", "/mnt/imagenet:data")


def _data_error(message: str, value: str, remedy: str) -> InvalidRequest:
    return InvalidRequest(message, field="--data", value=shown(value), next=remedy)
