"""Copies of files from a machine on this computer: written beside, compared by size and sha256, named when whole."""

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
MIN_MEASURED = 1_000_000  # bytes: the rate of less says more of the connection's delay than of its width
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
    """What a directory on a machine holds. `skipped` has what cannot be copied, and why; `changed` what was written."""

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
    """The bytes that travelled, and the files that changed meanwhile: what was here of those before is still here."""

    bytes: int
    torn: tuple[str, ...]


@dataclass(slots=True)
class Meter:
    """What travelled, and how many seconds that took."""

    bytes: int = 0
    seconds: float = 0.0

    @property
    def bytes_per_s(self) -> float | None:
        """How fast that was; None where it was too little to tell."""
        return self.bytes / self.seconds if self.bytes >= MIN_MEASURED and self.seconds > 0 else None


_METER: ContextVar[Meter | None] = ContextVar("meter", default=None)


@contextlib.contextmanager
def metered() -> Iterator[Meter]:
    """Measure the copies that this thread makes meanwhile."""
    meter = Meter()
    before = _METER.set(meter)
    try:
        yield meter
    finally:
        _METER.reset(before)


def read_manifest(answer: Mapping[str, Any]) -> Manifest:
    """Return what a machine said of a directory; raise ValueError for what no directory can be."""
    try:
        files = tuple(
            CopiedFile(_below(one["path"]), int(one["size"]), int(one["mode"]) & 0o777, str(one["sha256"]))
            for one in answer["files"]
        )
        links = tuple((_below(path), _link(path, target)) for path, target in answer["links"])
        skipped = tuple((str(path), str(why)) for path, why in answer["skipped"])
        changed = tuple(str(one["path"]) for one in answer["files"] if one["changed"])
        return Manifest(files, links, tuple(map(_below, answer["directories"])), skipped, changed)
    except (KeyError, TypeError) as error:
        raise ValueError(str(error)) from None


def _below(path: Any) -> str:
    if not isinstance(path, str) or "\0" in path or any(part in ("", ".", "..") for part in path.split("/")):
        raise ValueError(f"{path!r} is not a path below a directory")
    return path


def _link(path: str, target: Any) -> str:
    if not isinstance(target, str) or target.startswith("/"):
        raise ValueError(f"{path!r} is a link to {target!r}")
    _below(os.path.normpath(PurePosixPath(path).parent / target))
    return target


def hash_file(path: Path) -> str:
    """Return the sha256 of a file's content, empty where it cannot be read."""
    seen = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while data := file.read(CHUNK):
                seen.update(data)
    except OSError:
        return ""
    return seen.hexdigest()


def has(path: Path, file: CopiedFile) -> bool:
    """Tell whether a path here is that very file."""
    try:
        if path.is_symlink() or not path.is_file() or path.stat().st_size != file.size:
            return False
    except OSError:
        return False
    return hash_file(path) == file.sha256


@contextlib.contextmanager
def explained(into: Path) -> Iterator[None]:
    """Turn what this computer's disk refuses into InvalidRequest."""
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


def place(root: Path, path: str) -> Path:
    """Return where a file of a manifest goes, its directory made. Raises InvalidRequest where a link leads away."""
    where = root / path
    where.parent.mkdir(parents=True, exist_ok=True)
    if not Path(os.path.realpath(where.parent)).is_relative_to(os.path.realpath(root)):
        raise InvalidRequest(
            f"{where.parent} leads out of {root}.", field="results", value=path, next=f"Remove the link {where.parent}."
        )
    return where


def unfinished(root: Path, ending: str) -> Path:
    """Return a name for what grows in a directory here; `sweep` knows whose it was."""
    return root / f".cloudgpu-{os.getpid()}-{threading.get_ident()}.{ending}"


def sweep(root: Path) -> None:
    """Remove what processes left unfinished in a directory that were killed."""
    for path in root.glob(".cloudgpu-*-*.*") if root.is_dir() else ():
        with contextlib.suppress(OSError, ValueError):
            try:
                os.kill(int(path.name.split("-")[1]), 0)
            except ProcessLookupError:
                shutil.rmtree(path) if path.is_dir() else path.unlink()


class Copying:
    """Takes the files of a request from one stream, in their order, and names each one that has its hash.

    What arrived with another content changed while it was read; it is in `torn`, and what was here before stays.
    """

    def __init__(self, root: Path, files: Sequence[CopiedFile]) -> None:
        self._root, self._part = root, unfinished(root, "part")
        self._files = iter(files)
        self._file: Any = None
        self._now: CopiedFile | None = None
        self._left = 0
        self._seen = hashlib.sha256()
        self.torn: list[str] = []
        self.bytes = 0
        self._began = time.monotonic()
        sweep(root)
        self._next()

    def write(self, data: memoryview) -> None:
        """Take the next bytes. Raises InvalidRequest where they cannot be written here."""
        self.bytes += len(data)
        with explained(self._root):
            while data:
                if self._now is None:
                    raise ValueError("more than was asked for")
                part, data = data[: self._left], data[self._left :]
                self._file.write(part)
                self._seen.update(part)
                self._left -= len(part)
                if not self._left:
                    self._finish(self._now)
                    self._next()

    def close(self) -> bool:
        """Remove what is unfinished; return whether everything came."""
        meter = _METER.get()
        if meter is not None:
            meter.bytes, meter.seconds = meter.bytes + self.bytes, meter.seconds + time.monotonic() - self._began
        if self._file is not None:
            with contextlib.suppress(OSError):  # what a full disk did not take
                self._file.close()
            with contextlib.suppress(OSError):
                self._part.unlink()
            self._file = None
        return self._now is None

    def _finish(self, file: CopiedFile) -> None:
        self._file.close()
        self._file = None
        if self._seen.hexdigest() == file.sha256:
            self._part.chmod(file.mode | 0o600)
            self._part.replace(place(self._root, file.path))
        else:
            self.torn.append(file.path)
            self._part.unlink()

    def _next(self) -> None:
        """Open the next file that has any bytes; those that have none are whole at once."""
        with explained(self._root):
            for file in self._files:
                self._root.mkdir(parents=True, exist_ok=True)
                self._file, self._now = self._part.open("wb"), file
                self._left, self._seen = file.size, hashlib.sha256()
                if self._left:
                    return
                self._finish(file)
        self._now = None


def make_links(root: Path, manifest: Manifest) -> None:
    """Make the directories and links of a manifest; what stands in a link's place as a file or directory stays."""
    with explained(root):
        for path in manifest.directories:
            place(root, path).mkdir(exist_ok=True)
        for path, target in manifest.links:
            where = place(root, path)
            if where.is_symlink():
                where.unlink()
            if not where.exists():
                where.symlink_to(target)


def local_files(root: Path) -> tuple[list[tuple[CopiedFile, Path]], list[tuple[str, str]]]:
    """Return the files below a directory of ours, and its links; what is half-written by us is left out."""
    files, links = [], []
    for base, directories, names in os.walk(root):
        for name in (*names, *(one for one in directories if (Path(base) / one).is_symlink())):
            path = Path(base) / name
            below = path.relative_to(root).as_posix()
            if name.startswith(".cloudgpu-"):
                continue
            if path.is_symlink():
                links.append((below, str(path.readlink())))
            elif path.is_file():
                facts = path.stat()
                files.append((CopiedFile(below, facts.st_size, facts.st_mode & 0o777, hash_file(path)), path))
    return files, links


def contents(files: Sequence[tuple[int, Path]], progress: Progress | None) -> Iterator[bytes]:
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
