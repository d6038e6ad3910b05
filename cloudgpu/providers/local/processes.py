"""Finds and ends all processes of one local machine, and never any other.

Every process of a machine inherits `CLOUDGPU_MACHINE=<id>@<digest of its directory>`, its mark; process groups are not
enough, for notebook kernels and terminals start sessions of their own. A process that cleaned its environment
still belongs to the machine while a marked one is its ancestor. A process marked for another machine does not.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from cloudgpu.core.values.naming import digest
from cloudgpu.errors import StopUnproved

if TYPE_CHECKING:
    import psutil

MARKER_VARIABLE = "CLOUDGPU_MACHINE"
TERM_WAIT_S = 2.0
KILL_TIMEOUT_S = 5.0
POLL_S = 0.02


def marker(directory: Path) -> str:
    """Return the mark of the machine in `directory`: the value of MARKER_VARIABLE in its processes."""
    return f"{directory.name}@{digest(os.path.realpath(directory))[:16]}"


def find_processes(mark: str, roots: tuple[int, ...] = ()) -> list[psutil.Process]:
    """Return the living processes that carry `mark` or descend from one that does, but not us.

    Descendants of `roots` (process ids) count, too.
    """
    import psutil

    parents: dict[int, list[psutil.Process]] = {}
    mark_by_pid: dict[int, str | None] = {}
    ended_statuses = (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    processes = psutil.process_iter(["ppid", "status"])
    living = {process.pid: process for process in processes if process.info["status"] not in ended_statuses}
    for process in living.values():
        parents.setdefault(process.info["ppid"], []).append(process)
        mark_by_pid[process.pid] = _marker_of(process)
    selected: dict[int, psutil.Process] = {}
    unvisited = [process for process in living.values() if mark_by_pid[process.pid] == mark or process.pid in roots]
    while unvisited:
        process = unvisited.pop()
        if process.pid not in selected:
            selected[process.pid] = process
            unvisited += [child for child in parents.get(process.pid, []) if mark_by_pid[child.pid] in (None, mark)]
    selected.pop(os.getpid(), None)
    return list(selected.values())


def _marker_of(process: psutil.Process) -> str | None:
    import psutil

    try:
        marker_text: str | None = process.environ().get(MARKER_VARIABLE)
    except (psutil.Error, OSError):
        return None
    return marker_text


def end_all(mark: str, *, roots: tuple[int, ...] = (), term_wait_s: float = 0.0) -> None:
    """End every process of the machine: SIGTERM, up to `term_wait_s` seconds to obey, then SIGKILL until none is left.

    psutil looks at a process's start time before it sends a signal, so a reused process number is never hit.
    Raises StopUnproved when some are left after five seconds (one that hangs in the kernel, say).
    """
    if term_wait_s > 0:
        signalled = find_processes(mark, roots)
        _send_signal(signalled, signal.SIGTERM)
        wait_for(lambda: not any(_is_running(process) for process in signalled), term_wait_s)
    deadline = time.monotonic() + KILL_TIMEOUT_S
    while remaining := find_processes(mark, roots):
        if time.monotonic() > deadline:
            pids = ", ".join(str(process.pid) for process in remaining)
            message = f"Processes of the machine {mark.partition('@')[0]} do not end: {pids}."
            raise StopUnproved(message, next="look at what they wait for, then end them by hand")
        _send_signal(remaining, signal.SIGKILL)
        wait_for(lambda gone=remaining: not any(_is_running(process) for process in gone), 1.0)  # type: ignore[misc]


def _send_signal(processes: list[psutil.Process], signal_number: signal.Signals) -> None:
    import psutil

    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.send_signal(signal_number)


def _is_running(process: psutil.Process) -> bool:
    import psutil

    try:
        return process.is_running() and process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.Error:
        return False


def terminate_process(pid: int, mark: str) -> None:
    """Send SIGTERM to `pid` if it carries `mark`."""
    import psutil

    with contextlib.suppress(psutil.Error, OSError):
        process = psutil.Process(pid)
        if _marker_of(process) == mark:
            process.terminate()


def wait_for(condition: Callable[[], bool], seconds: float) -> bool:
    """Wait until the condition holds, at most `seconds`; return whether it does."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_S)
    return True
