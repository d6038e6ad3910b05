"""Runs slurmd as root, if several people use a node, and ends their processes.

This text is sent over SSH after `remote_place.py`. Standard library only, Python 3.8+.

Root is reached with `sudo -n`, which never asks for a password. Only slurmd runs as root: it runs each job as the user
who submitted it. The files that users have to read are in the short directory; they contain no secret.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from cloudgpu.access.slurm.remote_processes import ENGINE_VARIABLE, Fault

SUDO = ("sudo", "-n")
TIMEOUT_S = 30.0
_END = """
import shutil
end_all(Path({node_dir!r}), Path({short!r}), {mark!r}, {munge!r})
shutil.rmtree({spool!r}, ignore_errors=True)
"""


def can_use_sudo(path: str) -> bool:
    """Tell whether sudo makes this user root without a password."""
    if shutil.which("sudo", path=path) is None:
        return False
    try:
        completed = subprocess.run(  # noqa: S603
            [*SUDO, "id", "-u"],
            env={"PATH": path},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return completed.stdout.strip() == b"0"


def as_root(command: list[str], mark: str, conf: Path, path: str) -> list[str]:
    """Return the command that starts a daemon as root; with its environment, because sudo drops it."""
    return [*SUDO, "env", "PATH=" + path, "SLURM_CONF=" + str(conf), ENGINE_VARIABLE + "=" + mark, *command]


def end_as_root(text: str, node_dir: Path, short: Path, mark: str, munge: int | None) -> None:
    """End the processes of all users that run for Slurm on this node; `text` is that of `remote_processes.py`.

    Raises Fault with sudo's last line if that fails.
    """
    script = text + _END.format(
        node_dir=str(node_dir), short=str(short), mark=mark, munge=munge, spool=str(short / "spool")
    )
    try:
        completed = subprocess.run(  # noqa: S603
            [*SUDO, "python3", "-IS", "-"],
            input=script.encode(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise Fault(f"what runs there as root could not be ended: {error}") from None
    if completed.returncode:
        last = (completed.stderr.decode("utf-8", "replace").strip().splitlines() or ["no output"])[-1]
        raise Fault("what runs there as root could not be ended: " + last)
