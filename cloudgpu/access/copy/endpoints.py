"""The two sides of a copy behind one interface: files here, and files on a machine over SFTP.

Symbolic links are followed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol, cast

from cloudgpu.core.values.printable import printable
from cloudgpu.errors import InvalidRequest

if TYPE_CHECKING:
    from paramiko.sftp_attr import SFTPAttributes
    from paramiko.sftp_client import SFTPClient
    from paramiko.sftp_file import SFTPFile

# Bytes per request: with paramiko's 32 KiB half the speed or less was measured.
READ_BYTES = 64 * 1024  # the most that every OpenSSH server answers at once
WRITE_BYTES = 128 * 1024  # half of what every OpenSSH server accepts
READ_AHEAD_REQUESTS = 256  # read requests in flight; paramiko checks every 10 ms whether it may send more
LATEST_TIME_S = 2**32 - 1  # since 1970: SFTP 3 has no later time, and none before 1970
PERMISSION_BITS = 0o777  # bits that are copied: not set-uid and the like
MISSING_ERRORS = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


@dataclass(frozen=True, slots=True)
class Entry:
    """A file or directory (neither: a device, a socket). `mode` is its permissions, `mtime` seconds since 1970.

    `is_linked`: it was reached by a symbolic link.
    """

    is_directory: bool
    is_file: bool
    size: int
    mode: int
    mtime: float
    is_linked: bool = False


class Endpoint(Protocol):
    """One side of a copy. Methods raise OSError about their path."""

    def label(self, path: str) -> str:
        """Return the path for messages, without control characters."""

    def stat(self, path: str) -> Entry | None:
        """Return the entry at a path; None for none, and for a broken link."""

    def children(self, path: str) -> Iterator[tuple[str, Entry | None]]:
        """Yield the name and `stat` of each entry of a directory."""

    def absolute_path(self, path: str) -> str:
        """Return the absolute path without links."""

    def read(self, path: str, size: int) -> contextlib.AbstractContextManager[IO[bytes]]:
        """Open a file of about `size` bytes to read all of it."""

    def write(self, path: str) -> contextlib.AbstractContextManager[IO[bytes]]:
        """Create a file, in place of one that was there, which nobody else can open until it gets its permissions."""

    def make_directory(self, path: str) -> None:
        """Make one directory."""

    def set_attributes(self, path: str, like: Entry) -> None:
        """Set the permissions and the time of `like`."""

    def rename(self, path: str, final: str) -> None:
        """Give a file its final name; whatever has that name is replaced, but a directory."""

    def remove(self, path: str) -> None:
        """Remove a file."""


class LocalFiles:
    """This computer's files."""

    def label(self, path: str) -> str:
        """Return the path, without control characters."""
        return printable(path)

    def stat(self, path: str) -> Entry | None:
        """See `Endpoint`."""
        try:
            return _entry(os.stat(path), is_linked=os.path.islink(path))  # noqa: PTH114, PTH116  (text on both sides)
        except OSError as error:
            if error.errno not in MISSING_ERRORS:
                raise
            return None

    def children(self, path: str) -> Iterator[tuple[str, Entry | None]]:
        """See `Endpoint`."""
        for name in sorted(os.listdir(path)):  # noqa: PTH208
            yield name, self.stat(os.path.join(path, name))  # noqa: PTH118

    def absolute_path(self, path: str) -> str:
        """See `Endpoint`."""
        return os.path.realpath(path)

    @contextlib.contextmanager
    def read(self, path: str, size: int) -> Iterator[IO[bytes]]:  # noqa: ARG002  (the other side needs it)
        """See `Endpoint`. Does not wait for a pipe that has taken the file's place."""
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise OSError(errno.EINVAL, "it is not a file any more")
            yield file

    @contextlib.contextmanager
    def write(self, path: str) -> Iterator[IO[bytes]]:
        """See `Endpoint`."""
        Path(path).unlink(missing_ok=True)  # others may have opened it
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            yield file

    def make_directory(self, path: str) -> None:
        """See `Endpoint`."""
        Path(path).mkdir()

    def set_attributes(self, path: str, like: Entry) -> None:
        """See `Endpoint`."""
        Path(path).chmod(like.mode)
        os.utime(path, (like.mtime, like.mtime))

    def rename(self, path: str, final: str) -> None:
        """See `Endpoint`."""
        Path(path).replace(final)

    def remove(self, path: str) -> None:
        """See `Endpoint`."""
        Path(path).unlink()


@dataclass(frozen=True, slots=True)
class MachineFiles:
    """A machine's files. One SFTP session carries one transfer at a time."""

    machine: str
    sftp: SFTPClient = field(repr=False)

    def label(self, path: str) -> str:
        """Return the path with the machine's name before it."""
        return f"{self.machine}:{printable(path)}"

    def stat(self, path: str) -> Entry | None:
        """See `Endpoint`."""
        try:
            attributes = self.sftp.lstat(path)
            is_linked = stat.S_ISLNK(attributes.st_mode or 0)
            return _entry(self.sftp.stat(path) if is_linked else attributes, is_linked=is_linked)
        except OSError as error:
            if error.errno not in MISSING_ERRORS:
                raise
            return None

    def children(self, path: str) -> Iterator[tuple[str, Entry | None]]:
        """See `Endpoint`. Raises InvalidRequest for a name that would lead out of the directory."""
        for found in sorted(self.sftp.listdir_attr(path), key=lambda found: found.filename):
            name = checked_name(found.filename, self.label(path))
            is_linked = stat.S_ISLNK(found.st_mode or 0)
            yield name, self.stat(f"{path}/{name}") if is_linked else _entry(found, is_linked=False)

    def absolute_path(self, path: str) -> str:
        """See `Endpoint`."""
        return self.sftp.normalize(path)

    @contextlib.contextmanager
    def read(self, path: str, size: int) -> Iterator[IO[bytes]]:
        """See `Endpoint`."""
        with self.sftp.open(path, "rb") as file:
            if size:  # a file of size 0 may still have content (in /proc)
                _silence_prefetch(file)
                file.MAX_REQUEST_SIZE = READ_BYTES
                file.prefetch(size, READ_AHEAD_REQUESTS)
            yield cast("IO[bytes]", file)

    @contextlib.contextmanager
    def write(self, path: str) -> Iterator[IO[bytes]]:
        """See `Endpoint`."""
        with _replace_by_private(self.sftp, path) as file:
            file.MAX_REQUEST_SIZE = WRITE_BYTES
            file.set_pipelined(True)  # do not wait for an answer before the end
            yield cast("IO[bytes]", file)

    def make_directory(self, path: str) -> None:
        """See `Endpoint`."""
        self.sftp.mkdir(path)

    def set_attributes(self, path: str, like: Entry) -> None:
        """See `Endpoint`."""
        self.sftp.chmod(path, like.mode)
        mtime = min(max(like.mtime, 0), LATEST_TIME_S)
        self.sftp.utime(path, (mtime, mtime))

    def rename(self, path: str, final: str) -> None:
        """See `Endpoint`."""
        self.sftp.posix_rename(path, final)

    def remove(self, path: str) -> None:
        """See `Endpoint`."""
        self.sftp.remove(path)


def check_replaceable(endpoint: Endpoint, path: str) -> None:
    """Raise OSError for a device, a pipe or a socket: a file that gets its name would replace it."""
    found = endpoint.stat(path)
    if found is not None and not (found.is_file or found.is_directory):
        raise FileExistsError(errno.EEXIST, "it is a device, a pipe or a socket")


def checked_name(name: str, directory: str) -> str:
    """Return the name of a directory's entry; raise InvalidRequest for one that would lead elsewhere.

    A malicious machine could otherwise write files anywhere here (CVE-2019-6111 in scp).
    """
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise InvalidRequest(
            f"{directory} lists {name!a}, which is not a name of a file.",
            field="SOURCE",
            value=directory,
            next="Do not trust this machine: nothing was written outside the destination.",
        )
    return name


def _silence_prefetch(file: Any) -> None:
    """Keep paramiko from printing a traceback when the connection is lost during prefetch: the reader raises it."""
    from cloudgpu.access.ssh.transport import CONNECTION_ERRORS

    prefetch = file._prefetch_thread  # noqa: SLF001  (there is no public API)

    def prefetch_quietly(*arguments: Any) -> None:
        with contextlib.suppress(*CONNECTION_ERRORS):
            prefetch(*arguments)

    file._prefetch_thread = prefetch_quietly  # noqa: SLF001


def _replace_by_private(sftp: SFTPClient, path: str) -> SFTPFile:
    """Create a file that nobody else can open at any moment. What was there goes: others may have opened it."""
    try:
        return _create_private(sftp, path)
    except OSError:  # SFTP 3 has no error for "exists"
        with contextlib.suppress(OSError):
            sftp.remove(path)
            return _create_private(sftp, path)
        raise


def _create_private(sftp: Any, path: str) -> SFTPFile:
    """Create a file with permissions 0600 and open it to write. Raises OSError, also where the path exists.

    paramiko's `open` sends no permissions. Setting them afterwards would come too late for somebody who is quick.
    """
    from paramiko.sftp import CMD_HANDLE, CMD_OPEN, SFTP_FLAG_CREATE, SFTP_FLAG_EXCL, SFTP_FLAG_WRITE, SFTPError
    from paramiko.sftp_attr import SFTPAttributes
    from paramiko.sftp_file import SFTPFile

    attributes = SFTPAttributes()
    attributes.st_mode = 0o600
    flags = SFTP_FLAG_WRITE | SFTP_FLAG_CREATE | SFTP_FLAG_EXCL
    answer_type, answer = sftp._request(CMD_OPEN, sftp._adjust_cwd(path), flags, attributes)  # noqa: SLF001
    if answer_type != CMD_HANDLE:
        raise SFTPError("Expected handle")
    return SFTPFile(sftp, answer.get_binary(), "wb")


def _entry(status: os.stat_result | SFTPAttributes, *, is_linked: bool) -> Entry:
    mode = status.st_mode or 0
    return Entry(
        is_directory=stat.S_ISDIR(mode),
        is_file=stat.S_ISREG(mode),
        size=status.st_size or 0,
        mode=mode & PERMISSION_BITS,
        mtime=status.st_mtime or 0,
        is_linked=is_linked,
    )
