"""The directories of Slurm on a node, and how slurmd is run as root, if several people use the node.

This text is sent over SSH after `remote_processes.py`. Standard library only, Python 3.8+.

A node has a private directory below the home (`node_dir`), and one in /tmp for its sockets, whose path is short
(`socket_dir`). Root is reached with `sudo -n`, which never asks for a password. Only slurmd runs as root: it runs each
job as the user who submitted it. The files that users have to read are in the short directory; they contain no secret.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import shutil
import stat
import subprocess
import time
from pathlib import Path

from cloudgpu.access.slurm.remote_processes import ENGINE_VARIABLE, Fault, write_private

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

NODE_DIR_FILE = "of"  # file in the short directory: the path of the private one
UNUSED_AFTER_S = 60  # after its last change an empty directory of a cluster is removed
AS_ROOT_FILE = "as-root"  # file in the short directory: slurmd runs as root
SUDO = ("sudo", "-n")
SUDO_TIMEOUT_S = 30.0
_END_SCRIPT = """
import shutil
end_all(Path({node_dir!r}), Path({short!r}), {mark!r}, {munge!r})
shutil.rmtree({spool!r}, ignore_errors=True)
"""


def write_shared_files(socket_dir: Path, texts: Mapping[str, str], programs: list[str]) -> None:
    """Write the files that all users' commands and tasks read, and record that slurmd runs as root here."""
    for name, text in texts.items():
        write_private(socket_dir / name, text.encode(), 0o755 if name in programs else 0o644)
    write_private(socket_dir / AS_ROOT_FILE, b"")


def make_directories(directory: str, socket_dir: Path, *, several: bool) -> Path:
    """Make the node's directories, and return the private one. Raises Fault if the short one is not this user's.

    `several`, several people use the node: others may open files in the short directory by name, but not list or write
    it.
    """
    node_dir = absolute(directory)
    (node_dir / "state").mkdir(mode=0o700, parents=True, exist_ok=True)
    node_dir.chmod(0o700)
    for short_dir in (socket_dir.parent, socket_dir):
        with contextlib.suppress(FileExistsError):
            short_dir.mkdir(mode=0o700)
        status = short_dir.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o066:
            raise Fault(f"{short_dir} is not a directory of this user alone")
        short_dir.chmod(0o711 if several else 0o700)
    if not several and (socket_dir / AS_ROOT_FILE).exists():
        (socket_dir / AS_ROOT_FILE).unlink()
    (socket_dir / "spool").mkdir(mode=0o700, exist_ok=True)  # slurmd itself gives others access to it
    return node_dir


def remove_stale_directories(own_dir: Path) -> None:
    """Remove short directories of this user whose node is gone, as after a power cut; `own_dir` is this cluster's.

    One that changed in the last minute stays: another cluster may be writing to it now.
    """
    for cluster_dir in own_dir.parent.glob("cg-*"):
        if not re.fullmatch("cg-[0-9a-f]{10}", cluster_dir.name):
            continue  # not made by cloudgpu
        with contextlib.suppress(OSError):
            for short_dir in cluster_dir.iterdir() if cluster_dir.lstat().st_uid == os.getuid() else ():
                if short_dir.name.isdigit() and not Path((short_dir / NODE_DIR_FILE).read_text()).exists():
                    shutil.rmtree(str(short_dir), ignore_errors=True)
            if time.time() - cluster_dir.lstat().st_mtime > UNUSED_AFTER_S:
                cluster_dir.rmdir()


def absolute(directory: str) -> Path:
    """Return the absolute path of a directory below the home."""
    return Path(home()) / directory


def home() -> str:
    """Return the login user's home."""
    return os.environ.get("HOME") or pwd.getpwuid(os.getuid()).pw_dir


def as_root(command: list[str], process_tag: str, conf: Path, search_path: str) -> list[str]:
    """Return the command that starts a daemon as root; with its environment, because sudo drops it."""
    return [
        *SUDO,
        "env",
        "PATH=" + search_path,
        "SLURM_CONF=" + str(conf),
        ENGINE_VARIABLE + "=" + process_tag,
        *command,
    ]


def end_as_root(text: str, node_dir: Path, socket_dir: Path, process_tag: str, munge_pid: int | None) -> None:
    """End the processes of all users that run for Slurm on this node; `text` is that of `remote_processes.py`.

    Raises Fault with sudo's last line if that fails.
    """
    script = text + _END_SCRIPT.format(
        node_dir=str(node_dir),
        short=str(socket_dir),
        mark=process_tag,
        munge=munge_pid,
        spool=str(socket_dir / "spool"),
    )
    try:
        completed = subprocess.run(  # noqa: S603
            [*SUDO, "python3", "-IS", "-"],
            input=script.encode(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=SUDO_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise Fault(f"what runs there as root could not be ended: {error}") from None
    if completed.returncode:
        last_line = (completed.stderr.decode("utf-8", "replace").strip().splitlines() or ["no output"])[-1]
        raise Fault("what runs there as root could not be ended: " + last_line)
