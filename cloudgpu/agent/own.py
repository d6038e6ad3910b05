"""What a machine shows that shares its computer with others: its own processes alone count.

It travels beside the agent to such machines only (`local`, `ssh`), as it is: standard library, Python 3.8+.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

PROC = Path("/proc")
TICK = os.sysconf("SC_CLK_TCK")
PTS = 136  # the number of pseudo-terminals among devices
GPU = ("/dev/nvidia", "/dev/dxg")  # what a process has open that uses one; the second is WSL's
ASK = "timeout -s KILL 20 nvidia-smi --query-gpu=power.draw,utilization.gpu --format=csv,noheader,nounits".split()
EVERY = 10.0  # seconds between two questions for power and utilisation
WORKS = 3.0  # percent: from there on a GPU is at work, by the usual threshold of idleness
STALE = 30.0  # seconds: energy is counted over no longer time without an answer
MOST = 50_000.0  # watts of one computer's GPUs: more is no reading, and who hears the samples would refuse them all
SAMPLE = 75.0  # seconds that a sample takes at most: one in which some was not counted must not say a mean


class Meters(dict):  # type: ignore[type-arg]  # (Python 3.8 has no dict[...] to inherit from)
    """Meters by name. One that is not there was not read: the power is there once nvidia-smi has told it.

    Before that no GPU was counted at work, so that this meter began at 0.
    """

    def __missing__(self, name: str) -> Any:
        return 0.0 if name == "gpus" else None


class Working:
    """Seconds of GPUs that were at work while the machine used any, so that their mean is a number of GPUs.

    Each answer of nvidia-smi stands until the next one.
    """

    def __init__(self) -> None:
        self.seconds: float | None = None
        self.since: float | None = None
        self.last = self.blind = 0.0
        self.count = 0

    def step(self, now: float, *, uses: bool, gpus: int | None) -> dict[str, float | None]:
        """Take how many were told to work; return the meter. No key: it was never told; None: not at the moment."""
        if self.seconds is not None:
            self.seconds += self.count * (now - self.last)
        self.last = now
        if not uses:
            self.since, self.count = None, 0
        elif self.since is None:
            self.since = now
        if gpus is not None and self.since is not None:
            if now - self.since > STALE:
                self.blind = now + SAMPLE
            self.since, self.count, self.seconds = now, gpus, self.seconds or 0.0
        if self.seconds is None:
            return {}
        lost = self.since is not None and now - self.since > STALE
        return {"gpus": None if lost or now < self.blind else self.seconds}


class Energy:
    """Joules that GPUs drew while the machine used any: its own GPUs, else all of the computer's.

    All times are seconds of one steady clock.

    Each answer of nvidia-smi stands for the time since the one before. Nobody waits for it: it may hang.
    """

    def __init__(self) -> None:
        self.joules: float | None = None
        self.since: float | None = None
        self.blind, self.looks = 0.0, 0
        self.asked = -EVERY
        self.smi: Any = None
        self.out: Any = None
        self.working = Working()

    def step(self, now: float, *, uses: bool, marks: list[str]) -> dict[str, float | None]:
        """Take what was answered and ask again; return both meters. No key: never told; None: not at the moment.

        A process that looks once asks nothing.
        """
        self.looks += 1
        if not uses:
            self.since = None
        elif self.since is None:
            self.since = now
        rows = self.answer()
        watts, working = watts_of(rows), self.working.step(now, uses=uses, gpus=count_of(rows))
        if watts is not None and self.since is not None:
            if now - self.since <= STALE:
                self.joules = (self.joules or 0.0) + watts * (now - self.since)
            else:
                self.blind = now + SAMPLE
            self.since = now
        if uses and self.looks > 1 and self.smi is None and now - self.asked >= EVERY:
            self.ask(now, marks)
        if self.joules is None:
            return working
        lost = self.since is not None and now - self.since > STALE
        return {**working, "power": None if lost or now < self.blind else self.joules}

    def answer(self) -> list[bytes]:
        """Return a line for each GPU, as it was told since the last time; none where nothing was."""
        if self.smi is None or self.smi.poll() is None:
            return []
        smi, self.smi = self.smi, None
        with self.out as out, suppress(OSError):
            out.seek(0)
            told: list[bytes] = out.read(4096).splitlines()
            return told if smi.returncode == 0 else []
        return []

    def ask(self, now: float, marks: list[str]) -> None:
        """Start nvidia-smi, without the marks by which the machine's own processes are known; it writes to no pipe."""
        self.asked = now
        its = os.environ.get(
            "CUDA_VISIBLE_DEVICES", ""
        )  # of the machine's own, where it has some of the computer's GPUs
        only = ["-i", its] if its.startswith("GPU-") else []
        environ = {name: text for name, text in os.environ.items() if not any(one in f"{name}={text}" for one in marks)}
        null = subprocess.DEVNULL
        with suppress(OSError):
            self.out = tempfile.TemporaryFile()  # noqa: SIM115  (`answer` closes it)
            self.smi = subprocess.Popen(  # noqa: S603
                [*ASK, *only], stdin=null, stdout=self.out, stderr=null, env=environ, start_new_session=True
            )


def watts_of(rows: list[bytes]) -> float | None:
    """Return the watts of all GPUs; those of a part are no sum."""
    with suppress(ValueError):
        told = [float(row.split(b",")[0]) for row in rows]
        if told and min(told) >= 0 and sum(told) < MOST:
            return sum(told)
    return None


def count_of(rows: list[bytes]) -> int | None:
    """Return how many GPUs are at work, where each of them told."""
    with suppress(ValueError, IndexError):
        told = [float(row.split(b",")[1]) for row in rows]
        if told:
            return sum(one >= WORKS for one in told)
    return None


CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # goes on while the computer sleeps, as samples do
ENERGY = Energy()  # of this agent's life: meters begin anew with each


class Process(NamedTuple):
    """One of our processes: ticks of the processor, bytes written, bytes to and from disks, terminal, start in ticks.

    With its children that have ended; of those that live, each counts for itself.
    """

    ticks: int
    wrote: int
    moved: int
    terminal: int
    start: int


def processes(names: Iterable[str]) -> dict[int, Process]:
    """Return the processes whose environment has one of `names`, and their children, but not this one."""
    found: dict[int, Process] = {}
    marks, me = [word.encode() for word in names], os.getpid()
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


def machine(names: Iterable[str]) -> tuple[Any, dict[str, Any], list[str], bool]:
    """Return since when it is up (seconds after the boot, None: just now), meters, terminals, whether it uses GPUs.

    A process tells no network: what it wrote anywhere stands for that, so a download that is saved shows. `power` is
    joules so far, so that its mean is in watts, and `gpus` seconds of GPUs at work. Meters are None where there is no
    /proc (macOS): then nothing is known, and nothing ends for idle time.
    """
    found = processes(names)
    if not PROC.exists():
        return None, {"cpu": None, "net": None, "disk": None}, [], True
    up = min((one.start for one in found.values()), default=None)
    ticks, wrote, moved = (sum(one[index] for one in found.values()) for index in range(3))
    uses = any(map(_uses_gpu, found))
    power = ENERGY.step(time.clock_gettime(CLOCK), uses=uses, marks=list(names))
    meters = Meters(cpu=ticks / TICK, net=wrote, disk=moved, **power)
    return up and up / TICK, meters, terminals(found.values()), uses


def _uses_gpu(pid: int) -> bool:
    """Tell whether a process has a GPU open; nvidia-smi, which looks at all of them, uses none."""
    with suppress(OSError):
        if _read(pid, "comm") == b"nvidia-smi\n":
            return False
        return any(os.readlink(path).startswith(GPU) for path in (PROC / str(pid) / "fd").iterdir())  # noqa: PTH115
    return False


def terminals(found: Iterable[Process]) -> list[str]:
    """Return the paths of the terminals of these processes. Source: proc(5), `tty_nr`: minor in bits 31-20 and 7-0."""
    numbers = sorted({one.terminal for one in found})
    return [f"/dev/pts/{one >> 12 & 0xFFF00 | one & 0xFF}" for one in numbers if one >> 8 & 0xFFF == PTS]
