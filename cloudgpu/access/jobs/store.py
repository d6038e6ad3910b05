"""Keeps the files of snapshots by content: `<store>/<sha256>` (0600), each written beside and renamed.

Who adds to a store holds its lock with others, who prunes it holds the lock alone. Files are copied, never linked: a
user may change the own ones at any moment. Nothing is synced to the disk, as rsync does not: after a power cut a file
may be short, and then it does not count.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import itertools
import json
import os
import secrets
import stat
from collections.abc import Callable, Iterator, Mapping
from io import FileIO
from pathlib import Path
from queue import SimpleQueue

from cloudgpu.access import files
from cloudgpu.access.jobs.survey import Found
from cloudgpu.core.values.printable import printable
from cloudgpu.errors import InvalidRequest
from cloudgpu.parallel import Pool, go_on

SMALL = 1 << 20  # bytes of a file that is read in one piece
CHUNK = 4 << 20
TRIES = 5
TRUSTED_AFTER_NS = 2_000_000_000  # some file systems count time in steps of 2 s
MAX_MEMORIES = 20
LOCK, MEMORY = ".lock", ".seen-"
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # a pipe that took the file's place does not wait
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
Seen = tuple[int, int, int, int]  # size, mtime_ns, ctime_ns, inode


class Changing(Exception):
    """A file changed while it was read."""


def seen_of(found: Found) -> Seen:
    """Return what tells whether a file is still the one that was read."""
    return found.size, found.mtime_ns, found.ctime_ns, found.inode


def _seen(descriptor: int) -> Seen:
    now = os.fstat(descriptor)
    if not stat.S_ISREG(now.st_mode):
        raise Changing
    return now.st_size, now.st_mtime_ns, now.st_ctime_ns, now.st_ino


@contextlib.contextmanager
def held(store: Path, how: int) -> Iterator[bool]:
    """Hold the store's lock, `fcntl.LOCK_SH` or `fcntl.LOCK_EX`; with LOCK_NB yield False where others hold it."""
    with files.explained(store):
        for directory in (*reversed(store.parents), store):
            if not directory.is_dir():
                files.private_directory(directory)
        descriptor = os.open(store / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, how)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)


def contents(store: Path) -> dict[str, int]:
    """Return the size of each file that is kept, by its hash."""
    with files.explained(store), os.scandir(store) as entries:
        return {entry.name: entry.stat(follow_symlinks=False).st_size for entry in entries if is_hash(entry.name)}


def is_hash(name: str) -> bool:
    """Say whether this is a SHA-256 in hex."""
    return len(name) == 64 and not set(name) - set("0123456789abcdef")  # noqa: PLR2004  (digits of SHA-256)


class Keeper:
    """Copies files of one directory into a store. Several threads may use it at once.

    An OSError of it is about the store; what is wrong with a user's file is InvalidRequest.
    """

    def __init__(self, root: str, store: Path, copied: Callable[[int], None]) -> None:
        self._root, self._store, self._copied = root, str(store), copied
        self._there = contents(store)
        self._sizes = set(self._there.values())
        self._token, self._numbers = secrets.token_hex(4), itertools.count()

    def has(self, sha256: str, size: int) -> bool:
        """Say whether the store has this content; a shorter file is of a crash, and is written anew."""
        return self._there.get(sha256) == size

    def keep(self, found: Found) -> tuple[Seen, str] | None:
        """Read a file into the store; return what it was and its hash, or None for one that has gone meanwhile.

        Raises InvalidRequest for a file that cannot be read, or that changes each time.
        """
        before: Seen | None = seen_of(found)
        for _ in range(TRIES):
            if before is None:
                return None
            try:
                return self._once(found.path, before)
            except Changing:
                go_on()
                before = self._look(found.path)
        raise _refused(found.path, "changes while it is read", "Stop what writes to it, or leave it out of the job.")

    def _look(self, path: str) -> Seen | None:
        try:
            now = os.lstat(f"{self._root}/{path}")
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise _unreadable(path, error) from error
        return now.st_size, now.st_mtime_ns, now.st_ctime_ns, now.st_ino

    def _once(self, path: str, before: Seen) -> tuple[Seen, str]:
        descriptor = self._open(path)
        try:
            if before[0] <= SMALL:
                return before, self._small(descriptor, path, before)
            return before, self._large(descriptor, path, before)
        finally:
            os.close(descriptor)

    def _open(self, path: str) -> int:
        try:
            return os.open(f"{self._root}/{path}", _READ)
        except OSError as error:
            if error.errno in {errno.ENOENT, errno.ELOOP, errno.ENXIO, errno.ENOTDIR}:
                raise Changing from error  # it has gone, or is no file any more
            raise _unreadable(path, error) from error

    def _small(self, descriptor: int, path: str, before: Seen) -> str:
        try:
            data = os.read(descriptor, before[0] + 1)
        except OSError as error:
            raise _unreadable(path, error) from error
        if len(data) != before[0] or _seen(descriptor) != before:
            raise Changing
        sha256 = hashlib.sha256(data).hexdigest()
        if not self.has(sha256, len(data)):
            part, target = self._part()
            try:
                _write(target, data)
            finally:
                os.close(target)
            self._place(part, sha256, len(data))
        self._copied(len(data))
        return sha256

    def _large(self, descriptor: int, path: str, before: Seen) -> str:
        if before[0] in self._sizes:  # very likely it is there already: reading is cheaper than writing
            sha256 = self._hash(descriptor, path)
            if _seen(descriptor) == before and self.has(sha256, before[0]):
                self._copied(before[0])
                return sha256
            os.lseek(descriptor, 0, os.SEEK_SET)
        part, target = self._part()
        try:
            with open(part, "rb", buffering=0) as copy:  # noqa: PTH123  (`part` is text)
                sha256 = self._copy(descriptor, target, copy, path, before)
        except BaseException:
            os.unlink(part)  # noqa: PTH108  (of a disk that is full, too)
            raise
        finally:
            os.close(target)
        self._place(part, sha256, before[0])
        return sha256

    def _hash(self, descriptor: int, path: str) -> str:
        digest, buffer = hashlib.sha256(), bytearray(CHUNK)
        while count := _read_into(descriptor, buffer, path):
            go_on()
            digest.update(memoryview(buffer)[:count])
        return digest.hexdigest()

    def _copy(self, source: int, target: int, copy: FileIO, path: str, before: Seen) -> str:
        """Copy a file; a second thread hashes what has been copied, and neither waits for the other at each piece."""
        done, copied = 0, SimpleQueue[int]()
        with Pool(1) as pool:
            hashing = pool.submit(_hash_behind, copy, copied)
            try:
                while count := _move(source, target, path, at_most=before[0] - done):
                    copied.put(count)
                    done += count
                    go_on()
                    self._copied(count)
            finally:
                copied.put(0)
            sha256 = hashing.result()
        if done != before[0] or _seen(source) != before:
            self._copied(-done)
            raise Changing
        return sha256

    def _part(self) -> tuple[str, int]:
        """Return the name and descriptor of a new file beside; `remove` sweeps what a crash leaves of it."""
        part = f"{self._store}/.{self._token}-{next(self._numbers)}.part"
        return part, os.open(part, _WRITE, 0o600)

    def _place(self, part: str, sha256: str, size: int) -> None:
        os.rename(part, f"{self._store}/{sha256}")  # noqa: PTH104  (10,000 times)
        self._there[sha256] = size


def _write(target: int, data: bytes | memoryview) -> None:
    done = os.write(target, data)
    while done < len(data):
        done += os.write(target, memoryview(data)[done:])


def _hash_behind(copy: FileIO, copied: SimpleQueue[int]) -> str:
    """Return the hash of a file that grows piece by piece, until a piece of no length."""
    digest, buffer = hashlib.sha256(), memoryview(bytearray(CHUNK))
    while count := copied.get():
        if copy.readinto(buffer[:count]) != count:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        digest.update(buffer[:count])
    return digest.hexdigest()


def _move(source: int, target: int, path: str, at_most: int) -> int:
    """Copy the next piece, at most so many bytes, inside the kernel where it can: then file systems may share blocks.

    Returns 0 at the end.
    """
    size, count = min(CHUNK, at_most), 0
    if size and hasattr(os, "copy_file_range"):
        with contextlib.suppress(OSError):  # two file systems, or one that cannot; what else is wrong shows below
            count = os.copy_file_range(source, target, size)
    if size and not count:
        try:
            data = os.read(source, size)
        except OSError as error:
            raise _unreadable(path, error) from error
        _write(target, data)
        count = len(data)
    return count


def _read_into(descriptor: int, buffer: bytearray, path: str) -> int:
    try:
        return os.readv(descriptor, [buffer])
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: str, error: OSError) -> InvalidRequest:
    why = f"cannot be read: {(error.strerror or str(error)).lower()}"
    return _refused(path, why, "Correct its permissions, or leave it out of the job.")


def _refused(path: str, why: str, way_out: str) -> InvalidRequest:
    return InvalidRequest(f"{printable(path)} {why}.", field="workdir", value=path, next=way_out)


# -- what was read before


def recall(store: Path, root: str) -> dict[str, tuple[Seen, str]]:
    """Return what the files of a directory were when they were last read, by path; empty where nobody knows.

    Only files that had been left alone for 2 s are in it: a later change shows in their times.
    """
    try:
        found = json.loads(_memory(store, root).read_bytes())
        return {path: ((size, mtime, ctime, inode), sha) for path, (size, mtime, ctime, inode, sha) in found.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}  # it only saves time


def remember(
    store: Path, root: str, read: Mapping[str, tuple[Seen, str]], began_ns: int, known: Mapping[str, tuple[Seen, str]]
) -> None:
    """Write down what files of a directory were, but for those that changed less than 2 s before `began_ns`.

    `known` is what was recalled: the same facts are not written again.
    """
    if read == known:
        return
    last = began_ns - TRUSTED_AFTER_NS
    kept = {path: (*seen, sha) for path, (seen, sha) in read.items() if max(seen[1], seen[2]) < last}
    # No lock of its own, for `remove` sweeps here; whoever writes last has the newest facts.
    files.write_whole(_memory(store, root), json.dumps(kept, separators=(",", ":")).encode("ascii"))


def _memory(store: Path, root: str) -> Path:
    return store / f"{MEMORY}{hashlib.sha256(os.fsencode(root)).hexdigest()[:16]}.json"


def forget_old(store: Path) -> None:
    """Remove what was written down of all but the last directories."""
    memories = sorted(store.glob(f"{MEMORY}*.json"), key=lambda file: file.stat().st_mtime_ns, reverse=True)
    for file in memories[MAX_MEMORIES:]:
        file.unlink(missing_ok=True)
