"""The directories of a node's engine, and what several people may read of it.

This file's text is sent over SSH behind that of `remote_processes.py`. Standard library only, Python 3.8+.
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

OF = "of"  # in a short directory: the node's other one
SETTLED_S = 60  # seconds
ROOTED = "as-root"  # in a short directory: the node's slurmd runs as root


def publish(short: Path, texts: Mapping[str, str], programs: list[str]) -> None:
    """Write what every person's commands and tasks read, and note that slurmd runs as root here."""
    for name, text in texts.items():
        write_private(short / name, text.encode(), 0o755 if name in programs else 0o644)
    write_private(short / ROOTED, b"")


def make_directories(directory: str, short: Path, *, several: bool) -> Path:
    """Make the node's directories; raise Fault where the short one, which everybody could make, is another's.

    Several people may pass through that to what they know the name of; nobody else lists or writes it.
    """
    whole = absolute(directory)
    (whole / "state").mkdir(mode=0o700, parents=True, exist_ok=True)
    whole.chmod(0o700)
    for one in (short.parent, short):
        with contextlib.suppress(FileExistsError):
            one.mkdir(mode=0o700)
        seen = one.lstat()
        if not stat.S_ISDIR(seen.st_mode) or seen.st_uid != os.getuid() or stat.S_IMODE(seen.st_mode) & 0o066:
            raise Fault(f"{one} is not a directory of this user alone")
        one.chmod(0o711 if several else 0o700)
    if not several and (short / ROOTED).exists():
        (short / ROOTED).unlink()
    (short / "spool").mkdir(mode=0o700, exist_ok=True)  # slurmd opens it to others itself
    return whole


def sweep(own: Path) -> None:
    """Remove the short directories of this user whose node is gone, as after a power cut; `own` is the cluster's.

    One that was changed in the last minute stays: another cluster's node may be about to be made in it.
    """
    for above in own.parent.glob("cg-*"):
        if not re.fullmatch("cg-[0-9a-f]{10}", above.name):
            continue  # somebody else's, by its name
        with contextlib.suppress(OSError):
            for one in above.iterdir() if above.lstat().st_uid == os.getuid() else ():
                if one.name.isdigit() and not Path((one / OF).read_text()).exists():
                    shutil.rmtree(str(one), ignore_errors=True)
            if time.time() - above.lstat().st_mtime > SETTLED_S:
                above.rmdir()


def absolute(directory: str) -> Path:
    """Return a path below the home as a whole one."""
    return Path(home()) / directory


def home() -> str:
    """Return the login user's home."""
    return os.environ.get("HOME") or pwd.getpwuid(os.getuid()).pw_dir
