"""Processes of a node's engine: its daemons by what was noted of them, and all that runs for it.

This file's text is sent over SSH before that of `remote_node.py`. Standard library only, Python 3.8+.

A daemon's environment has the mark of this node's engine, and so has that of each task (the task prolog sets it);
Slurm's step managers have the node's log open. What is found by neither descends from what is.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ENGINE_VARIABLE = "CLOUDGPU_ENGINE"
DAEMONS = ("munged", "slurmctld", "slurmd")
GENTLE_S, KILL_S = 2.0, 5.0
LAST_WORDS = 300
PROC = Path("/proc")


class Fault(Exception):
    """A request that cannot be carried out, in one sentence."""


def note(whole: Path, daemon: str, pid: int) -> None:
    """Remember a daemon's process: its number, and when it began."""
    write_private(whole / (daemon + ".process"), f"{pid} {start_ticks(pid)}".encode())


def daemons(whole: Path) -> dict[str, int]:
    """Return the daemons of this node with their process numbers, 0 for one that has ended."""
    found = {}
    for name in DAEMONS:
        try:
            pid, began = (int(word) for word in (whole / (name + ".process")).read_text().split())
        except (OSError, ValueError):
            continue
        found[name] = pid if lives(pid) and start_ticks(pid) == began else 0
    return found


def write_private(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Write a file whole, for this user alone."""
    fresh = path.with_name(".new-" + path.name)
    with os.fdopen(os.open(str(fresh), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)
    fresh.chmod(mode)
    fresh.replace(path)


def fields(pid: int) -> list[str]:
    """Return what the kernel says of a process, from its state on; nothing for one that is gone."""
    try:
        return (PROC / str(pid) / "stat").read_bytes().decode("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return []


def lives(pid: int) -> bool:
    """Tell whether a process lives."""
    return (fields(pid) or ["X"])[0] not in ("Z", "X")


def start_ticks(pid: int) -> int:
    """Return when a process began, in the kernel's ticks."""
    said = fields(pid)
    return int(said[19]) if said else 0


def engine_processes(whole: Path, short: Path, mark: str) -> list[int]:
    """Return the living processes of this node's engine, tasks included."""
    wanted, roots = f"{ENGINE_VARIABLE}={mark}".encode(), (f"{whole}/", f"{short}/")
    parents = {}
    found = set()
    for pid in [int(one.name) for one in PROC.iterdir() if one.name.isdigit()]:
        said = fields(pid)
        if not said or said[0] in ("Z", "X") or pid == os.getpid():
            continue
        parents[pid] = int(said[1])
        if is_marked(pid, wanted) or any(one.startswith(roots) for one in open_files(pid)):
            found.add(pid)
    more = set(found)
    while more:
        more = {pid for pid, parent in parents.items() if parent in found and pid not in found}
        found |= more
    return sorted(found)


def is_marked(pid: int, wanted: bytes) -> bool:
    """Tell whether a process was started with this mark."""
    try:
        return wanted in (PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return False


def open_files(pid: int) -> Iterator[str]:
    """Yield the files that a process has open, as far as we may know."""
    with contextlib.suppress(OSError):
        for one in (PROC / str(pid) / "fd").iterdir():
            with contextlib.suppress(OSError):
                yield os.readlink(str(one))


def end_processes(find: Callable[[], list[int]], gentle_s: float) -> None:
    """Ask processes to end, then kill them until none is left. Raises Fault where some do not go."""
    left = find()
    for number, within in ((signal.SIGTERM, gentle_s), (signal.SIGKILL, KILL_S)):
        until = time.monotonic() + within
        while left and time.monotonic() < until:
            for pid in left:
                with contextlib.suppress(OSError):
                    os.kill(pid, number)
            pause = min(until, time.monotonic() + 0.5)
            while time.monotonic() < pause and any(map(lives, left)):
                time.sleep(0.02)
            left = find()
    if left:
        raise Fault("some processes do not end: {}".format(", ".join(map(str, left))))


def end_all(whole: Path, short: Path, mark: str, munge: int | None) -> None:
    """End everything that runs for this node's engine, jobs too; munge, which the others ask, comes last."""
    end_processes(lambda: [pid for pid in engine_processes(whole, short, mark) if pid != munge], GENTLE_S)
    end_processes(lambda: engine_processes(whole, short, mark), GENTLE_S)


def last_line(daemon: str, *places: Path) -> str:
    """Return the last line that a daemon has written, of errors if there are any."""
    lines: list[str] = []
    for file in [place / (daemon + ending) for place in places for ending in (".log", ".out")]:
        with contextlib.suppress(OSError):
            text = file.read_bytes()[-20000:].decode("utf-8", "replace")
            lines += [line for line in text.splitlines() if line.strip()]
    bad = [line for line in lines if re.search("[Ee]rror|fatal", line)]
    return (bad or lines or ["it said nothing"])[-1].strip()[-LAST_WORDS:]
