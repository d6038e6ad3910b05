"""What a job has in a bucket: reads the lists of files that its machine wrote there, and compares them. Pure.

`access/jobs/remote_upload.py` writes them. A list is uploaded after its objects, and each object appears complete or
not at all. Whoever controls the machine could write anything, so paths that lead outside are refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from cloudgpu.core.jobs.remote_state import Exit
from cloudgpu.core.model.buckets import BucketAddress, bucket_address

VERSION = 1
# Prefixes of objects, and the name of the list of results
RESULTS, STATE, OUTPUT, LIST = "results/", "state/", "output/", "results.json"
VOLUME = "volume:"
PART_BYTES = 4 * 10**9  # an upload form takes 5 GB at most; a larger file is split into several objects
STREAMS = ("out", "err")
StoredJson = Mapping[str, Any]  # JSON that a machine wrote: it may be forged


@dataclass(frozen=True, slots=True)
class StoredFile:
    """One file, and the objects that it is made of: key below the job's own prefix, and bytes."""

    path: str
    size: int
    mode: int
    sha256: str
    parts: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class StoredFiles:
    """Files and links; `name` is that of a checkpoint, empty for results.

    `attempt` had run for `work_s` seconds when it finished that checkpoint; None where the list does not say so.
    """

    files: tuple[StoredFile, ...]
    links: tuple[tuple[str, str], ...]
    name: str = ""
    attempt: int = 0
    work_s: float | None = None


@dataclass(frozen=True, slots=True)
class StoredState:
    """What another attempt begins with: results so far, and complete checkpoints, the newest last."""

    results: StoredFiles
    checkpoints: tuple[StoredFiles, ...]

    @property
    def files(self) -> Iterator[StoredFile]:
        """All files."""
        for one in (self.results, *self.checkpoints):
            yield from one.files


@dataclass(frozen=True, slots=True)
class StoredResults:
    """The results of an attempt whose command is over, and how it ended, by its machine's clock (epoch seconds)."""

    attempt: int
    exit: Exit
    started: float | None
    setup_s: float | None
    results: StoredFiles
    output: tuple[StoredFile, ...]

    @property
    def bytes(self) -> int:
        """The bytes of all results."""
        return sum(file.size for file in self.results.files)


def folder(name: str, job: str) -> str:
    """Return the name of a job's own directory in a bucket or on a volume."""
    return f"{name}-{job.removeprefix('job-')}"


def bucket_of(results_to: str | None) -> BucketAddress | None:
    """Return the bucket of `--results-to`; None for a volume, and for this computer."""
    return None if results_to is None else bucket_address(results_to)


def volume_of(results_to: str | None) -> str | None:
    """Return the volume of `--results-to`; None for a bucket, and for this computer."""
    if results_to is None or not results_to.startswith(VOLUME):
        return None
    return results_to.removeprefix(VOLUME)


def read_state(text: bytes) -> StoredState | None:
    """Return the parsed list of the files so far; None if it is not valid."""
    try:
        found = _parsed_list(text)
        checkpoints = tuple(_checkpoint(checkpoint) for checkpoint in found["checkpoints"])
        return StoredState(_files(found["results"], STATE), checkpoints)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def read_results(text: bytes) -> StoredResults | None:
    """Return the parsed list of the results; None if it is not valid."""
    try:
        found = _parsed_list(text)
        started, setup_s = (None if found[name] is None else float(found[name]) for name in ("started", "setup_s"))
        output = tuple(_file(one, OUTPUT) for one in found["output"])
        if any(one.path not in STREAMS for one in output):
            return None
        number, results = int(found.get("attempt", "")), _files(found, RESULTS)
        return StoredResults(number, _exit(found["exit"]), started, setup_s, results, output)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def missing_objects(files: Iterable[StoredFile], sizes: Mapping[str, int]) -> list[str]:
    """Return the objects of files that are not in the bucket, or not as large as the list says."""
    return [key for file in files for key, size in file.parts if sizes.get(key) != size]


def unneeded_objects(state: StoredState, newest: str, keys: Iterable[str]) -> list[str]:
    """Return the objects of earlier copies that the newest list does not name.

    `newest` is the name of that copy, `NUMBER-COUNT` (attempt and copy); objects of a later copy may be uploading now.
    """
    needed = {key for file in state.files for key, _ in file.parts}
    last = _copy_number(f"{STATE}{newest}/")
    found = ((key, _copy_number(key)) for key in keys if key not in needed)
    return [key for key, place in found if last is not None and place is not None and place < last]


def newest_copy(state: StoredState) -> str | None:
    """Return the latest copy that a list names, `NUMBER-COUNT` (attempt and copy); None if it names none."""
    places = [place for file in state.files for key, _ in file.parts if (place := _copy_number(key)) is not None]
    return "{}-{:06}".format(*max(places)) if places else None


def _copy_number(key: str) -> tuple[int, int] | None:
    number, dash, count = key.removeprefix(STATE).partition("/")[0].partition("-")
    return (int(number), int(count)) if dash and number.isdecimal() and count.isdecimal() else None


def _parsed_list(text: bytes) -> StoredJson:
    found: StoredJson = json.loads(text)
    if found["version"] != VERSION:
        raise ValueError
    return found


def _exit(stored: StoredJson) -> Exit:
    status, signal, reason, ended, why = (stored[name] for name in ("status", "signal", "reason", "ended", "why"))
    code, number = (None if one is None else int(one) for one in (status, signal))
    return Exit(code, number, str(reason), float(ended), str(why))


def _files(stored: StoredJson, start: str, name: str = "") -> StoredFiles:
    files = tuple(_file(file, start) for file in stored["files"])
    return StoredFiles(
        files, tuple((_checked_path(path), _checked_target(path, target)) for path, target in stored["links"]), name
    )


def _checkpoint(stored: StoredJson) -> StoredFiles:
    number, raw_work_s = int(stored.get("attempt", 0)), stored.get("work_s")
    work_s = None if raw_work_s is None else float(raw_work_s)
    if work_s is not None and not 0 <= work_s < inf:
        raise ValueError
    return replace(_files(stored, STATE, _checked_path(stored["name"])), attempt=number, work_s=work_s)


def _file(stored: StoredJson, start: str) -> StoredFile:
    parts = tuple((_checked_key(key, start), int(size)) for key, size in stored["parts"])
    file = StoredFile(
        _checked_path(stored["path"]), int(stored["size"]), int(stored["mode"]) & 0o777, str(stored["sha256"]), parts
    )
    if file.size < 0 or sum(size for _, size in parts) != file.size or any(size < 0 for _, size in parts):
        raise ValueError
    return file


def _checked_key(key: Any, start: str) -> str:
    if not isinstance(key, str) or not key.startswith(start):
        raise ValueError
    return start + _checked_path(key.removeprefix(start))


def _checked_path(path: Any) -> str:
    if not isinstance(path, str) or "\0" in path or any(part in ("", ".", "..") for part in path.split("/")):
        raise ValueError
    return path


def _checked_target(path: str, target: Any) -> str:
    """Return the target of a link; raise ValueError if it leads outside the root, by its text."""
    depth = path.count("/")
    if not isinstance(target, str) or target.startswith("/") or "\0" in target:
        raise ValueError
    for part in target.split("/"):
        depth += -1 if part == ".." else 0 if part in ("", ".") else 1
        if depth < 0:
            raise ValueError
    return target
