"""Says whether a path lies on a network file system, where SQLite's locks and its shared memory cannot be trusted."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from cloudgpu.errors import InvalidRequest

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
            f"The ledger {path} lies on a network file system ({found}), where SQLite can lose what it wrote.",
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
