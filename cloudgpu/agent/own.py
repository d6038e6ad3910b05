"""What a machine shows that shares its computer with others: its own processes alone count.

It travels beside the agent to such machines only (`local`, `ssh`), as it is: standard library, Python 3.8+.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

PROC = Path("/proc")
TICK = os.sysconf("SC_CLK_TCK")
PTS = 136  # the number of pseudo-terminals among devices
GPU = ("/dev/nvidia", "/dev/dxg")  # what a process has open that uses one; the second is WSL's


class Process(NamedTuple):
    """One of our processes: ticks of the processor, bytes written, bytes to and from disks, terminal, start in ticks.

    With its children that have ended; of those that live, each counts for itself.
    """

    ticks: int
    wrote: int
    moved: int
    terminal: int
    start: int


def processes(words: Iterable[str]) -> dict[int, Process]:
    """Return the processes whose environment has one of `words`, and their children, but not this one."""
    found: dict[int, Process] = {}
    marks, me = [word.encode() for word in words], os.getpid()
    for pid in sorted(int(name) for name in _names() if name.isdigit()):
        with suppress(OSError, ValueError, IndexError):  # it has ended, or is another user's
            environ = _read(pid, "environ")
            facts = [int(word) for word in _read(pid, "stat").rpartition(b") ")[2].split()[1:20]]
            if pid != me and (facts[0] in found or any(mark in environ for mark in marks)):
                said = [int(line.split()[1]) for line in _read(pid, "io").splitlines()]
                found[pid] = Process(sum(facts[10:14]), said[1], said[4] + said[5], facts[3], facts[18])
    return found


def _names() -> list[str]:
    with suppress(FileNotFoundError):
        return os.listdir(PROC)  # noqa: PTH208  (twice as fast, and done every few seconds)
    return []


def _read(pid: int, name: str) -> bytes:
    with open(f"{PROC}/{pid}/{name}", "rb", buffering=0) as file:  # noqa: PTH123  (the same)
        return file.read()


def machine(words: Iterable[str]) -> tuple[Any, dict[str, Any], list[str], bool]:
    """Return since when it is up (seconds after the boot, None: just now), meters, terminals, whether it uses GPUs.

    A process tells no network: what it wrote anywhere stands for that, so a download that is saved shows. Meters are
    None where there is no /proc (macOS): then nothing is known, and nothing ends for idle time.
    """
    found = processes(words)
    if not PROC.exists():
        return None, {"cpu": None, "net": None, "disk": None}, [], True
    up = min((one.start for one in found.values()), default=None)
    ticks, wrote, moved = (sum(one[index] for one in found.values()) for index in range(3))
    meters = {"cpu": ticks / TICK, "net": wrote, "disk": moved}
    return up and up / TICK, meters, terminals(found.values()), any(map(_uses_gpu, found))


def _uses_gpu(pid: int) -> bool:
    with suppress(OSError):
        return any(os.readlink(path).startswith(GPU) for path in (PROC / str(pid) / "fd").iterdir())  # noqa: PTH115
    return False


def terminals(found: Iterable[Process]) -> list[str]:
    """Return the paths of the terminals of these processes. Source: proc(5), `tty_nr`: minor in bits 31-20 and 7-0."""
    numbers = sorted({one.terminal for one in found})
    return [f"/dev/pts/{one >> 12 & 0xFFF00 | one & 0xFF}" for one in numbers if one >> 8 & 0xFFF == PTS]
