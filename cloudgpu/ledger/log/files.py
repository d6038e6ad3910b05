"""Makes directories and files private to their owner; tells files from databases, and network file systems.

Only its owner enters such a directory or reads such a file. On a network file system, SQLite's locks and its shared
memory cannot be trusted.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from contextlib import suppress
from pathlib import Path

from cloudgpu.errors import InvalidRequest

PRIVATE_FILE = 0o600
PRIVATE_DIRECTORY = 0o700


def is_a_file(location: str) -> bool:
    """Say whether a ledger stands in a file, which nobody shares, not in a database on a server."""
    return "://" not in location


def make_private_directory(directory: Path) -> None:
    """Make the directory, and whatever is missing above it, with mode 0700; one that exists is left as it is."""
    if directory.is_dir():
        return
    make_private_directory(directory.parent)
    directory.mkdir(mode=PRIVATE_DIRECTORY, exist_ok=True)


def make_empty_file(path: Path) -> None:
    """Make an empty 0600 file unless something stands there.

    Closing a descriptor drops the locks that SQLite holds on the same file for this process: only a file that this
    call has made itself is opened and closed, before anybody can have written to it.
    """
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, PRIVATE_FILE))


def sync(path: Path) -> None:
    """Make what was created, renamed or removed in a directory durable, or what is in a file. Raises OSError."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def open_to_write(path: Path, flags: int) -> int:
    """Return a descriptor of a 0600 file, made where there is none; OSError for a link, which may lead anywhere."""
    return os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, PRIVATE_FILE)


def read_own(path: Path, most: int) -> bytes:
    """Return what is in a file of ours. Raises OSError for a link, a pipe, a device, and more than `most` bytes."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "this is not a file", str(path))
        if found.st_size > most:
            raise OSError(errno.EFBIG, f"this has more than {most} bytes", str(path))
        return file.read(most)


_NETWORK = frozenset(
    "nfs nfs3 nfs4 cifs smb smb2 smb3 smbfs ncpfs 9p afs afpfs coda ceph lustre gpfs beegfs pvfs2 orangefs ocfs2 gfs2 "
    "glusterfs webdav davfs davfs2 vboxsf prl_fs macfuse_sshfs".split()
)
_OVER_FUSE = frozenset(  # the kernel says `fuse.` before these; a fuse of another name may well be local
    "sshfs glusterfs ceph ceph-fuse s3fs gcsfuse rclone davfs davfs2 smbnetfs curlftpfs juicefs beegfs moosefs mfs "
    "blobfuse blobfuse2 mount-s3 goofys".split()
)


def refuse_network(path: Path) -> None:
    """Raise InvalidRequest when `path`, or where it would be made, lies on a network file system."""
    found = filesystem_of(path.resolve(), _mounts())
    if found is not None and is_network(found):
        raise InvalidRequest(
            f"The ledger {path} is on a network file system ({found}), where SQLite can lose what it wrote.",
            field="CLOUDGPU_LEDGER",
            value=str(path),
            next="Put it on a local disk: CLOUDGPU_LEDGER=sqlite:///a/local/path/ledger.db",
        )


def is_network(kind: str) -> bool:
    """Say whether a file system of this type is reached over a network or shared from a host."""
    family, _, driver = kind.lower().partition(".")
    return family in _NETWORK or (family == "fuse" and driver in _OVER_FUSE)


def filesystem_of(path: Path, mounts: list[tuple[str, str]]) -> str | None:
    """Return the type of the file system that holds an absolute `path`, or None when no mount point does.

    `mounts` are (mount point, type) in the order of mounting; the longest point holds the path, of equals the last.
    """
    best: tuple[int, str] | None = None
    for point, kind in mounts:
        inside = point == "/" or str(path) == point or str(path).startswith(f"{point}/")
        if inside and (best is None or len(point) >= best[0]):
            best = len(point), kind
    return best and best[1]


def mountinfo(text: str) -> list[tuple[str, str]]:
    """Return (mount point, type) of each line of Linux's /proc/self/mountinfo (man 5 proc)."""
    mounts = []
    for line in text.splitlines():
        before, dash, after = line.partition(" - ")
        fields = before.split(" ")
        if dash and len(fields) > 4:  # noqa: PLR2004  (the fifth field is the mount point)
            mounts.append((_unescaped(fields[4]), after.split(" ")[0]))
    return mounts


def mount_output(text: str) -> list[tuple[str, str]]:
    """Return (mount point, type) of each line that macOS's `mount` prints: `/dev/disk3s1 on / (apfs, local)`."""
    mounts = []
    for line in text.splitlines():
        where, bracket, options = line.rpartition(" (")
        _, on, point = where.partition(" on ")
        if bracket and on:
            mounts.append((point, options.rstrip(")").split(",")[0]))
    return mounts


def _unescaped(point: str) -> str:
    r"""Return a mount point with its blanks and backslashes, which the kernel writes as `\040` and `\134`."""
    first, *rest = point.split("\\")
    return first + "".join(chr(int(piece[:3], 8)) + piece[3:] for piece in rest)


def _mounts() -> list[tuple[str, str]]:
    if sys.platform == "darwin":
        return mount_output(os.popen("/sbin/mount").read())  # noqa: S605  (a fixed command)
    try:
        return mountinfo(Path("/proc/self/mountinfo").read_text(errors="surrogateescape"))
    except OSError:  # no /proc: nothing is known, and a ledger is better than none
        return []
