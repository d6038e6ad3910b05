"""The ledger's files on this computer: private to their owner, locked by living processes, on no network file system.

Only their owner can read these files and directories. On a network file system, SQLite's locks and its shared
memory cannot be trusted.

The lock of a killed process ends with it, and no lock is left behind as a file. A process does not wait as long
again for a lock that it could not get in time: its holder may be suspended, and a command that ends a machine takes the
lock several times, while the machine is still billed.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cloudgpu.errors import InvalidRequest, LedgerUnavailable, LockBusy
from cloudgpu.ledger.log.storage_errors import LedgerAway

PRIVATE_FILE = 0o600
PRIVATE_DIRECTORY = 0o700


def is_a_file(location: str) -> bool:
    """Return whether a ledger's location names a file, and not a database on a server, which a team can share."""
    return "://" not in location


def make_private_directory(directory: Path) -> None:
    """Make the directory, and whatever is missing above it, with mode 0700; one that exists is left as it is."""
    if directory.is_dir():
        return
    make_private_directory(directory.parent)
    directory.mkdir(mode=PRIVATE_DIRECTORY, exist_ok=True)


def make_empty_file(path: Path) -> None:
    """Make an empty 0600 file unless something exists there.

    Closing a descriptor drops the locks that SQLite holds on the same file for this process: only a file that this
    call has made itself is opened and closed, before anybody can have written to it.
    """
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, PRIVATE_FILE))


def fsync(path: Path) -> None:
    """Make what was created, renamed or removed in a directory durable, or what is in a file. Raises OSError."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def open_to_write(path: Path, flags: int) -> int:
    """Return a descriptor of a 0600 file, made where there is none; OSError for a link, which may lead anywhere."""
    return os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, PRIVATE_FILE)


def write_durably(path: Path, data: bytes) -> None:
    """Write all of a 0600 file and return once it is on the disk. Raises OSError, and for a link."""
    with os.fdopen(open_to_write(path, os.O_WRONLY | os.O_TRUNC), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def missing_newline(handle: int) -> bytes:
    """Return the line end that is to be written first, as a crash has cut the last line short; empty if none is."""
    size = os.fstat(handle).st_size
    return b"\n" if size and os.pread(handle, 1, size - 1) != b"\n" else b""


def read_our_file(path: Path, max_bytes: int) -> bytes:
    """Return what is in a file of ours. Raises OSError for a link, pipe or device, and above `max_bytes` bytes."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "this is not a file", str(path))
        if status.st_size > max_bytes:
            raise OSError(errno.EFBIG, f"this has more than {max_bytes} bytes", str(path))
        return file.read(max_bytes)


_NETWORK_TYPES = frozenset(
    "nfs nfs3 nfs4 cifs smb smb2 smb3 smbfs ncpfs 9p afs afpfs coda ceph lustre gpfs beegfs pvfs2 orangefs ocfs2 gfs2 "
    "glusterfs webdav davfs davfs2 vboxsf prl_fs macfuse_sshfs".split()
)
_NETWORK_FUSE_DRIVERS = frozenset(  # with the prefix `fuse.`; other fuse file systems may be local
    "sshfs glusterfs ceph ceph-fuse s3fs gcsfuse rclone davfs davfs2 smbnetfs curlftpfs juicefs beegfs moosefs mfs "
    "blobfuse blobfuse2 mount-s3 goofys".split()
)


def refuse_network(path: Path) -> None:
    """Raise InvalidRequest when `path`, or where it would be made, lies on a network file system."""
    fs_type = filesystem_of(path.resolve(), _mounts())
    if fs_type is not None and is_network(fs_type):
        raise InvalidRequest(
            f"The ledger {path} is on a network file system ({fs_type}), where SQLite can lose what it wrote.",
            field="CLOUDGPU_LEDGER",
            value=str(path),
            next="Put it on a local disk: CLOUDGPU_LEDGER=sqlite:///a/local/path/ledger.db",
        )


def is_network(fs_type: str) -> bool:
    """Return whether a file system of this type is on a network or shared from a host."""
    family, _, driver = fs_type.lower().partition(".")
    return family in _NETWORK_TYPES or (family == "fuse" and driver in _NETWORK_FUSE_DRIVERS)


def filesystem_of(path: Path, mounts: list[tuple[str, str]]) -> str | None:
    """Return the type of the file system that holds an absolute `path`, or None when no mount point does.

    `mounts` are (mount point, type) in the order of mounting; the longest point holds the path, of equals the last.
    """
    longest: tuple[int, str] | None = None
    for mount_point, fs_type in mounts:
        inside = mount_point == "/" or str(path) == mount_point or str(path).startswith(f"{mount_point}/")
        if inside and (longest is None or len(mount_point) >= longest[0]):
            longest = len(mount_point), fs_type
    return longest and longest[1]


def mountinfo(text: str) -> list[tuple[str, str]]:
    """Return (mount point, type) of each line of Linux's /proc/self/mountinfo (man 5 proc)."""
    mounts = []
    for line in text.splitlines():
        fields_before, dash, fields_after = line.partition(" - ")
        fields = fields_before.split(" ")
        if dash and len(fields) > 4:  # noqa: PLR2004  (the fifth field is the mount point)
            mounts.append((_unescaped(fields[4]), fields_after.split(" ")[0]))
    return mounts


def mount_output(text: str) -> list[tuple[str, str]]:
    """Return (mount point, type) of each line that macOS's `mount` prints: `/dev/disk3s1 on / (apfs, local)`."""
    mounts = []
    for line in text.splitlines():
        device_and_point, bracket, options = line.rpartition(" (")
        _, on, mount_point = device_and_point.partition(" on ")
        if bracket and on:
            mounts.append((mount_point, options.rstrip(")").split(",")[0]))
    return mounts


def _unescaped(mount_point: str) -> str:
    r"""Return a mount point with its blanks and backslashes, which the kernel writes as `\040` and `\134`."""
    first, *rest = mount_point.split("\\")
    return first + "".join(chr(int(piece[:3], 8)) + piece[3:] for piece in rest)


def _mounts() -> list[tuple[str, str]]:
    if sys.platform == "darwin":
        return mount_output(os.popen("/sbin/mount").read())  # noqa: S605  (a fixed command)
    try:
        return mountinfo(Path("/proc/self/mountinfo").read_text(errors="surrogateescape"))
    except OSError:  # no /proc: nothing is known, and a ledger is better than none
        return []


_PLAIN_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,99}")
_MIN_WAIT_S = 0.1  # a check by `is_locked` may hold a lock for so long
_MAX_PAUSE_S = 0.05  # seconds between two tries, at most
_LOCK_ROOTS = ("/dev/shm", "/tmp")  # noqa: S108  (what is made there is a directory that this user alone enters)


def lock_directory() -> Path | None:
    """Return a directory for locks among all homes of this user, made where it is missing; None where there is none.

    It is in memory where the computer has such a place: there it needs no room on a full disk.
    """
    for root in _LOCK_ROOTS:
        path = Path(root, f"cloudgpu-{os.geteuid()}")
        try:
            path.mkdir(mode=PRIVATE_DIRECTORY, exist_ok=True)
            status = path.lstat()
        except OSError:
            continue
        if stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o077:
            return path
    return None


@contextmanager
def lock(directory: Path, name: str, *, wait: bool | float, ledger_id: str = "") -> Iterator[None]:
    """Hold the lock `name` exclusively among threads and processes; wait forever (True), never, or so many seconds.

    `ledger_id` tells locks of one name apart in a directory that several ledgers share.

    Raises LockBusy if another process still holds it then, LedgerUnavailable if no lock can be made.
    """
    path = _lock_path(directory, name, ledger_id)
    deadline = None if wait is True else time.monotonic() + max(float(wait), _MIN_WAIT_S)
    handle = _acquire(path, deadline)
    if handle is None:
        raise _in_use_error(path, name, float(wait))
    try:
        with suppress(OSError):  # a hint for whoever waits; a full disk may refuse it
            os.truncate(handle, 0)
            os.pwrite(handle, str(os.getpid()).encode(), 0)
        yield
    finally:
        _release(path, handle)


def is_locked(directory: Path, name: str, *, ledger_id: str = "") -> bool:
    """Return whether a living process, including this one, holds the lock now. Creates no file."""
    path = _lock_path(directory, name, ledger_id)
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise _lock_file_error(path, error) from error
    try:
        return not try_lock(handle, fcntl.LOCK_SH)  # shared: two checks do not block each other
    finally:
        close_locked(handle)


def check_lock(directory: Path, name: str, *, ledger_id: str = "") -> None:
    """Raise LedgerUnavailable if this process held the lock `name` and has lost it without notice.

    A lock ends only with its process; but if its file was removed, another process may hold a new one.
    """
    path = _lock_path(directory, name, ledger_id)
    try:
        holder = path.read_text().strip()
    except OSError:
        holder = "nobody"
    if holder not in ("", str(os.getpid())):  # empty: a full disk has refused the hint
        raise LedgerUnavailable(
            f"The lock {path} is not ours any more: it is held by {holder}.",
            field="lock",
            value=str(path),
            next="Leave the files in that directory alone while cloudgpu runs.",
        )


def _lock_path(directory: Path, name: str, ledger_id: str = "") -> Path:
    name = f"{ledger_id}-{name}" if ledger_id else name
    if _PLAIN_NAME.fullmatch(name):
        return directory / f"{name}.lock"
    import hashlib

    return directory / f"{hashlib.sha256(name.encode(errors='surrogatepass')).hexdigest()}.lock"


def _acquire(path: Path, deadline: float | None) -> int | None:
    """Return a descriptor that holds the lock on the file at `path`; None if that takes until after `deadline`."""
    pause_s = 0.002
    while True:
        handle = _open_lock_file(path)
        if try_lock(handle, fcntl.LOCK_EX):
            if is_same_file(path, handle):
                return handle
            close_locked(handle)  # its holder removed the file between our open and our lock
            continue
        os.close(handle)
        if deadline is not None and time.monotonic() >= deadline:
            return None
        time.sleep(pause_s)
        pause_s = min(pause_s * 2, _MAX_PAUSE_S)


def _open_lock_file(path: Path) -> int:
    try:
        make_private_directory(path.parent)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
    except OSError as error:
        raise _lock_file_error(path, error) from error


def try_lock(handle: int, operation: int) -> bool:
    """Return whether the open file is locked now; False if another process has it. Raises OSError."""
    try:
        fcntl.flock(handle, operation | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_same_file(path: Path, handle: int) -> bool:
    """Return whether the file was not removed or replaced between opening and locking it."""
    try:
        return os.path.samestat(path.stat(), os.fstat(handle))
    except FileNotFoundError:
        return False


def _release(path: Path, handle: int) -> None:
    """Remove the file while the lock is held: a waiting process sees that it is gone, and opens a new one."""
    with suppress(OSError):
        if is_same_file(path, handle):
            path.unlink()
    close_locked(handle)


def close_locked(handle: int) -> None:
    """Unlock a file and close it. Raises OSError."""
    with suppress(OSError):
        fcntl.flock(handle, fcntl.LOCK_UN)  # a child that was forked meanwhile has the descriptor too
    os.close(handle)


def _in_use_error(path: Path, name: str, waited: float) -> LockBusy:
    holder = ""
    with suppress(OSError, ValueError):
        holder = f" (process {int(path.read_text())})"
    return LockBusy(
        f"Another cloudgpu command{holder} is at work on {name!r}; waited {waited:g} seconds.",
        field="lock",
        value=str(path),
        next="Wait until it has ended, then try again.",
    )


def _lock_file_error(path: Path, error: OSError) -> LedgerUnavailable:
    is_disk_full = error.errno in {errno.ENOSPC, errno.EDQUOT}
    lock_error = LedgerAway(
        f"The lock {path} cannot be made ({error.strerror or error}).",
        field="lock",
        value=str(path),
        next="Free some space on that disk."
        if is_disk_full
        else "Check that the directory is yours and can be written to.",
    )
    lock_error.is_disk_full = is_disk_full
    return lock_error


SHORT_TIMEOUT_S = 0.5  # the timeout for a lock that was not free in time before
SHORT_TIMEOUT_PERIOD_S = 60.0  # for so long after that, the timeout is the short one
_failed_waits: dict[str, float] = {}  # by lock: when a wait for it last failed, by the monotonic clock


def current_lock_timeout_s(lock: str, usual_s: float) -> float:
    """Return how many seconds to wait for this lock now: fewer than `usual_s` if that was in vain a moment ago."""
    failed_at = _failed_waits.get(lock)
    if failed_at is None or time.monotonic() - failed_at >= SHORT_TIMEOUT_PERIOD_S:
        return usual_s
    return min(SHORT_TIMEOUT_S, usual_s)


def lock_timed_out(lock: str) -> None:
    """Remember that the lock was not free in time."""
    _failed_waits[lock] = time.monotonic()


def lock_acquired(lock: str) -> None:
    """Remember that the lock was acquired."""
    _failed_waits.pop(lock, None)
