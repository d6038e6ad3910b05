"""Stores the files of job snapshots by content: `<store>/<sha256>` (0600), each written to a part file and renamed.

Adding takes the store's lock shared, pruning exclusively. Files are copied, never linked: users may change theirs at
any moment. Nothing is synced to disk: after a power cut a file may be short, and is then written again. One that has
another content is refused by the machine that it is sent to, and deleted (`remote._delete_damaged`).
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
from typing import NamedTuple

from cloudgpu.access import files
from cloudgpu.access.jobs.survey import FileEntry
from cloudgpu.core.values.printable import printable
from cloudgpu.errors import InvalidRequest
from cloudgpu.parallel import Pool, stop_if_abandoned

SMALL_FILE_BYTES = 1 << 20  # bytes up to which a file is read in one piece
CHUNK_BYTES = 4 << 20
TRIES = 5
TRUSTED_AFTER_NS = 2_000_000_000  # some file systems have times in steps of 2 s
MAX_STAMP_FILES = 20
LOCK, STAMPS_PREFIX = ".lock", ".seen-"
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # not to wait for a pipe that has replaced the file
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


class FileStamp(NamedTuple):
    """What a file system says of a file: unchanged, if the file is. `size` is in bytes."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int


Stamps = Mapping[str, tuple[FileStamp, str]]  # stamp and SHA-256, by path


class FileChanged(Exception):
    """A file changed while it was read."""


def stamp_of(entry: FileEntry) -> FileStamp:
    """Return the stamp of an entry: if it is unchanged, so is the file."""
    return FileStamp(entry.size, entry.mtime_ns, entry.ctime_ns, entry.inode)


def _stamp_of_open(descriptor: int) -> FileStamp:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise FileChanged
    return FileStamp(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)


@contextlib.contextmanager
def store_lock(store: Path, operation: int) -> Iterator[bool]:
    """Hold the store's lock, `fcntl.LOCK_SH` or `fcntl.LOCK_EX`; with LOCK_NB yield False where others hold it."""
    with files.explain_os_errors(store):
        for directory in (*reversed(store.parents), store):
            if not directory.is_dir():
                files.make_private_directory(directory)
        descriptor = os.open(store / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, operation)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)


def stored_sizes(store: Path) -> dict[str, int]:
    """Return the size in bytes of each stored file, by its SHA-256."""
    with files.explain_os_errors(store), os.scandir(store) as entries:
        return {entry.name: entry.stat(follow_symlinks=False).st_size for entry in entries if is_hash(entry.name)}


def is_hash(name: str) -> bool:
    """Tell whether this is a SHA-256 in hex."""
    return len(name) == 64 and not set(name) - set("0123456789abcdef")  # noqa: PLR2004  (digits of SHA-256)


class StoreWriter:
    """Copies files of one directory into a store. Several threads may use it at once.

    Raises OSError for errors of the store, InvalidRequest for a user's file that cannot be read.
    """

    def __init__(self, root: str, store: Path, report_copied: Callable[[int], None]) -> None:
        self._root, self._store, self._report_copied = root, str(store), report_copied
        self._stored_sizes = stored_sizes(store)
        self._sizes = set(self._stored_sizes.values())
        self._token, self._numbers = secrets.token_hex(4), itertools.count()  # for the names of part files

    def has(self, sha256: str, size: int) -> bool:
        """Tell whether the store has this content; a file of another size is left from a crash, and does not count."""
        return self._stored_sizes.get(sha256) == size

    def add(self, entry: FileEntry) -> tuple[FileStamp, str] | None:
        """Copy a file into the store; return its stamp and hash, or None for one that was deleted meanwhile.

        Raises InvalidRequest for a file that cannot be read, or that keeps changing.
        """
        expected_stamp: FileStamp | None = stamp_of(entry)
        for _ in range(TRIES):
            if expected_stamp is None:
                return None
            try:
                return self._read_file(entry.path, expected_stamp)
            except FileChanged:
                stop_if_abandoned()
                expected_stamp = self._current_stamp(entry.path)
        raise _path_error(entry.path, "changes while it is read", "Stop what writes to it, or leave it out of the job.")

    def _current_stamp(self, path: str) -> FileStamp | None:
        try:
            status = os.lstat(f"{self._root}/{path}")
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise _unreadable_error(path, error) from error
        return FileStamp(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)

    def _read_file(self, path: str, expected_stamp: FileStamp) -> tuple[FileStamp, str]:
        descriptor = self._open(path)
        try:
            if expected_stamp.size <= SMALL_FILE_BYTES:
                return expected_stamp, self._add_small(descriptor, path, expected_stamp)
            return expected_stamp, self._add_large(descriptor, path, expected_stamp)
        finally:
            os.close(descriptor)

    def _open(self, path: str) -> int:
        try:
            return os.open(f"{self._root}/{path}", _READ)
        except OSError as error:
            if error.errno in {errno.ENOENT, errno.ELOOP, errno.ENXIO, errno.ENOTDIR}:
                raise FileChanged from error  # it was deleted, or is not a file any more
            raise _unreadable_error(path, error) from error

    def _add_small(self, descriptor: int, path: str, expected_stamp: FileStamp) -> str:
        try:
            data = os.read(descriptor, expected_stamp.size + 1)
        except OSError as error:
            raise _unreadable_error(path, error) from error
        if len(data) != expected_stamp.size or _stamp_of_open(descriptor) != expected_stamp:
            raise FileChanged
        sha256 = hashlib.sha256(data).hexdigest()
        if not self.has(sha256, len(data)):
            part_path, target_fd = self._new_part()
            try:
                _write(target_fd, data)
            except BaseException:
                os.unlink(part_path)  # noqa: PTH108  (of a disk that is full, too)
                raise
            finally:
                os.close(target_fd)
            self._publish(part_path, sha256, len(data))
        self._report_copied(len(data))
        return sha256

    def _add_large(self, descriptor: int, path: str, expected_stamp: FileStamp) -> str:
        if expected_stamp.size in self._sizes:  # probably stored already: reading is cheaper than writing
            sha256 = self._hash(descriptor, path)
            if _stamp_of_open(descriptor) == expected_stamp and self.has(sha256, expected_stamp.size):
                self._report_copied(expected_stamp.size)
                return sha256
            os.lseek(descriptor, 0, os.SEEK_SET)
        part_path, target_fd = self._new_part()
        try:
            with open(part_path, "rb", buffering=0) as copy_reader:  # noqa: PTH123  (`part_path` is text)
                sha256 = self._copy(descriptor, target_fd, copy_reader, path, expected_stamp)
        except BaseException:
            os.unlink(part_path)  # noqa: PTH108  (of a disk that is full, too)
            raise
        finally:
            os.close(target_fd)
        self._publish(part_path, sha256, expected_stamp.size)
        return sha256

    def _hash(self, descriptor: int, path: str) -> str:
        digest, buffer = hashlib.sha256(), bytearray(CHUNK_BYTES)
        while count := _read_into(descriptor, buffer, path):
            stop_if_abandoned()
            digest.update(memoryview(buffer)[:count])
        return digest.hexdigest()

    def _copy(self, source: int, target_fd: int, copy_reader: FileIO, path: str, expected_stamp: FileStamp) -> str:
        """Copy a file while a second thread hashes what has been copied; return the hash."""
        bytes_copied, chunk_lengths = 0, SimpleQueue[int]()
        with Pool(1) as pool:
            hashing = pool.submit(_hash_while_copied, copy_reader, chunk_lengths)
            try:
                while count := _copy_chunk(source, target_fd, path, max_bytes=expected_stamp.size - bytes_copied):
                    chunk_lengths.put(count)
                    bytes_copied += count
                    stop_if_abandoned()
                    self._report_copied(count)
            finally:
                chunk_lengths.put(0)
            sha256 = hashing.result()
        if bytes_copied != expected_stamp.size or _stamp_of_open(source) != expected_stamp:
            self._report_copied(-bytes_copied)
            raise FileChanged
        return sha256

    def _new_part(self) -> tuple[str, int]:
        """Return the name and descriptor of a new part file in the store; pruning deletes what a crash leaves of it."""
        part_path = f"{self._store}/.{self._token}-{next(self._numbers)}.part"
        return part_path, os.open(part_path, _WRITE, 0o600)

    def _publish(self, part_path: str, sha256: str, size: int) -> None:
        """Give a complete part file its final name."""
        os.rename(part_path, f"{self._store}/{sha256}")  # noqa: PTH104  (10,000 times)
        self._stored_sizes[sha256] = size


def _write(target_fd: int, data: bytes | memoryview) -> None:
    written = os.write(target_fd, data)
    while written < len(data):
        written += os.write(target_fd, memoryview(data)[written:])


def _hash_while_copied(copy_reader: FileIO, chunk_lengths: SimpleQueue[int]) -> str:
    """Return the hash of a growing file; `chunk_lengths` yields the lengths of its chunks, 0 at the end."""
    digest, buffer = hashlib.sha256(), memoryview(bytearray(CHUNK_BYTES))
    while count := chunk_lengths.get():
        if copy_reader.readinto(buffer[:count]) != count:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        digest.update(buffer[:count])
    return digest.hexdigest()


def _copy_chunk(source: int, target_fd: int, path: str, max_bytes: int) -> int:
    """Copy the next chunk, at most `max_bytes` bytes, in the kernel if possible: file systems may share blocks.

    Returns the number of bytes, 0 at the end.
    """
    size, count = min(CHUNK_BYTES, max_bytes), 0
    if size and hasattr(os, "copy_file_range"):
        with contextlib.suppress(OSError):  # not supported here; other errors show below
            count = os.copy_file_range(source, target_fd, size)
    if size and not count:
        try:
            data = os.read(source, size)
        except OSError as error:
            raise _unreadable_error(path, error) from error
        _write(target_fd, data)
        count = len(data)
    return count


def _read_into(descriptor: int, buffer: bytearray, path: str) -> int:
    try:
        return os.readv(descriptor, [buffer])
    except OSError as error:
        raise _unreadable_error(path, error) from error


def _unreadable_error(path: str, error: OSError) -> InvalidRequest:
    problem = f"cannot be read: {(error.strerror or str(error)).lower()}"
    return _path_error(path, problem, "Correct its permissions, or leave it out of the job.")


def _path_error(path: str, problem: str, remedy: str) -> InvalidRequest:
    return InvalidRequest(f"{printable(path)} {problem}.", field="workdir", value=path, next=remedy)


# -- stamps of earlier snapshots: files that did not change are not read again


def load_stamps(store: Path, root: str) -> dict[str, tuple[FileStamp, str]]:
    """Return the stamp and hash of each file of a directory when it was last read, by path; empty if none are saved.

    Only files that had not changed for 2 s were saved: any later change shows in their stamp.
    """
    try:
        rows = json.loads(_stamps_file(store, root).read_bytes())
        return {
            path: (FileStamp(size, mtime, ctime, inode), sha) for path, (size, mtime, ctime, inode, sha) in rows.items()
        }
    except (OSError, ValueError, TypeError, AttributeError):
        return {}  # stamps only save time


def save_stamps(store: Path, root: str, stamps: Stamps, began_ns: int, saved: Stamps) -> None:
    """Save the stamps of a directory's files, except those that changed less than 2 s before `began_ns`.

    `saved` is what `load_stamps` returned: unchanged stamps are not written again.
    """
    if stamps == saved:
        return
    limit_ns = began_ns - TRUSTED_AFTER_NS
    stable = {
        path: (*stamp, sha) for path, (stamp, sha) in stamps.items() if max(stamp.mtime_ns, stamp.ctime_ns) < limit_ns
    }
    # Without a lock: pruning deletes part files, and the last writer has the newest stamps.
    files.write_atomically(_stamps_file(store, root), json.dumps(stable, separators=(",", ":")).encode("ascii"))


def _stamps_file(store: Path, root: str) -> Path:
    return store / f"{STAMPS_PREFIX}{hashlib.sha256(os.fsencode(root)).hexdigest()[:16]}.json"


def delete_old_stamps(store: Path) -> None:
    """Delete the saved stamps of all but the last MAX_STAMP_FILES directories."""
    stamp_files = sorted(store.glob(f"{STAMPS_PREFIX}*.json"), key=lambda file: file.stat().st_mtime_ns, reverse=True)
    for file in stamp_files[MAX_STAMP_FILES:]:
        file.unlink(missing_ok=True)
