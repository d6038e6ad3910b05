"""Processes of Slurm on a node: its daemons, by the recorded process ids, and all that run for it.

This text is sent over SSH before `remote_node.py`. Standard library only, Python 3.8+.

The environment of daemons and of tasks (set by the task prolog) has ENGINE_VARIABLE with the value `process_tag`, which
is this node's; slurmstepd has the node's log open. `socket_dir` is the directory of the node's sockets. All other
processes of the node descend from these.
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
TERM_S, KILL_S = 2.0, 5.0  # how long processes may take to end after SIGTERM, and after SIGKILL
MAX_LINE_CHARS = 300
PROC = Path("/proc")


class Fault(Exception):
    """A request that failed, in one sentence."""


def record_process(node_dir: Path, daemon: str, pid: int) -> None:
    """Record a daemon's process id and start."""
    write_private(node_dir / (daemon + ".process"), f"{pid} {start_ticks(pid)}".encode())


def recorded_daemons(node_dir: Path) -> dict[str, int]:
    """Return the recorded daemons of this node with their process ids, 0 for one that has ended."""
    pids = {}
    for name in DAEMONS:
        try:
            pid, start = (int(field) for field in (node_dir / (name + ".process")).read_text().split())
        except (OSError, ValueError):
            continue
        pids[name] = pid if is_alive(pid) and start_ticks(pid) == start else 0
    return pids


def write_private(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Replace a file atomically, private to this user unless `mode` says otherwise."""
    new_file = path.with_name(".new-" + path.name)
    with os.fdopen(os.open(str(new_file), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)
    new_file.chmod(mode)
    new_file.replace(path)


def proc_stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the state on; empty for a process that is gone."""
    try:
        return (PROC / str(pid) / "stat").read_bytes().decode("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return []


def is_alive(pid: int) -> bool:
    """Tell whether a process exists and has not ended."""
    return (proc_stat(pid) or ["X"])[0] not in ("Z", "X")


def start_ticks(pid: int) -> int:
    """Return the start of a process in ticks; 0 for a process that is gone."""
    stat = proc_stat(pid)
    return int(stat[19]) if stat else 0


def engine_processes(node_dir: Path, socket_dir: Path, process_tag: str) -> list[int]:
    """Return the processes of Slurm on this node, tasks included."""
    variable, roots = f"{ENGINE_VARIABLE}={process_tag}".encode(), (f"{node_dir}/", f"{socket_dir}/")
    parents = {}
    engine_pids = set()
    for pid in [int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit()]:
        stat = proc_stat(pid)
        if not stat or stat[0] in ("Z", "X") or pid == os.getpid():
            continue
        parents[pid] = int(stat[1])
        if is_marked(pid, variable) or any(entry.startswith(roots) for entry in open_files(pid)):
            engine_pids.add(pid)
    children = set(engine_pids)
    while children:
        children = {pid for pid, parent in parents.items() if parent in engine_pids and pid not in engine_pids}
        engine_pids |= children
    return sorted(engine_pids)


def is_marked(pid: int, variable: bytes) -> bool:
    """Tell whether a process has this variable in its environment."""
    try:
        return variable in (PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return False


def open_files(pid: int) -> Iterator[str]:
    """Yield the open files of a process, as far as we may read them."""
    with contextlib.suppress(OSError):
        for entry in (PROC / str(pid) / "fd").iterdir():
            with contextlib.suppress(OSError):
                yield os.readlink(str(entry))


def end_processes(find: Callable[[], list[int]], term_s: float) -> None:
    """End the processes that `find` returns, with SIGTERM, then SIGKILL. Raises Fault if it still returns some."""
    remaining = find()
    for signal_number, timeout_s in ((signal.SIGTERM, term_s), (signal.SIGKILL, KILL_S)):
        deadline = time.monotonic() + timeout_s
        while remaining and time.monotonic() < deadline:
            for pid in remaining:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal_number)
            checked_again_at = min(deadline, time.monotonic() + 0.5)
            while time.monotonic() < checked_again_at and any(map(is_alive, remaining)):
                time.sleep(0.02)
            remaining = find()
    if remaining:
        raise Fault("some processes do not end: {}".format(", ".join(map(str, remaining))))


def end_all(node_dir: Path, socket_dir: Path, process_tag: str, munge_pid: int | None) -> None:
    """End all processes of Slurm on this node, jobs too; munged (`munge_pid`) last: the others use it."""
    end_processes(
        lambda: [pid for pid in engine_processes(node_dir, socket_dir, process_tag) if pid != munge_pid], TERM_S
    )
    end_processes(lambda: engine_processes(node_dir, socket_dir, process_tag), TERM_S)


def last_line(daemon: str, *directories: Path) -> str:
    """Return the last line of a daemon's output, of its errors if there are any."""
    lines: list[str] = []
    for file in [directory / (daemon + suffix) for directory in directories for suffix in (".log", ".out")]:
        with contextlib.suppress(OSError):
            text = file.read_bytes()[-20000:].decode("utf-8", "replace")
            lines += [line for line in text.splitlines() if line.strip()]
    error_lines = [line for line in lines if re.search("[Ee]rror|fatal", line)]
    return (error_lines or lines or ["it said nothing"])[-1].strip()[-MAX_LINE_CHARS:]
