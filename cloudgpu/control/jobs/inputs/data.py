"""Reads `--data SRC:DEST`, and paths that have to lie inside the workdir."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from cloudgpu.config.files.text import shown
from cloudgpu.control.inputs.setup import parse_volume
from cloudgpu.errors import InvalidRequest

if TYPE_CHECKING:
    from cloudgpu.core.events.job_lines import DataRecord

VOLUME = "volume:"
_BUCKET = re.compile(r"[a-z][a-z0-9+.-]*://.*", re.IGNORECASE | re.DOTALL)
_EXAMPLE = "For example --data /mnt/imagenet:data, or --volume data --data volume:data:data"


def parse_data(given: Sequence[str]) -> tuple[DataRecord, ...]:
    """Return each `SRC:DEST`; raise InvalidRequest for one that cannot be read, a bucket, or a DEST that is used twice.

    SRC is an absolute path on the machine or `volume:NAME`; DEST an absolute path, or one inside the workdir.
    """
    found: list[DataRecord] = []
    for text in given:
        one = _parsed(text)
        if any(one["target"] == other["target"] for other in found):
            says = f"Two of --data have the destination {one['target']}."
            raise _refused(says, text, "Name another destination for one of them.")
        found.append(one)
    return tuple(found)


def check_volumes(data: Sequence[DataRecord], volume: str | None) -> None:
    """Raise InvalidRequest for data of a volume that no `--volume` attaches."""
    attached = None if volume is None else parse_volume(volume)
    for one in data:
        name = one["source"].removeprefix(VOLUME)
        if one["source"].startswith(VOLUME) and (attached is None or attached.name != name):
            says = f"--data {one['source']} names a volume that --volume does not attach."
            raise _refused(says, one["source"], f"Add --volume {name}, or name a path that is on the machine.")


def inside(text: str, option: str, example: str) -> str:
    """Return a relative path inside the workdir, without `.` parts; raise InvalidRequest for any other."""
    path = PurePosixPath(text)
    plain = text.strip() == text and text.isprintable() and "\\" not in text
    if plain and path.parts and not path.is_absolute() and ".." not in path.parts and not text.startswith("~"):
        return str(path)
    raise InvalidRequest(
        f"{option} {shown(text)!r} is not a directory inside the workdir.",
        field=option,
        value=shown(text),
        next=f"Name it relative to the workdir, without '..': {option} {example}",
    )


def _parsed(text: str) -> DataRecord:
    if _BUCKET.fullmatch(text):
        says = f"{shown(text)}: buckets are not supported yet."
        way_out = "Name a path that is on the machine, or a volume, or copy the data from the bucket in --setup."
        raise _refused(says, text, way_out)
    source, colon, target = text.rpartition(":")
    if not colon or not source or not target:
        raise _refused(f"--data {shown(text)!r} is not SRC:DEST.", text, _EXAMPLE)
    return {"source": _source(source, text), "target": _target(target)}


def _source(source: str, text: str) -> str:
    if source.startswith(VOLUME):
        volume = parse_volume(source.removeprefix(VOLUME))
        if volume is not None and volume.size_gb is None:
            return source
    elif PurePosixPath(source).is_absolute() and ".." not in PurePosixPath(source).parts:
        return str(PurePosixPath(source))
    says = f"--data {shown(source)!r} is neither an absolute path on the machine nor volume:NAME."
    raise _refused(says, text, f"{_EXAMPLE}. What is in the workdir travels with it.")


def _target(target: str) -> str:
    path = PurePosixPath(target)
    if path.is_absolute() and ".." not in path.parts and len(path.parts) > 1:
        return str(path)
    return inside(target, "--data", "/mnt/imagenet:data")


def _refused(says: str, value: str, way_out: str) -> InvalidRequest:
    return InvalidRequest(says, field="--data", value=shown(value), next=way_out)
