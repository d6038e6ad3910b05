"""Copies files from a machine to this computer, each to a part file that is renamed when its sha256 is right."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from cloudgpu.access.jobs.program_channel import MalformedAnswer
from cloudgpu.errors import InvalidRequest, Unreachable

CHUNK_BYTES = 256 * 1024
MIN_MEASURED_BYTES = 1_000_000  # fewer show the latency of the connection rather than its bandwidth
_DISK_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


Progress = Callable[[int, int], None]  # bytes done, bytes in all


@dataclass(frozen=True, slots=True)
class CopiedFile:
    """One file: its path below the directory, bytes, permission bits and sha256."""

    path: str
    size: int
    mode: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """The content of a directory on a machine.

    `links` are (path, target), `skipped` (path, reason) of what cannot be copied, as links out of the directory.
    `unreadable` is (path, error) of what the user may not read there, `changed` the files that were being written when
    they were read.
    """

    files: tuple[CopiedFile, ...]
    links: tuple[tuple[str, str], ...]
    directories: tuple[str, ...]
    skipped: tuple[tuple[str, str], ...]
    unreadable: tuple[tuple[str, str], ...]
    changed: tuple[str, ...]

    @property
    def is_readable(self) -> bool:
        """Whether all of it could be read, and nothing changed meanwhile."""
        return not self.unreadable and not self.changed

    @property
    def incomplete_reason(self) -> str:
        """Why a copy of it is not complete."""
        if self.unreadable:
            path, reason = self.unreadable[0]
            return f"{path[:200]} cannot be read there ({reason.lower()})"
        return f"{', '.join(self.changed[:3]) or 'some of the files'} changed while they were fetched"

    @property
    def size(self) -> int:
        """The bytes of all files."""
        return sum(file.size for file in self.files)


class Copied(NamedTuple):
    """The bytes transferred, and the files that changed meanwhile, whose local copies stay as they were."""

    bytes: int
    changed: tuple[str, ...]


@dataclass(slots=True)
class Meter:
    """The bytes that were transferred, and in how many seconds."""

    bytes: int = 0
    seconds: float = 0.0

    @property
    def bytes_per_s(self) -> float | None:
        """The rate; None for fewer than MIN_MEASURED_BYTES."""
        return self.bytes / self.seconds if self.bytes >= MIN_MEASURED_BYTES and self.seconds > 0 else None


_METER: ContextVar[Meter | None] = ContextVar("meter", default=None)


@contextlib.contextmanager
def measure_copies() -> Iterator[Meter]:
    """Measure the copies that this thread makes in the block."""
    meter = Meter()
    token = _METER.set(meter)
    try:
        yield meter
    finally:
        _METER.reset(token)


def read_manifest(answer: Mapping[str, Any]) -> Manifest:
    """Return the manifest in a machine's answer; raise ValueError for a malformed one, or one that leads out."""
    try:
        files = tuple(
            CopiedFile(_checked_path(file["path"]), int(file["size"]), int(file["mode"]) & 0o777, str(file["sha256"]))
            for file in answer["files"]
        )
        links = tuple((_checked_path(path), _checked_link(path, target)) for path, target in answer["links"])
        skipped, unreadable = (
            tuple((str(path), str(reason)) for path, reason in answer[kind]) for kind in ("skipped", "unreadable")
        )
        changed = tuple(str(file["path"]) for file in answer["files"] if file["changed"])
        directories = tuple(map(_checked_path, answer["directories"]))
        return Manifest(files, links, directories, skipped, unreadable, changed)
    except (KeyError, TypeError) as error:
        raise ValueError(str(error)) from None


def _checked_path(path: Any) -> str:
    if not isinstance(path, str) or "\0" in path or any(part in ("", ".", "..") for part in path.split("/")):
        raise ValueError(f"{path!r} is not a path below a directory")
    return path


def _checked_link(path: str, target: Any) -> str:
    """Return a target whose `..` all stand at its beginning, as machines send it: behind a link, one may lead out."""
    parts = target.split("/") if isinstance(target, str) else [""]
    if parts[0] == "" or ".." in parts[_parents_of(parts) :]:
        raise ValueError(f"{path!r} is a link to {target!r}")
    _checked_path(os.path.normpath(PurePosixPath(path).parent / target))
    return "/".join(parts)


def _parents_of(parts: Sequence[str]) -> int:
    """Return by how many `..` a path begins."""
    return next((number for number, part in enumerate(parts) if part != ".."), len(parts))


def hash_file(path: Path) -> str:
    """Return the sha256 of a file's content, empty where it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""


def is_same_file(path: Path, file: CopiedFile) -> bool:
    """Tell whether a local path has this file's size and hash."""
    try:
        if path.is_symlink() or not path.is_file() or path.stat().st_size != file.size:
            return False
    except OSError:
        return False
    return hash_file(path) == file.sha256


@contextlib.contextmanager
def explain_disk_errors(directory: Path) -> Iterator[None]:
    """Turn an OSError of this computer's disk into InvalidRequest."""
    try:
        yield
    except OSError as error:
        is_full = error.errno in _DISK_FULL_ERRNOS
        reason = "the disk is full" if is_full else (error.strerror or str(error)).lower()
        raise InvalidRequest(
            f"{error.filename or directory} cannot be written: {reason}. Nothing on the machine was removed.",
            field="results",
            value=str(directory),
            next="Free space on this computer." if is_full else "Change its permissions, or move it.",
        ) from error


def target_path(root: Path, path: str) -> Path:
    """Return the local path of a file, and create its directory; raise InvalidRequest if a link leads out of `root`.

    Nothing is created then.
    """
    target = root / path
    if not Path(os.path.realpath(target.parent)).is_relative_to(os.path.realpath(root)):
        raise InvalidRequest(
            f"{target.parent} leads out of {root}.",
            field="results",
            value=path,
            next=f"Remove the link {target.parent}.",
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    return target


def part_path(root: Path, suffix: str) -> Path:
    """Return the path of this thread's part file in a local directory; its name has the process id."""
    return root / f".cloudgpu-{os.getpid()}-{threading.get_ident()}.{suffix}"


def remove_part_files(root: Path) -> None:
    """Remove the part files of killed processes from a directory."""
    for path in root.glob(".cloudgpu-*-*.*") if root.is_dir() else ():
        with contextlib.suppress(OSError, ValueError):
            try:
                os.kill(int(path.name.split("-")[1]), 0)
            except ProcessLookupError:
                shutil.rmtree(path) if path.is_dir() else path.unlink()


class FileReceiver:
    """Writes files that arrive in one stream, in the order of `files`, and renames each one whose hash is right.

    A file with another hash changed while it was read: it is in `changed`, and its local copy stays as it was.
    """

    def __init__(self, root: Path, files: Sequence[CopiedFile]) -> None:
        self._root, self._part = root, part_path(root, "part")
        self._files = iter(files)
        self._file: Any = None
        self._current: CopiedFile | None = None
        self._bytes_left = 0
        self._digest = hashlib.sha256()
        self.changed: list[str] = []
        self.bytes = 0
        self._started_at = time.monotonic()
        with explain_disk_errors(root):
            remove_part_files(root)
        self._next()

    def write(self, data: memoryview) -> None:
        """Write the next bytes. Raises InvalidRequest when they cannot be written, MalformedAnswer for too many."""
        self.bytes += len(data)
        with explain_disk_errors(self._root):
            while data:
                if self._current is None:
                    raise MalformedAnswer("more bytes than requested")
                part, data = data[: self._bytes_left], data[self._bytes_left :]
                self._file.write(part)
                self._digest.update(part)
                self._bytes_left -= len(part)
                if not self._bytes_left:
                    self._finish(self._current)
                    self._next()

    def close(self) -> bool:
        """Remove the part file if there is one; return whether all files arrived."""
        meter = _METER.get()
        if meter is not None:
            meter.bytes, meter.seconds = meter.bytes + self.bytes, meter.seconds + time.monotonic() - self._started_at
        if self._file is not None:
            with contextlib.suppress(OSError):  # a full disk
                self._file.close()
            with contextlib.suppress(OSError):
                self._part.unlink()
            self._file = None
        return self._current is None

    def _finish(self, file: CopiedFile) -> None:
        self._file.close()
        if self._digest.hexdigest() == file.sha256:
            self._part.chmod(file.mode | 0o600)
            target = target_path(self._root, file.path)
            _make_way_for_file(target)
            self._part.replace(target)
        else:
            self.changed.append(file.path)
            self._part.unlink()
        self._file = None

    def _next(self) -> None:
        """Open the next file that is not empty; finish empty ones at once."""
        with explain_disk_errors(self._root):
            for file in self._files:
                self._root.mkdir(parents=True, exist_ok=True)
                self._file, self._current = self._part.open("wb"), file
                self._bytes_left, self._digest = file.size, hashlib.sha256()
                if self._bytes_left:
                    return
                self._finish(file)
        self._current = None


def make_way_for_directories(root: Path, manifest: Manifest) -> None:
    """Remove links and files of an earlier manifest where there is a directory now; files would go to a link's target.

    Raises InvalidRequest as `target_path`.
    """
    with explain_disk_errors(root):
        for path in manifest.directories:
            directory = target_path(root, path)
            if directory.is_symlink() or not directory.is_dir():
                directory.unlink(missing_ok=True)


def _make_way_for_file(path: Path) -> None:
    """Remove a directory of an earlier manifest with its content; a link to one stays."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)


def make_links(root: Path, manifest: Manifest) -> None:
    """Create the directories and links of a manifest, also in place of files and directories of an earlier manifest.

    Raises InvalidRequest for a link that would lead out of `root`.
    """
    with explain_disk_errors(root):
        for path in manifest.directories:
            target_path(root, path).mkdir(exist_ok=True)
        for path, target in manifest.links:
            link = target_path(root, path)
            depth = len(Path(os.path.realpath(link.parent)).relative_to(os.path.realpath(root)).parts)
            if _parents_of(target.split("/")) > depth:
                raise InvalidRequest(
                    f"{link} would lead out of {root}.", field="results", value=path, next="Look at it on the machine."
                )
            _make_way_for_file(link)
            link.unlink(missing_ok=True)
            link.symlink_to(target)


def local_files(root: Path) -> tuple[list[tuple[CopiedFile, Path]], list[tuple[str, str]]]:
    """Return the files below a local directory with their paths, and the links (path, target), without part files."""
    files, links = [], []
    for base, directories, names in os.walk(root):
        for name in (*names, *(directory for directory in directories if (Path(base) / directory).is_symlink())):
            path = Path(base) / name
            relative = path.relative_to(root).as_posix()
            if name.startswith(".cloudgpu-"):
                continue
            if path.is_symlink():
                links.append((relative, str(path.readlink())))
            elif path.is_file():
                status = path.stat()
                files.append((CopiedFile(relative, status.st_size, status.st_mode & 0o777, hash_file(path)), path))
    return files, links


def read_files(files: Sequence[tuple[int, Path]], progress: Progress | None) -> Iterator[bytes]:
    """Yield the content of `files` (size, path) in chunks; small files share a chunk.

    Raises InvalidRequest for a file that cannot be read, or is shorter than its size.
    """
    total, bytes_done, batch = sum(size for size, _ in files), 0, bytearray()
    for size, path in files:
        bytes_left = size
        with _explain_read_errors(path):
            file = path.open("rb")
        with file:
            while bytes_left:
                with _explain_read_errors(path):
                    data = file.read(min(CHUNK_BYTES, bytes_left))
                if not data:
                    raise InvalidRequest(
                        f"{path} is shorter than it was.", field="snapshot", value=str(path), next="Run the job again."
                    )
                bytes_left -= len(data)
                batch += data
                if len(batch) >= CHUNK_BYTES:
                    yield bytes(batch)
                    bytes_done += len(batch)
                    batch.clear()
                    if progress is not None:
                        progress(bytes_done, total)
    yield bytes(batch)
    if progress is not None:
        progress(total, total)


@contextlib.contextmanager
def _explain_read_errors(path: Path) -> Iterator[None]:
    """Turn an OSError about a local file that is to be sent into InvalidRequest."""
    try:
        yield
    except OSError as error:
        raise InvalidRequest(
            f"{path} cannot be read: {(error.strerror or str(error)).lower()}.",
            field="snapshot",
            value=str(path),
            next="Correct its permissions. If it is gone, run the job again: that takes a new snapshot.",
        ) from error


def transfer_ended_error(name: str) -> Unreachable:
    """Return the error of a transfer that ended early."""
    return Unreachable(
        f"{name} ended a transfer early.", field="name", value=name, next="Try again: complete files are retained."
    )
