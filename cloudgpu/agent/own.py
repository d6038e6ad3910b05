"""Meters of a machine that shares its computer with others: only its own processes count.

Such machines (`local`, `ssh`) get this file beside the agent's, unchanged: standard library, Python 3.8+.
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
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
PTS_MAJOR = 136  # the major device number of pseudo-terminals
GPU_DEVICES = ("/dev/nvidia", "/dev/dxg")  # a process that uses a GPU has one of these open; the second is that of WSL
QUERY = "timeout -s KILL 20 nvidia-smi --query-gpu=power.draw,utilization.gpu --format=csv,noheader,nounits".split()
QUERY_EVERY = 10.0  # seconds between two queries of power and utilisation
WORKING_PERCENT = 3.0  # utilisation from which a GPU counts as working: the default threshold of idleness
STALE_AFTER = 30.0  # seconds without an answer, after which energy is not counted
MAX_WATTS = 50_000.0  # of one computer's GPUs: more is not a reading, and the reader of samples would refuse them all
SAMPLE_LENGTH = 75.0  # the longest sample in seconds: one that was not fully counted must not give a mean


class Meters(dict):  # type: ignore[type-arg]  # (Python 3.8 has no dict[...] to inherit from)
    """Meters by name. A missing one was not read, so it is None; `gpus` begins at 0."""

    def __missing__(self, name: str) -> Any:
        return 0.0 if name == "gpus" else None


class WorkingGpus:
    """Counts GPU-seconds of work while the machine used GPUs, so that their mean over time is a number of GPUs.

    Each answer of nvidia-smi counts until the next one.
    """

    def __init__(self) -> None:
        self.gpu_seconds: float | None = None  # None: never reported
        self.answered_at: float | None = None  # None: the machine uses no GPU
        self.stepped_at = self.unknown_until = 0.0
        self.working = 0  # GPUs at work by the last answer

    def step(self, now: float, *, uses_gpus: bool, working: int | None) -> dict[str, float | None]:
        """Count until `now`, with the number of working GPUs if nvidia-smi reported it; return the meter `gpus`.

        No key: never reported; None: not known at the moment.
        """
        if self.gpu_seconds is not None:
            self.gpu_seconds += self.working * (now - self.stepped_at)
        self.stepped_at = now
        if not uses_gpus:
            self.answered_at, self.working = None, 0
        elif self.answered_at is None:
            self.answered_at = now
        if working is not None and self.answered_at is not None:
            if now - self.answered_at > STALE_AFTER:
                self.unknown_until = now + SAMPLE_LENGTH
            self.answered_at, self.working, self.gpu_seconds = now, working, self.gpu_seconds or 0.0
        if self.gpu_seconds is None:
            return {}
        is_stale = self.answered_at is not None and now - self.answered_at > STALE_AFTER
        return {"gpus": None if is_stale or now < self.unknown_until else self.gpu_seconds}


class Energy:
    """Counts the joules that GPUs drew while the machine used any: its own GPUs, else all of the computer's.

    Times are seconds of one monotonic clock. Each answer of nvidia-smi is counted for the time since the one before.
    Nobody waits for nvidia-smi: it may hang.
    """

    def __init__(self) -> None:
        self.joules: float | None = None
        self.answered_at: float | None = None
        self.unknown_until, self.steps = 0.0, 0
        self.queried_at = -QUERY_EVERY
        self.smi: Any = None
        self.output: Any = None
        self.working_gpus = WorkingGpus()

    def step(self, now: float, *, uses_gpus: bool, marks: list[str]) -> dict[str, float | None]:
        """Read the last query's answer, start the next query; return the meters `power` and `gpus`.

        No key: never reported; None: not known at the moment. The first step starts no query.
        """
        self.steps += 1
        if not uses_gpus:
            self.answered_at = None
        elif self.answered_at is None:
            self.answered_at = now
        lines = self.read_answer()
        watts, gpus_meter = (
            total_watts(lines),
            self.working_gpus.step(now, uses_gpus=uses_gpus, working=count_working(lines)),
        )
        if watts is not None and self.answered_at is not None:
            if now - self.answered_at <= STALE_AFTER:
                self.joules = (self.joules or 0.0) + watts * (now - self.answered_at)
            else:
                self.unknown_until = now + SAMPLE_LENGTH
            self.answered_at = now
        if uses_gpus and self.steps > 1 and self.smi is None and now - self.queried_at >= QUERY_EVERY:
            self.start_query(now, marks)
        if self.joules is None:
            return gpus_meter
        is_stale = self.answered_at is not None and now - self.answered_at > STALE_AFTER
        return {**gpus_meter, "power": None if is_stale or now < self.unknown_until else self.joules}

    def read_answer(self) -> list[bytes]:
        """Return the finished query's lines, one per GPU; empty when there is no new answer."""
        if self.smi is None or self.smi.poll() is None:
            return []
        smi, self.smi = self.smi, None
        with self.output as output, suppress(OSError):
            output.seek(0)
            lines: list[bytes] = output.read(4096).splitlines()
            return lines if smi.returncode == 0 else []
        return []

    def start_query(self, now: float, marks: list[str]) -> None:
        """Start nvidia-smi without `marks` in its environment, so that it does not count as the machine's."""
        self.queried_at = now
        own_gpus = os.environ.get("CUDA_VISIBLE_DEVICES", "")  # set where the machine has some of the computer's GPUs
        selection = ["-i", own_gpus] if own_gpus.startswith("GPU-") else []
        environ = {
            name: text for name, text in os.environ.items() if not any(mark in f"{name}={text}" for mark in marks)
        }
        null = subprocess.DEVNULL
        with suppress(OSError):
            self.output = tempfile.TemporaryFile()  # noqa: SIM115  (`read_answer` closes it)
            self.smi = subprocess.Popen(  # noqa: S603
                [*QUERY, *selection], stdin=null, stdout=self.output, stderr=null, env=environ, start_new_session=True
            )


def total_watts(lines: list[bytes]) -> float | None:
    """Return the watts of all GPUs together, None when one is missing or implausible."""
    with suppress(ValueError):
        watts = [float(line.split(b",")[0]) for line in lines]
        if watts and min(watts) >= 0 and sum(watts) < MAX_WATTS:
            return sum(watts)
    return None


def count_working(lines: list[bytes]) -> int | None:
    """Return how many GPUs are at work, None when one did not report it."""
    with suppress(ValueError, IndexError):
        percents = [float(line.split(b",")[1]) for line in lines]
        if percents:
            return sum(percent >= WORKING_PERCENT for percent in percents)
    return None


CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # counts while the computer sleeps, as samples do
ENERGY = Energy()  # meters begin at 0 when the agent starts


class Process(NamedTuple):
    """One of the machine's processes, with its ended children; `terminal` is the `tty_nr` of proc(5)."""

    cpu_ticks: int
    written_bytes: int
    disk_bytes: int
    terminal: int
    start_ticks: int


def processes(marks: Iterable[str]) -> dict[int, Process]:
    """Return the machine's processes by process id, without this one.

    Their environment has one of `marks` (texts like NAME=value), or they are children of such processes.
    """
    found: dict[int, Process] = {}
    encoded_marks, own_pid = [mark.encode() for mark in marks], os.getpid()
    for pid in sorted(int(name) for name in _proc_entries() if name.isdigit()):
        with suppress(OSError, ValueError, IndexError):  # it has ended, or belongs to another user
            environ = _read(pid, "environ")
            stat_fields = [int(mark) for mark in _read(pid, "stat").rpartition(b") ")[2].split()[1:20]]
            if pid != own_pid and (
                stat_fields[0] in found or any(encoded_mark in environ for encoded_mark in encoded_marks)
            ):
                io_counters = [int(line.split()[1]) for line in _read(pid, "io").splitlines()]
                found[pid] = Process(
                    sum(stat_fields[10:14]),
                    io_counters[1],
                    io_counters[4] + io_counters[5],
                    stat_fields[3],
                    stat_fields[18],
                )
    return found


def _proc_entries() -> list[str]:
    with suppress(FileNotFoundError):
        return os.listdir(PROC)  # noqa: PTH208  (twice as fast, and called every few seconds)
    return []


def _read(pid: int, name: str) -> bytes:
    with open(f"{PROC}/{pid}/{name}", "rb", buffering=0) as file:  # noqa: PTH123  (the same)
        return file.read()


def read_own_meters(marks: Iterable[str]) -> tuple[Any, dict[str, Any], list[str], bool]:
    """Return since when it is up (seconds after the boot, None: just now), meters, terminals, whether it uses GPUs.

    Network bytes of one process cannot be read: all bytes that it wrote count instead, so that a download shows.
    `power` is joules so far, so that its mean is in watts, and `gpus` GPU-seconds of work. Meters are None where there
    is no /proc (macOS): then activity is unknown, and no machine ends for idle time.
    """
    own_processes = processes(marks)
    if not PROC.exists():
        return None, {"cpu": None, "net": None, "disk": None}, [], True
    up = min((process.start_ticks for process in own_processes.values()), default=None)
    ticks, written_bytes, disk_bytes = (sum(process[index] for process in own_processes.values()) for index in range(3))
    uses_gpus = any(map(_uses_gpu, own_processes))
    gpu_meters = ENERGY.step(time.clock_gettime(CLOCK), uses_gpus=uses_gpus, marks=list(marks))
    meters = Meters(cpu=ticks / TICKS_PER_SECOND, net=written_bytes, disk=disk_bytes, **gpu_meters)
    return up and up / TICKS_PER_SECOND, meters, terminals(own_processes.values()), uses_gpus


def _uses_gpu(pid: int) -> bool:
    """Tell whether a process has a GPU open; nvidia-smi, which looks at all of them, uses none."""
    with suppress(OSError):
        if _read(pid, "comm") == b"nvidia-smi\n":
            return False
        return any(os.readlink(path).startswith(GPU_DEVICES) for path in (PROC / str(pid) / "fd").iterdir())  # noqa: PTH115
    return False


def terminals(own_processes: Iterable[Process]) -> list[str]:
    """Return the paths of the terminals of these processes. Source: proc(5), `tty_nr`: minor in bits 31-20 and 7-0."""
    numbers = sorted({process.terminal for process in own_processes})
    return [
        f"/dev/pts/{number >> 12 & 0xFFF00 | number & 0xFF}" for number in numbers if number >> 8 & 0xFFF == PTS_MAJOR
    ]
