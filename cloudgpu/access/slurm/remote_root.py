"""What only root can do for a node's engine: run slurmd for several people, and end what runs under their names.

This file's text is sent over SSH behind that of `remote_place.py`. Standard library only, Python 3.8+.

Root is asked for by `sudo -n`, which never waits for a password. Only slurmd runs as root: it runs each job as the
person who submitted it. What these people have to read is beside the node's sockets, with no secret in it.
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
end_all(Path({whole!r}), Path({short!r}), {mark!r}, {munge!r})
shutil.rmtree({spool!r}, ignore_errors=True)
"""


def may_be_root(path: str) -> bool:
    """Tell whether sudo makes this user root without a password."""
    if shutil.which("sudo", path=path) is None:
        return False
    try:
        done = subprocess.run(  # noqa: S603
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
    return done.stdout.strip() == b"0"


def as_root(command: list[str], mark: str, conf: Path, path: str) -> list[str]:
    """Return the command that starts a daemon as root: sudo keeps no environment, so it is given there."""
    return [*SUDO, "env", "PATH=" + path, "SLURM_CONF=" + str(conf), ENGINE_VARIABLE + "=" + mark, *command]


def end_as_root(text: str, whole: Path, short: Path, mark: str, munge: int | None) -> None:
    """End all that runs for this node's engine, whoever it runs as; `text` is that of `remote_processes.py`.

    Raises Fault with sudo's words where it does not go.
    """
    script = text + _END.format(whole=str(whole), short=str(short), mark=mark, munge=munge, spool=str(short / "spool"))
    try:
        done = subprocess.run(  # noqa: S603
            [*SUDO, "python3", "-IS", "-"],
            input=script.encode(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise Fault(f"what runs there as root could not be ended: {error}") from None
    if done.returncode:
        last = (done.stderr.decode("utf-8", "replace").strip().splitlines() or ["no word"])[-1]
        raise Fault("what runs there as root could not be ended: " + last)
