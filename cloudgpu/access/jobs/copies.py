"""Copies files from a machine to this computer: to a part file, which is renamed once its sha256 is right."""

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

from cloudgpu.errors import InvalidRequest, Unreachable

CHUNK = 256 * 1024
MIN_MEASURED = 1_000_000  # bytes: the rate of less shows the connection's latency rather than its bandwidth
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


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
    """The content of a directory on a machine. `skipped` are entries that cannot be copied; `changed` were written."""

    files: tuple[CopiedFile, ...]
    links: tuple[tuple[str, str], ...]
    directories: tuple[str, ...]
    skipped: tuple[tuple[str, str], ...]
    changed: tuple[str, ...]

    @property
    def size(self) -> int:
        """The bytes of all files."""
        return sum(one.size for one in self.files)


class Copied(NamedTuple):
    """The bytes transferred, and the files that changed meanwhile: their local copies are still the old ones."""

    bytes: int
    changed: tuple[str, ...]


@dataclass(slots=True)
class Meter:
    """The bytes that were transferred, and in how many seconds."""

    bytes: int = 0
    seconds: float = 0.0

    @property
    def bytes_per_s(self) -> float | None:
        """The rate; None for fewer than MIN_MEASURED bytes."""
        return self.bytes / self.seconds if self.bytes >= MIN_MEASURED and self.seconds > 0 else None


_METER: ContextVar[Meter | None] = ContextVar("meter", default=None)


@contextlib.contextmanager
def metered() -> Iterator[Meter]:
    """Measure the copies that this thread makes inside the block."""
    meter = Meter()
    before = _METER.set(meter)
    try:
        yield meter
    finally:
        _METER.reset(before)


def read_manifest(answer: Mapping[str, Any]) -> Manifest:
    """Return the manifest in a machine's answer; raise ValueError for what no directory can contain."""
    try:
        files = tuple(
            CopiedFile(_checked_path(one["path"]), int(one["size"]), int(one["mode"]) & 0o777, str(one["sha256"]))
            for one in answer["files"]
        )
        links = tuple((_checked_path(path), _checked_link(path, target)) for path, target in answer["links"])
        skipped = tuple((str(path), str(why)) for path, why in answer["skipped"])
        changed = tuple(str(one["path"]) for one in answer["files"] if one["changed"])
        return Manifest(files, links, tuple(map(_checked_path, answer["directories"])), skipped, changed)
    except (KeyError, TypeError) as error:
        raise ValueError(str(error)) from None


def _checked_path(path: Any) -> str:
    if not isinstance(path, str) or "\0" in path or any(part in ("", ".", "..") for part in path.split("/")):
        raise ValueError(f"{path!r} is not a path below a directory")
    return path


def _checked_link(path: str, target: Any) -> str:
    if not isinstance(target, str) or target.startswith("/"):
        raise ValueError(f"{path!r} is a link to {target!r}")
    _checked_path(os.path.normpath(PurePosixPath(path).parent / target))
    return target


def hash_file(path: Path) -> str:
    """Return the sha256 of a file's content, empty where it cannot be read."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while data := file.read(CHUNK):
                digest.update(data)
    except OSError:
        return ""
    return digest.hexdigest()


def is_same_file(path: Path, file: CopiedFile) -> bool:
    """Tell whether a local path has this file's size and hash."""
    try:
        if path.is_symlink() or not path.is_file() or path.stat().st_size != file.size:
            return False
    except OSError:
        return False
    return hash_file(path) == file.sha256


@contextlib.contextmanager
def explain_disk_errors(into: Path) -> Iterator[None]:
    """Turn an OSError of this computer's disk into InvalidRequest."""
    try:
        yield
    except OSError as error:
        full = error.errno in _FULL
        why = "the disk is full" if full else (error.strerror or str(error)).lower()
        raise InvalidRequest(
            f"{error.filename or into} cannot be written: {why}. Nothing on the machine was removed.",
            field="results",
            value=str(into),
            next="Free space on this computer, then fetch again." if full else "Change its permissions, or move it.",
        ) from error


def target_path(root: Path, path: str) -> Path:
    """Return the local path of a file, its directory made; raise InvalidRequest where a link leads away."""
    where = root / path
    where.parent.mkdir(parents=True, exist_ok=True)
    if not Path(os.path.realpath(where.parent)).is_relative_to(os.path.realpath(root)):
        raise InvalidRequest(
            f"{where.parent} leads out of {root}.", field="results", value=path, next=f"Remove the link {where.parent}."
        )
    return where


def part_path(root: Path, ending: str) -> Path:
    """Return the name of this process's part file in a local directory; `remove_part_files` knows whose it is."""
    return root / f".cloudgpu-{os.getpid()}-{threading.get_ident()}.{ending}"


def remove_part_files(root: Path) -> None:
    """Remove the part files of killed processes from a directory."""
    for path in root.glob(".cloudgpu-*-*.*") if root.is_dir() else ():
        with contextlib.suppress(OSError, ValueError):
            try:
                os.kill(int(path.name.split("-")[1]), 0)
            except ProcessLookupError:
                shutil.rmtree(path) if path.is_dir() else path.unlink()


class FileReceiver:
    """Writes the files of a request from one stream, in their order, and renames each one whose hash is right.

    A file with another hash changed while it was read: it is in `torn`, and the local copy stays the old one.
    """

    def __init__(self, root: Path, files: Sequence[CopiedFile]) -> None:
        self._root, self._part = root, part_path(root, "part")
        self._files = iter(files)
        self._file: Any = None
        self._current: CopiedFile | None = None
        self._bytes_left = 0
        self._digest = hashlib.sha256()
        self.torn: list[str] = []
        self.bytes = 0
        self._began = time.monotonic()
        remove_part_files(root)
        self._next()

    def write(self, data: memoryview) -> None:
        """Write the next bytes. Raises InvalidRequest where they cannot be written."""
        self.bytes += len(data)
        with explain_disk_errors(self._root):
            while data:
                if self._current is None:
                    raise ValueError("more than was asked for")
                part, data = data[: self._bytes_left], data[self._bytes_left :]
                self._file.write(part)
                self._digest.update(part)
                self._bytes_left -= len(part)
                if not self._bytes_left:
                    self._finish(self._current)
                    self._next()

    def close(self) -> bool:
        """Remove the part file; return whether all files arrived."""
        meter = _METER.get()
        if meter is not None:
            meter.bytes, meter.seconds = meter.bytes + self.bytes, meter.seconds + time.monotonic() - self._began
        if self._file is not None:
            with contextlib.suppress(OSError):  # what a full disk did not take
                self._file.close()
            with contextlib.suppress(OSError):
                self._part.unlink()
            self._file = None
        return self._current is None

    def _finish(self, file: CopiedFile) -> None:
        self._file.close()
        self._file = None
        if self._digest.hexdigest() == file.sha256:
            self._part.chmod(file.mode | 0o600)
            self._part.replace(target_path(self._root, file.path))
        else:
            self.torn.append(file.path)
            self._part.unlink()

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


def make_links(root: Path, manifest: Manifest) -> None:
    """Make the directories and links of a manifest; an existing file or directory is never replaced by a link."""
    with explain_disk_errors(root):
        for path in manifest.directories:
            target_path(root, path).mkdir(exist_ok=True)
        for path, target in manifest.links:
            where = target_path(root, path)
            if where.is_symlink():
                where.unlink()
            if not where.exists():
                where.symlink_to(target)


def local_files(root: Path) -> tuple[list[tuple[CopiedFile, Path]], list[tuple[str, str]]]:
    """Return the files below a local directory, and its links, without part files."""
    files, links = [], []
    for base, directories, names in os.walk(root):
        for name in (*names, *(one for one in directories if (Path(base) / one).is_symlink())):
            path = Path(base) / name
            relative = path.relative_to(root).as_posix()
            if name.startswith(".cloudgpu-"):
                continue
            if path.is_symlink():
                links.append((relative, str(path.readlink())))
            elif path.is_file():
                facts = path.stat()
                files.append((CopiedFile(relative, facts.st_size, facts.st_mode & 0o777, hash_file(path)), path))
    return files, links


def read_files(files: Sequence[tuple[int, Path]], progress: Progress | None) -> Iterator[bytes]:
    """Yield the files one after the other, each exactly as long as announced. Small ones travel together.

    Raises InvalidRequest for a file that is shorter.
    """
    total, done, batch = sum(size for size, _ in files), 0, bytearray()
    for size, path in files:
        left = size
        with path.open("rb") as file:
            while left:
                data = file.read(min(CHUNK, left))
                if not data:
                    raise InvalidRequest(
                        f"{path} is shorter than it was.", field="snapshot", value=str(path), next="Run the job again."
                    )
                left -= len(data)
                batch += data
                if len(batch) >= CHUNK:
                    yield bytes(batch)
                    done += len(batch)
                    batch.clear()
                    if progress is not None:
                        progress(done, total)
    yield bytes(batch)
    if progress is not None:
        progress(total, total)


def cut_short(name: str) -> Unreachable:
    """Return the error of a transfer that ended too soon."""
    return Unreachable(
        f"{name} ended a transfer before it was whole.", field="name", value=name, next="Try again: what came is kept."
    )
