"""Files of jobs on the machine it runs on: kept by content, built into trees, listed with hashes, sent back, removed.

This file's text is sent over SSH before that of `remote_job.py` and run there by the agent's interpreter
(`access/jobs/program.py` does it). Standard library only, Python 3.8+.

`~/.cloudgpu/blobs/SHA256` holds each file once. A name there is whole and on the disk: what arrives is written beside,
hashed, synchronised and only then renamed. Trees are copies, because a command may change its files in place.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import hashlib
import json
import os
import shutil
import stat
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

CHUNK = 256 * 1024
SYNC_BYTES = 1 << 29  # so much arrives before it is synchronised and named
RACY_NS = 2 * 10**9  # a file that changed a moment ago may change again within the same tick of its clock
ANSWER_PREFIX = b"\x1ecloudgpu "  # what an answer begins with: a login shell may have printed something before it
DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Fault(Exception):
    """Something that the caller is told: a kind for the program and a sentence for a person."""

    def __init__(self, kind: str, message: str, **more: Any) -> None:
        super().__init__(message)
        self.answer = {"error": kind, "message": message, **more}


class Entry(NamedTuple):
    """One file of a tree, by its path below the root."""

    path: str
    size: int
    mode: int
    sha256: str


def fault_of(error: OSError) -> Fault:
    """Return the fault for what the system refused; a full disk has a kind of its own."""
    where = f" ({error.filename})" if error.filename else ""
    return Fault("disk_full" if error.errno in DISK_FULL else "failed", f"{error.strerror or error}{where}")


def answer(value: dict[str, Any]) -> None:
    """Write the head of an answer: one line of JSON."""
    sys.stdout.buffer.write(ANSWER_PREFIX + json.dumps(value).encode() + b"\n")
    sys.stdout.buffer.flush()


# -- files and locks


def create(path: Path, flags: int = os.O_RDWR) -> int:
    """Open a file that only we may read; no program that is started inherits it."""
    return os.open(str(path), flags | os.O_CREAT | os.O_CLOEXEC, 0o600)


def save(path: Path, value: Any) -> None:
    """Write a JSON file whole and on the disk: a reader, or a crash, finds the old or the new."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with os.fdopen(create(fresh, os.O_WRONLY | os.O_TRUNC), "w") as file:
            json.dump(value, file)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            fresh.unlink()
        raise
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Have the names in a directory outlive a loss of power."""
    handle = os.open(str(path), os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def load(path: Path, limit: int = 1 << 28) -> Any:
    """Return a file's JSON, None where there is none, or it is cut short or too large."""
    try:
        with path.open("rb") as file:
            text = file.read(limit + 1)
        return json.loads(text) if len(text) <= limit else None
    except (OSError, ValueError, RecursionError):
        return None


def remove(path: Path) -> None:
    """Remove a file that may be gone."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()


def take_lock(path: Path, how: int = fcntl.LOCK_EX, wait: float = 0.3) -> int:
    """Return a descriptor that holds the lock, -1 where another has it. Who only looks holds it for a moment."""
    handle, end = create(path), time.monotonic() + wait
    while True:
        try:
            fcntl.flock(handle, how | fcntl.LOCK_NB)
            return handle  # noqa: TRY300
        except BlockingIOError:
            if time.monotonic() > end:
                os.close(handle)
                return -1
        time.sleep(0.01)


def is_locked(path: Path) -> bool:
    """Tell whether a living process holds the lock for itself."""
    if not path.exists():
        return False
    handle = take_lock(path, fcntl.LOCK_SH, 0.0)
    if handle >= 0:
        os.close(handle)
    return handle < 0


@contextlib.contextmanager
def locked(path: Path, how: int = fcntl.LOCK_EX) -> Iterator[None]:
    """Hold a lock that is never held for long."""
    handle = create(path)
    try:
        fcntl.flock(handle, how)
        yield
    finally:
        os.close(handle)


def safe_path(path: str) -> str:
    """Return a relative path that stays below its root. Raises Fault."""
    parts = path.split("/")
    if not path or path.startswith("/") or any(part in ("", ".", "..") for part in parts) or "\0" in path:
        raise Fault("invalid", f"{path!r} is no path below the directory")
    return path


# -- content


class Blobs:
    """Files by their content, shared by all jobs of this user."""

    def __init__(self, home: Path) -> None:
        self.base = home / "blobs"
        self.base.mkdir(mode=0o700, parents=True, exist_ok=True)

    def path(self, digest: str) -> Path:
        """Return where the file with this content is. Raises Fault for what is no sha256."""
        if len(digest) != 64 or set(digest) - set("0123456789abcdef"):  # noqa: PLR2004
            raise Fault("invalid", f"{digest[:80]!r} is no sha256")
        return self.base / digest

    def missing(self, sizes: Iterable[tuple[str, int]]) -> list[str]:
        """Return those that are not here, or are not as large as they should be."""
        gone = []
        for digest, size in dict(sizes).items():
            path = self.path(digest)
            try:
                if path.stat().st_size == size:
                    continue
            except OSError:
                pass
            gone.append(digest)
        return gone

    def receive(self, stream: BinaryIO, files: list[tuple[str, int]]) -> int:
        """Take these files from a stream, one after the other; return their bytes.

        Raises Fault; the files that were whole by then are kept, so that the next try sends less.
        """
        part, total, since = self.base / f".in-{os.getpid()}", 0, 0
        waiting: list[tuple[Path, Path]] = []
        self.sweep()
        try:
            for digest, size in files:
                path = part.with_name(f"{part.name}-{len(waiting)}")
                waiting.append((path, self.path(digest)))
                self.one(stream, path, digest, size)
                total, since = total + size, since + size
                if since >= SYNC_BYTES:
                    self.name(waiting)
                    since = 0
        except BaseException as error:
            if waiting:
                remove(waiting.pop()[0])
            self.name(waiting)
            if isinstance(error, OSError):
                raise fault_of(error) from None
            raise
        self.name(waiting)
        return total

    @staticmethod
    def one(stream: BinaryIO, path: Path, digest: str, size: int) -> None:
        """Write one file beside its place. Raises Fault, OSError."""
        seen, left = hashlib.sha256(), size
        with os.fdopen(create(path, os.O_WRONLY | os.O_TRUNC), "wb", 0) as file:
            while left:
                data = stream.read(min(CHUNK, left))
                if not data:
                    raise Fault("cut", "the upload was cut short")
                seen.update(data)
                left -= len(data)
                while data:
                    data = data[file.write(data) :]
        if seen.hexdigest() != digest:
            raise Fault("damaged", "a file arrived with another content than it was sent with")

    def name(self, waiting: list[tuple[Path, Path]]) -> None:
        """Synchronise all that was written, once, and give it its names."""
        if not waiting:
            return
        sync(self.base)
        while waiting:
            path, final = waiting[0]
            path.replace(final)
            del waiting[0]
        sync_directory(self.base)

    def sweep(self) -> None:
        """Remove what uploads left behind that were killed."""
        for path in self.base.glob(".in-*"):
            with contextlib.suppress(OSError, ValueError):
                pid = int(path.name.split("-")[1])
                try:
                    os.kill(pid, 0)
                except ProcessLookupError:
                    path.unlink()

    def clean(self, mine: Iterable[str], needed: Iterable[str]) -> int:
        """Remove those of mine that nobody else needs; return their bytes."""
        freed = 0
        for digest in set(mine) - set(needed):
            with contextlib.suppress(OSError):
                path = self.path(digest)
                size = path.stat().st_size
                path.unlink()
                freed += size
        return freed


def sync(path: Path) -> None:
    """Have all that was written to this file system reach its disk: once for thousands of files."""
    handle = os.open(str(path), os.O_RDONLY)
    try:
        if ctypes.CDLL(None).syncfs(handle) != 0:
            os.sync()
    except (AttributeError, OSError):  # macOS has none
        os.sync()
    finally:
        os.close(handle)


def build(blobs: Blobs, root: Path, files: list[list[Any]], links: list[list[str]] = ()) -> None:  # type: ignore[assignment]
    """Copy files into a tree and make its links. Raises Fault, OSError."""
    made = set()
    for one in files:
        entry = Entry(*one)
        path = root / safe_path(entry.path)
        if path.parent not in made:
            path.parent.mkdir(parents=True, exist_ok=True)
            made.add(path.parent)
        source = blobs.path(entry.sha256)
        if source.stat().st_size != entry.size:
            raise Fault("failed", f"{source} is not as large as it was")
        remove(path)
        shutil.copyfile(str(source), str(path))
        path.chmod(entry.mode & 0o777 | 0o600)
    for name, target in links:
        path = root / safe_path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        remove(path)
        path.symlink_to(target)


# -- what came out


class Tree:
    """What lies below a directory: files with sizes and hashes, links that stay inside, and what cannot be taken."""

    def __init__(self, root: Path, cache: Path) -> None:
        self.root, self.cache = root, cache
        known = load(cache)
        self.known: dict[str, list[Any]] = known if isinstance(known, dict) else {}
        self.files: list[dict[str, Any]] = []
        self.links: list[list[str]] = []
        self.skipped: list[list[str]] = []
        self.directories: list[str] = []

    def read(self, names: Iterable[str]) -> dict[str, Any]:
        """Return the manifest of these entries of the root."""
        seen: dict[str, list[Any]] = {}
        for name in sorted(names):
            self.walk(safe_path(name), seen)
        with contextlib.suppress(OSError):  # a full disk costs hashing again
            save(self.cache, {**self.known, **seen})
        return {"files": self.files, "links": self.links, "skipped": self.skipped, "directories": self.directories}

    def walk(self, name: str, seen: dict[str, list[Any]]) -> None:
        """Take one entry, and all below it."""
        path = self.root / name
        try:
            facts = path.lstat()
            if stat.S_ISDIR(facts.st_mode):
                below = sorted(os.listdir(str(path)))  # noqa: PTH208
                self.directories += [name]
                for one in below:
                    self.walk(f"{name}/{one}", seen)
            elif stat.S_ISLNK(facts.st_mode):
                self.link(path, name)
            elif stat.S_ISREG(facts.st_mode):
                self.files.append(self.file(path, name, facts, seen))
            else:
                self.skipped.append([name, "it is neither file nor directory"])
        except FileNotFoundError:
            return  # renamed or removed meanwhile
        except OSError as error:
            self.skipped.append([name, error.strerror or str(error)])

    def link(self, path: Path, name: str) -> None:
        """Take a link that leads to something inside, as one that is relative; name any other."""
        target, root = os.path.realpath(str(path)), os.path.realpath(str(self.root))
        if not target.startswith(root + os.sep):
            self.skipped.append([name, f"it is a link out of the directory, to {os.readlink(str(path))}"])
        elif os.path.exists(target):  # noqa: PTH110
            self.links.append([name, os.path.relpath(target, os.path.realpath(str(path.parent)))])
        else:
            self.skipped.append([name, "it is a link to something that is not there"])

    def file(self, path: Path, name: str, facts: os.stat_result, seen: dict[str, list[Any]]) -> dict[str, Any]:
        """Return a file with its hash, the known one where neither size nor time has changed."""
        key = [facts.st_ino, facts.st_size, facts.st_mtime_ns]
        known = self.known.get(name)
        changed = False
        if isinstance(known, list) and known[:3] == key:
            digest = known[3]
        else:
            digest, after = hashed(path)
            changed = [after.st_ino, after.st_size, after.st_mtime_ns] != key
            facts = after
        if not changed and abs(time.time_ns() - facts.st_mtime_ns) > RACY_NS:
            seen[name] = [*key, digest]
        mode = stat.S_IMODE(facts.st_mode)
        return {
            "path": name,
            "size": facts.st_size,
            "mode": mode,
            "sha256": digest,
            "mtime": facts.st_mtime,
            "changed": changed,
        }


def hashed(path: Path) -> tuple[str, os.stat_result]:
    """Return a file's sha256 and what it was when its end was read."""
    seen = hashlib.sha256()
    with os.fdopen(os.open(str(path), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW), "rb", 0) as file:
        while True:
            data = file.read(CHUNK)
            if not data:
                return seen.hexdigest(), os.fstat(file.fileno())
            seen.update(data)


def send(root: Path, files: list[list[Any]], stream: BinaryIO) -> None:
    """Write each file, exactly as long as it was announced; whoever takes it compares its hash.

    A file that is gone, shorter or leads out of the root is filled with zeros: it fails that comparison.
    """
    real = os.path.realpath(str(root))
    for name, size in files:
        left = size
        with contextlib.suppress(OSError):
            path = os.path.realpath(str(root / safe_path(name)))
            if path.startswith(real + os.sep):
                with open(path, "rb", 0) as file:  # noqa: PTH123
                    while left:
                        data = file.read(min(CHUNK, left))
                        if not data:
                            break
                        stream.write(data)
                        left -= len(data)
        while left:
            left -= stream.write(bytes(min(CHUNK, left)))
    stream.flush()


def size_below(root: Path, limit: int = 100_000) -> int:
    """Return the bytes of all files below a directory, of the first hundred thousand at most."""
    total = seen = 0
    for base, _, names in os.walk(str(root)):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(base, name)).st_size  # noqa: PTH118
        seen += len(names)
        if seen > limit:
            break
    return total
