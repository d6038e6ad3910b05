"""The directories of Slurm on a node: a private one below the home, and a short one in /tmp for its sockets.

This text is sent over SSH after `remote_processes.py`. Standard library only, Python 3.8+.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import shutil
import stat
import time
from pathlib import Path

from cloudgpu.access.slurm.remote_processes import Fault, write_private

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

NODE_PATH = "of"  # file in the short directory: the path of the private one
UNUSED_AFTER_S = 60
SLURMD_IS_ROOT = "as-root"  # file in the short directory: slurmd runs as root


def write_shared_files(short: Path, texts: Mapping[str, str], programs: list[str]) -> None:
    """Write the files that all users' commands and tasks read, and record that slurmd runs as root here."""
    for name, text in texts.items():
        write_private(short / name, text.encode(), 0o755 if name in programs else 0o644)
    write_private(short / SLURMD_IS_ROOT, b"")


def make_directories(directory: str, short: Path, *, several: bool) -> Path:
    """Make the node's directories, and return the private one. Raises Fault if the short one is not this user's.

    `several`: other users may open files in the short directory by name, but not list or write it.
    """
    node_dir = absolute(directory)
    (node_dir / "state").mkdir(mode=0o700, parents=True, exist_ok=True)
    node_dir.chmod(0o700)
    for short_dir in (short.parent, short):
        with contextlib.suppress(FileExistsError):
            short_dir.mkdir(mode=0o700)
        status = short_dir.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o066:
            raise Fault(f"{short_dir} is not a directory of this user alone")
        short_dir.chmod(0o711 if several else 0o700)
    if not several and (short / SLURMD_IS_ROOT).exists():
        (short / SLURMD_IS_ROOT).unlink()
    (short / "spool").mkdir(mode=0o700, exist_ok=True)  # slurmd itself gives others access to it
    return node_dir


def remove_stale_directories(own: Path) -> None:
    """Remove short directories of this user whose node is gone, as after a power cut; `own` is this cluster's.

    One that changed in the last minute stays: another cluster may be writing to it now.
    """
    for cluster_dir in own.parent.glob("cg-*"):
        if not re.fullmatch("cg-[0-9a-f]{10}", cluster_dir.name):
            continue  # not made by cloudgpu
        with contextlib.suppress(OSError):
            for short_dir in cluster_dir.iterdir() if cluster_dir.lstat().st_uid == os.getuid() else ():
                if short_dir.name.isdigit() and not Path((short_dir / NODE_PATH).read_text()).exists():
                    shutil.rmtree(str(short_dir), ignore_errors=True)
            if time.time() - cluster_dir.lstat().st_mtime > UNUSED_AFTER_S:
                cluster_dir.rmdir()


def absolute(directory: str) -> Path:
    """Return the absolute path of a directory below the home."""
    return Path(home()) / directory


def home() -> str:
    """Return the login user's home."""
    return os.environ.get("HOME") or pwd.getpwuid(os.getuid()).pw_dir
