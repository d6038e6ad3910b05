"""Files of jobs on the machine it runs on: stored by content, copied into working directories, listed, sent back.

`access/jobs/program.py` sends this text over SSH, before `remote_job.py`; the agent's interpreter runs it. Standard
library only, Python 3.8+.

`~/.cloudgpu/blobs/SHA256` holds each file once. An upload is written to a part file, hashed, synced, and then renamed.
Working directories are copies, because a command may change its files in place.
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

CHUNK_BYTES = 256 * 1024
SYNC_BYTES = 1 << 29  # so many bytes arrive before they are synced and renamed
RACY_NS = 2 * 10**9  # a file may change again within one tick of the file system's clock
ANSWER_PREFIX = b"\x1ecloudgpu "  # begins an answer: a login shell may have printed something before
DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Fault(Exception):
    """An error that is answered: a kind for the program and a sentence for a person."""

    def __init__(self, kind: str, message: str, **values: Any) -> None:
        super().__init__(message)
        self.answer = {"error": kind, "message": message, **values}


class Entry(NamedTuple):
    """One file, by its path below the root."""

    path: str
    size: int
    mode: int
    sha256: str


def fault_from(error: OSError) -> Fault:
    """Return the Fault of an OSError; a full disk has its own kind."""
    file_text = f" ({error.filename})" if error.filename else ""
    return Fault("disk_full" if error.errno in DISK_FULL else "failed", f"{error.strerror or error}{file_text}")


def write_answer(value: dict[str, Any]) -> None:
    """Write the header of an answer: one line of JSON."""
    sys.stdout.buffer.write(ANSWER_PREFIX + json.dumps(value).encode() + b"\n")
    sys.stdout.buffer.flush()


# -- files and locks


def create(path: Path, flags: int = os.O_RDWR) -> int:
    """Open a file, created with mode 0600; started programs do not inherit it."""
    return os.open(str(path), flags | os.O_CREAT | os.O_CLOEXEC, 0o600)


def save(path: Path, value: Any) -> None:
    """Replace a JSON file atomically, synced to disk."""
    new_file = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with os.fdopen(create(new_file, os.O_WRONLY | os.O_TRUNC), "w") as file:
            json.dump(value, file)
            file.flush()
            os.fsync(file.fileno())
        new_file.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            new_file.unlink()
        raise
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Sync a directory, so that its names survive a power cut."""
    handle = os.open(str(path), os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def load(path: Path, limit: int = 1 << 28) -> Any:
    """Return a file's JSON; None if it is missing, truncated or larger than `limit` bytes."""
    try:
        with path.open("rb") as file:
            text = file.read(limit + 1)
        return json.loads(text) if len(text) <= limit else None
    except (OSError, ValueError, RecursionError):
        return None


def remove(path: Path) -> None:
    """Remove a file if it exists."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()


def take_lock(path: Path, operation: int = fcntl.LOCK_EX, wait: float = 0.3) -> int:
    """Return a descriptor that holds the lock, -1 if another process holds it for longer than `wait` seconds."""
    handle, deadline = create(path), time.monotonic() + wait
    while True:
        try:
            fcntl.flock(handle, operation | fcntl.LOCK_NB)
            return handle  # noqa: TRY300
        except BlockingIOError:
            if time.monotonic() > deadline:
                os.close(handle)
                return -1
        time.sleep(0.01)


def is_locked(path: Path) -> bool:
    """Tell whether a process holds the lock exclusively."""
    if not path.exists():
        return False
    handle = take_lock(path, fcntl.LOCK_SH, 0.0)
    if handle >= 0:
        os.close(handle)
    return handle < 0


@contextlib.contextmanager
def locked(path: Path, operation: int = fcntl.LOCK_EX) -> Iterator[None]:
    """Hold a lock, waiting for it."""
    handle = create(path)
    try:
        fcntl.flock(handle, operation)
        yield
    finally:
        os.close(handle)


def safe_path(path: str) -> str:
    """Return a relative path that stays below its root. Raises Fault."""
    parts = path.split("/")
    if not path or path.startswith("/") or any(part in ("", ".", "..") for part in parts) or "\0" in path:
        raise Fault("invalid", f"{path!r} is not a path below the directory")
    return path


# -- content


class Blobs:
    """Files stored by content, shared by all jobs of this user."""

    def __init__(self, home: Path) -> None:
        self.directory = home / "blobs"
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)

    def path(self, digest: str) -> Path:
        """Return the path of a file by its sha256. Raises Fault for anything else."""
        if len(digest) != 64 or set(digest) - set("0123456789abcdef"):  # noqa: PLR2004
            raise Fault("invalid", f"{digest[:80]!r} is not a sha256")
        return self.directory / digest

    def missing(self, files: Iterable[tuple[str, int]]) -> list[str]:
        """Return the hashes of files that are missing or have another size."""
        missing_hashes = []
        for digest, size in dict(files).items():
            path = self.path(digest)
            try:
                if path.stat().st_size == size:
                    continue
            except OSError:
                pass
            missing_hashes.append(digest)
        return missing_hashes

    def receive(self, stream: BinaryIO, files: list[tuple[str, int]]) -> int:
        """Receive these files from a stream, one after the other; return their bytes.

        Raises Fault; the complete files are retained, so that the next try sends less.
        """
        part_prefix, total_bytes, unsynced_bytes = self.directory / f".in-{os.getpid()}", 0, 0
        parts: list[tuple[Path, Path]] = []
        self.remove_part_files()
        try:
            for digest, size in files:
                path = part_prefix.with_name(f"{part_prefix.name}-{len(parts)}")
                parts.append((path, self.path(digest)))
                self.receive_file(stream, path, digest, size)
                total_bytes, unsynced_bytes = total_bytes + size, unsynced_bytes + size
                if unsynced_bytes >= SYNC_BYTES:
                    self.rename_parts(parts)
                    unsynced_bytes = 0
        except BaseException as error:
            if parts:
                remove(parts.pop()[0])
            self.rename_parts(parts)
            if isinstance(error, OSError):
                raise fault_from(error) from None
            raise
        self.rename_parts(parts)
        return total_bytes

    @staticmethod
    def receive_file(stream: BinaryIO, path: Path, digest: str, size: int) -> None:
        """Receive one file into its part file. Raises Fault, OSError."""
        hasher, bytes_left = hashlib.sha256(), size
        with os.fdopen(create(path, os.O_WRONLY | os.O_TRUNC), "wb", 0) as file:
            while bytes_left:
                data = stream.read(min(CHUNK_BYTES, bytes_left))
                if not data:
                    raise Fault("cut", "the upload was cut short")
                hasher.update(data)
                bytes_left -= len(data)
                while data:
                    data = data[file.write(data) :]
        if hasher.hexdigest() != digest:
            raise Fault("damaged", "a file has another content than it was sent with")

    def rename_parts(self, parts: list[tuple[Path, Path]]) -> None:
        """Sync the part files at once, and rename them."""
        if not parts:
            return
        sync_file_system(self.directory)
        while parts:
            path, final_path = parts[0]
            path.replace(final_path)
            del parts[0]
        sync_directory(self.directory)

    def remove_part_files(self) -> None:
        """Remove part files of killed processes."""
        for path in self.directory.glob(".in-*"):
            with contextlib.suppress(OSError, ValueError):
                pid = int(path.name.split("-")[1])
                try:
                    os.kill(pid, 0)
                except ProcessLookupError:
                    path.unlink()

    def clean(self, digests: Iterable[str], needed: Iterable[str]) -> int:
        """Remove the files with these `digests` that are not in `needed`; return the bytes freed."""
        freed = 0
        for digest in set(digests) - set(needed):
            with contextlib.suppress(OSError):
                path = self.path(digest)
                size = path.stat().st_size
                path.unlink()
                freed += size
        return freed


def sync_file_system(path: Path) -> None:
    """Sync the file system of `path`: one call for thousands of files."""
    handle = os.open(str(path), os.O_RDONLY)
    try:
        if ctypes.CDLL(None).syncfs(handle) != 0:
            os.sync()
    except (AttributeError, OSError):  # macOS has none
        os.sync()
    finally:
        os.close(handle)


def build_tree(blobs: Blobs, root: Path, files: list[list[Any]], links: list[list[str]] = ()) -> None:  # type: ignore[assignment]
    """Copy files below `root` and make links there. Raises Fault, OSError."""
    created = set()
    for fields in files:
        entry = Entry(*fields)
        path = root / safe_path(entry.path)
        if path.parent not in created:
            path.parent.mkdir(parents=True, exist_ok=True)
            created.add(path.parent)
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


# -- results


class TreeListing:
    """Lists a directory: files with sizes and hashes, links that stay inside, and what is skipped, with the reason.

    `unreadable` is what this user may not read, with the error. `cache` is a file with known hashes.
    """

    def __init__(self, root: Path, cache: Path) -> None:
        self.root, self.cache = root, cache
        cached = load(cache)
        # by path: [inode, size, mtime_ns, sha256]
        self.cached_hashes: dict[str, list[Any]] = cached if isinstance(cached, dict) else {}
        self.files: list[dict[str, Any]] = []
        self.links: list[list[str]] = []
        self.skipped: list[list[str]] = []
        self.unreadable: list[list[str]] = []
        self.directories: list[str] = []

    def read(self, names: Iterable[str]) -> dict[str, Any]:
        """Return the manifest of these entries of the root."""
        new_hashes: dict[str, list[Any]] = {}
        for name in sorted(names):
            self.walk(safe_path(name), new_hashes)
        with contextlib.suppress(OSError):  # without the cache files are hashed again
            save(self.cache, {**self.cached_hashes, **new_hashes})
        kinds = ("files", "links", "skipped", "unreadable", "directories")
        return {kind: getattr(self, kind) for kind in kinds}

    def walk(self, name: str, new_hashes: dict[str, list[Any]]) -> None:
        """List one entry, and all below it."""
        path = self.root / name
        try:
            status = path.lstat()
            if stat.S_ISDIR(status.st_mode):
                names = sorted(os.listdir(str(path)))  # noqa: PTH208
                self.directories += [name]
                for entry in names:
                    self.walk(f"{name}/{entry}", new_hashes)
            elif stat.S_ISLNK(status.st_mode):
                self.list_link(path, name)
            elif stat.S_ISREG(status.st_mode):
                self.files.append(self.list_file(path, name, status, new_hashes))
            else:
                self.skipped.append([name, "it is neither file nor directory"])
        except FileNotFoundError:
            return  # renamed or removed meanwhile
        except OSError as error:
            self.unreadable.append([name, error.strerror or str(error)])

    def list_link(self, path: Path, name: str) -> None:
        """List a link as a relative one if it leads to an entry inside; else skip it."""
        target, root = os.path.realpath(str(path)), os.path.realpath(str(self.root))
        if not target.startswith(root + os.sep):
            self.skipped.append([name, f"it is a link out of the directory, to {os.readlink(str(path))}"])
        elif os.path.exists(target):  # noqa: PTH110
            self.links.append([name, os.path.relpath(target, os.path.realpath(str(path.parent)))])
        else:
            self.skipped.append([name, "it is a broken link"])

    def list_file(
        self, path: Path, name: str, status: os.stat_result, new_hashes: dict[str, list[Any]]
    ) -> dict[str, Any]:
        """Return a file with its hash: the cached one if size and time are the same."""
        fingerprint = [status.st_ino, status.st_size, status.st_mtime_ns]
        cached = self.cached_hashes.get(name)
        changed = False
        if isinstance(cached, list) and cached[:3] == fingerprint:
            digest = cached[3]
        else:
            digest, status_after = hash_file(path)
            changed = [status_after.st_ino, status_after.st_size, status_after.st_mtime_ns] != fingerprint
            status = status_after
        if not changed and abs(time.time_ns() - status.st_mtime_ns) > RACY_NS:
            new_hashes[name] = [*fingerprint, digest]
        return {
            "path": name,
            "size": status.st_size,
            "mode": stat.S_IMODE(status.st_mode),
            "sha256": digest,
            "mtime": status.st_mtime,
            "changed": changed,
        }


def hash_file(path: Path) -> tuple[str, os.stat_result]:
    """Return a file's sha256, and its status after reading."""
    hasher = hashlib.sha256()
    with os.fdopen(os.open(str(path), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW), "rb", 0) as file:
        while True:
            data = file.read(CHUNK_BYTES)
            if not data:
                return hasher.hexdigest(), os.fstat(file.fileno())
            hasher.update(data)


def send_files(root: Path, files: list[list[Any]], stream: BinaryIO) -> None:
    """Write each file (name, size) to a stream; the receiver compares its hash.

    A missing or shorter file, or one outside of the root, is padded with zeros: its hash will differ.
    """
    real_root = os.path.realpath(str(root))
    for name, size in files:
        bytes_left = size
        with contextlib.suppress(OSError):
            path = os.path.realpath(str(root / safe_path(name)))
            if path.startswith(real_root + os.sep):
                with open(path, "rb", 0) as file:  # noqa: PTH123
                    while bytes_left:
                        data = file.read(min(CHUNK_BYTES, bytes_left))
                        if not data:
                            break
                        stream.write(data)
                        bytes_left -= len(data)
        while bytes_left:
            bytes_left -= stream.write(bytes(min(CHUNK_BYTES, bytes_left)))
    stream.flush()


def size_of(path: Path) -> int:
    """Return a file's size, 0 where there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def names_in(root: Path) -> list[str]:
    """Return the names in a directory; none if it does not exist."""
    try:
        return os.listdir(str(root))  # noqa: PTH208
    except FileNotFoundError:
        return []


def size_below(root: Path, limit: int = 100_000) -> int:
    """Return the bytes of the files below a directory; counting stops after `limit` files."""
    total = count = 0
    for base, _, names in os.walk(str(root)):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(base, name)).st_size  # noqa: PTH118
        count += len(names)
        if count > limit:
            break
    return total


def free_bytes(path: Path) -> int | None:
    """Return the free bytes of the disk that a path is on, or will be."""
    with contextlib.suppress(OSError):
        usage = os.statvfs(str(path if path.exists() else Path.home()))
        return usage.f_bavail * usage.f_frsize
    return None
