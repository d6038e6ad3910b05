"""One attempt of a job on the machine it runs on: its files, what they say of it, and the exit status, written once.

This file's text is sent over SSH between those of `remote_files.py` and `remote_job.py` (`access/jobs/program.py` does
it). Standard library only, Python 3.8+.

`~/.cloudgpu/jobs/JOB/NUMBER/` is one attempt. `keeper.lock` is locked while the keeper lives, and by a command until
it has begun; `supervisor.lock` while a supervisor does. Whoever writes `exit.json` holds `keeper.lock`. `process` is
made by the command's own process right before it becomes the command, and never again: an attempt begins once.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator

from cloudgpu.access.jobs.remote_files import (
    Fault,
    create,
    is_locked,
    load,
    safe_path,
    size_below,
    sync_directory,
    take_lock,
)

PROC = Path("/proc")
RESERVED = 4096  # bytes of exit.json: they are there before the disk can be full
PROGRESS = 4096  # bytes of the command's own word that are read
UNFINISHED_SUFFIXES = (".tmp", ".part")
VOLUME = "/data"  # where a volume is mounted; CLOUDGPU_VOLUME names another directory
VARIABLE = "CLOUDGPU_ATTEMPT"  # in the environment of a command, and so of all that it starts
KILLED_S = 2.0  # how long processes are killed that a process that is being killed may still start


def root_dir() -> Path:
    """Return the directory of ours on this machine."""
    return Path.home() / ".cloudgpu"


def volume() -> Path:
    """Return where a volume is mounted."""
    return Path(os.environ.get("CLOUDGPU_VOLUME") or VOLUME)


def is_mounted() -> bool:
    """Tell whether a volume is there; another directory that is named for it counts as it is."""
    return volume().is_dir() if os.environ.get("CLOUDGPU_VOLUME") else os.path.ismount(VOLUME)


def monotonic() -> float:
    """Return seconds since the boot, sleep included where the system can tell."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def boot() -> str:
    """Return what tells this boot from any other, empty where the system does not say."""
    try:
        return (PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            ask = ["/usr/sbin/sysctl", "-n", "kern.bootsessionuuid"]
            return subprocess.run(ask, stdout=subprocess.PIPE, check=True, timeout=5).stdout.decode().strip()  # noqa: S603
        return ""


def facts(pid: int) -> list[str]:
    """Return the words of /proc/PID/stat behind the name: state, parent, group..., the start; none for no process."""
    try:
        return (PROC / str(pid) / "stat").read_text(errors="replace").rpartition(") ")[2].split()
    except OSError:
        return []


def group_lives(pid: int, start: str) -> bool:
    """Tell whether a process of this group lives; `start` is when its leader began, which its number may outlive."""
    try:
        os.killpg(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    leader = facts(pid)
    if not PROC.exists() or (leader and leader[0] not in "ZX"):
        return not leader or not start or leader[19] == start
    members = (facts(int(name)) for name in os.listdir(str(PROC)) if name.isdigit())  # noqa: PTH208
    return any(one and one[0] not in "ZX" and one[2] == str(pid) for one in members)


def send_signal(pid: int, number: int) -> None:
    """Send a signal to a process group that may be gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def marked(mark: bytes) -> Iterator[int]:
    """Yield our living processes with this in their environment: none where the system does not show that."""
    for name in os.listdir(str(PROC)) if PROC.exists() else ():  # noqa: PTH208
        if name.isdigit() and int(name) != os.getpid():
            with contextlib.suppress(OSError):  # another user's, or it has just ended
                if mark in (PROC / name / "environ").read_bytes().split(b"\0"):
                    yield int(name)


def written_until(path: Path, since: float) -> tuple[int, int]:
    """Return how much of both streams had been written by then, by the file that `Attempt.index` writes."""
    found = (0, 0)
    with contextlib.suppress(OSError), path.open() as file:
        for line in file:
            words = line.split()
            if len(words) != 3 or float(words[0]) > since:  # noqa: PLR2004
                break
            found = (int(words[1]), int(words[2]))
    return found


class Attempt:
    """One attempt, by its directory."""

    def __init__(self, job: str, number: int) -> None:
        if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,63}", job) or int(number) < 1:
            raise Fault("invalid", f"{job!r} is no job, or {number!r} no attempt")
        self.job, self.number = job, int(number)
        self.dir = root_dir() / "jobs" / job / str(self.number)
        self.work, self.out, self.err = self.dir / "work", self.dir / "out", self.dir / "err"
        self.keeper, self.supervisor = self.dir / "keeper.lock", self.dir / "supervisor.lock"
        self.progress, self.times = self.dir / "progress.json", self.dir / "times"
        self.mark = str(self.dir)  # whole: other homes of this user may have a job of the same number
        self.known: dict[str, Any] = {}
        self.signalled = False
        self.sizes = (0, 0)
        self.indexed = 0.0

    @property
    def spec(self) -> dict[str, Any]:
        """What is to run, without secrets."""
        if not self.known:
            found = load(self.dir / "spec.json")
            self.known = found if isinstance(found, dict) else {}
        return self.known

    @property
    def volume(self) -> Path | None:
        """Return the job's directory on a volume, None where results do not go there."""
        own = self.spec.get("volume")
        return volume() / "cloudgpu" / safe_path(str(own)) if own else None

    @property
    def results(self) -> Path:
        """Where the command writes its results."""
        if self.volume is not None:
            return self.volume / "results"
        return self.work / safe_path(str(self.spec.get("results") or "results"))

    @property
    def checkpoint(self) -> Path:
        """Where the command writes its checkpoints."""
        if self.volume is not None:
            return self.volume / "checkpoints"
        own = self.spec.get("checkpoint")
        return self.work / safe_path(str(own)) if own else self.dir / "checkpoint"

    def process(self) -> dict[str, Any]:
        """Return the process that became the command, and when; empty before that."""
        found = load(self.dir / "begun")
        return found if isinstance(found, dict) else {}

    def exit(self) -> dict[str, Any]:
        """Return how it ended; empty before that."""
        found = load(self.dir / "exit.json")
        return found if isinstance(found, dict) else {}

    def stop(self) -> dict[str, Any]:
        """Return who had it ended; empty where nobody has."""
        found = load(self.dir / "stop.json")
        return found if isinstance(found, dict) else {}

    def reserve(self) -> None:
        """Take the room for what must be written even when the disk is full. Raises OSError."""
        for name in ("exit.new", "stop.new"):
            with os.fdopen(create(self.dir / name, os.O_WRONLY | os.O_TRUNC), "wb", 0) as file:
                file.write(b" " * RESERVED)
                os.fsync(file.fileno())

    def write(self, name: str, value: dict[str, Any]) -> None:
        """Write a file into the room that was taken for it, then give it its name: on the disk, or not at all."""
        fresh = self.dir / f"{name}.new"
        with os.fdopen(create(fresh), "r+b", 0) as file:
            file.write(json.dumps(value).encode()[:RESERVED].ljust(RESERVED))
            os.fsync(file.fileno())
        fresh.replace(self.dir / f"{name}.json")
        sync_directory(self.dir)

    def record(self, status: int | None, reason: str, why: str = "") -> None:
        """Write how it ended, once; whoever calls holds keeper.lock. `status` is as waitpid gives it."""
        if self.exit():
            return
        number = os.WTERMSIG(status) if status is not None and os.WIFSIGNALED(status) else None
        code = None if status is None else 128 + number if number else os.WEXITSTATUS(status)
        if number and reason == "exited" and self.spec.get("slurm"):  # what followed the job; Slurm has it still
            reason = "lost"
        reason = self.stop().get("reason") or reason
        self.write("exit", {"status": code, "signal": number, "reason": reason, "ended": time.time(), "why": why[:500]})

    def ask_to_stop(self, reason: str, grace: float) -> None:
        """Write that it is to end; the first reason stays, and the shortest grace."""
        known = self.stop()
        if not known or grace < known["grace"]:
            value = {"reason": reason, "mono": monotonic(), **known, "grace": grace}
            self.write("stop", value)

    def lives(self, process: dict[str, Any]) -> bool:
        """Tell whether the command, or anything that it started in its group, runs."""
        return process.get("boot") == boot() and group_lives(process["pid"], process["start"])

    def outside_group(self) -> list[int]:
        """Return the processes that the command started and that have left its group: by setsid, say."""
        return list(marked(f"{VARIABLE}={self.mark}".encode()))

    def signal_all(self, process: dict[str, Any], number: int) -> None:
        """Send a signal to the command and to all that it has started."""
        if self.lives(process):
            send_signal(process["pid"], number)
        for pid in self.outside_group():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)

    def kill(self, process: dict[str, Any]) -> None:
        """Kill the command and all that it has started, until nothing is left or something cannot be killed."""
        end = monotonic() + KILLED_S
        self.signal_all(process, signal.SIGKILL)
        while (self.lives(process) or self.outside_group()) and monotonic() < end:
            time.sleep(0.02)
            self.signal_all(process, signal.SIGKILL)

    # -- what a supervisor does

    def enforce(self, process: dict[str, Any]) -> None:
        """End the command when its time is over or somebody had it ended: SIGTERM first, SIGKILL after its grace."""
        spec = self.spec
        if spec.get("timeout") and monotonic() - process["mono"] > spec["timeout"] and not self.stop():
            self.ask_to_stop("timeout", spec.get("grace", 10.0))
        stop = self.stop()
        if stop and not self.signalled:
            self.signalled = True
            self.signal_all(process, signal.SIGTERM)
            self.signal_all(process, signal.SIGCONT)
        if stop and monotonic() - stop["mono"] > stop["grace"]:
            self.signal_all(process, signal.SIGKILL)

    def index(self, *, now: bool = False) -> None:
        """Note how much was written by when, once a second at most: `logs --since` reads it."""
        sizes = (size_of(self.out), size_of(self.err))
        if sizes != self.sizes and (now or monotonic() - self.indexed >= 1):
            self.sizes, self.indexed = sizes, monotonic()
            with contextlib.suppress(OSError), os.fdopen(create(self.times, os.O_WRONLY | os.O_APPEND), "w") as f:
                f.write(f"{time.time():.3f} {sizes[0]} {sizes[1]}\n")

    def index_rest(self) -> None:
        """Note what was written since the last note: whoever copies the index has all of the output in it."""
        with contextlib.suppress(OSError, ValueError, IndexError), self.times.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 200))
            words = file.read().split()
            self.sizes = int(words[-2]), int(words[-1])
        self.index(now=True)

    def kill_setup(self) -> None:
        """End a setup whose keeper was killed."""
        known = load(self.dir / "setup.json") or {}
        if known.get("boot") == boot() and group_lives(known["pid"], known["start"]):
            send_signal(known["pid"], signal.SIGKILL)

    # -- what it looks like from outside

    def phase(self) -> str:
        """Return how far it is. A claim whose start died before the command began is no attempt: it may be started."""
        found = self.phase_now()
        return self.phase_now() if found in ("absent", "lost") else found  # it may just have gone on to the next

    def phase_now(self) -> str:
        """Return how far it is, as one look shows it."""
        ended, process = self.exit(), self.process()
        if ended:
            return "lost" if ended["reason"] == "lost" else "exited"
        kept = is_locked(self.keeper)
        if not process:
            return "absent" if not kept else "setup" if (self.dir / "setup.json").exists() else "claimed"
        if load(self.keeper) != "other" and (
            kept or (is_locked(self.supervisor) and load(self.supervisor) == "parent")
        ):
            return "running"
        return "orphaned" if self.lives(process) else "lost"

    def state(self) -> dict[str, Any]:
        """Return all that can be seen of it."""
        phase, process, ended = self.phase(), self.process(), self.exit()
        setup = load(self.dir / "setup.json") or {}
        written = [path.stat().st_mtime for path in (self.out, self.err) if size_of(path)]
        kept = self.finished() if self.dir.exists() else []
        return {
            "phase": phase,
            "now": time.time(),
            "pid": process.get("pid"),
            "started": self.in_slurm(process.get("epoch")),
            "engine": load(self.dir / "engine.json"),
            "setup_s": setup.get("s"),
            "exit": ended or None,
            "out": size_of(self.out),
            "err": size_of(self.err),
            "last_output": max(written, default=None),
            "progress": self.read_progress(),
            "disk_free": disk_free(self.dir),
            "results_bytes": size_below(self.results) if self.dir.exists() else 0,
            "data": load(self.dir / "data.json"),
            "checkpoints": [name for _, name in kept],
            "checkpointed": kept[0][0] / 1e9 if kept else None,
            "notice": (root_dir() / "notice").exists(),
        }

    def in_slurm(self, process: float | None) -> float | None:
        """Return when the command began: that of a job of Slurm when Slurm began it, not when it was submitted."""
        if not self.spec.get("slurm"):
            return process
        tasks = (load(self.dir / "engine.json") or {}).get("tasks", ())
        return min((one["begin"] for one in tasks if one["begin"] is not None), default=None)

    def read_progress(self) -> list[float | None] | None:
        """Return the progress that the command wrote: done, and of how much; None for anything else."""
        found = load(self.progress, PROGRESS)
        if not isinstance(found, dict):
            return None
        done, of = (number(found.get(name)) for name in ("done", "of"))
        return None if done is None else [done, of]

    def checkpoints(self) -> Iterator[str]:
        """Yield the names of finished checkpoints, the newest first."""
        return (name for _, name in self.finished())

    def finished(self) -> list[tuple[int, str]]:
        """Return the finished checkpoints, the newest first: when each was changed, in ns since 1970, and its name.

        A link is none: `last` names one of the others.
        """
        found = []
        for one in self.entries():
            with contextlib.suppress(OSError):
                if not one.is_symlink():
                    found.append((one.stat(follow_symlinks=False).st_mtime_ns, one.name))
        return sorted(found, reverse=True)[:1000]

    def entries(self) -> Iterator[os.DirEntry[str]]:
        """Yield what is finished in the directory of the checkpoints."""
        with contextlib.suppress(OSError):
            for one in list(os.scandir(str(self.checkpoint))):
                if not one.name.startswith(".") and not one.name.endswith(UNFINISHED_SUFFIXES):
                    yield one

    def with_links(self, names: Iterable[str]) -> list[str]:
        """Return the names of checkpoints, and of the links beside them that lead to one of these: `last`, say."""
        checkpoints = set(names)
        root = os.path.realpath(str(self.checkpoint)) + os.sep
        ends = {one.name: os.path.realpath(one.path) for one in self.entries() if one.is_symlink()}
        links = [name for name, end in ends.items() if end.startswith(root)]
        return [*checkpoints, *(name for name in links if ends[name][len(root) :].partition(os.sep)[0] in checkpoints)]

    def adopt(self) -> int:
        """Return the lock of a supervisor where one is needed, -1 where not. What is lost is written down."""
        if self.exit() or not self.dir.exists():
            return -1
        lock = take_lock(self.supervisor, wait=0.0)
        if lock < 0:
            return -1
        write_role(lock, "other")
        keeper = take_lock(self.keeper)
        if keeper >= 0:
            process = self.process()
            if not process or not self.lives(process):
                if process:
                    self.record(None, "lost")
                os.close(lock)
                lock = -1
            os.close(keeper)
        return lock


def write_role(lock: int, role: str) -> None:
    """Write into a lock who holds it: a supervisor that adopts what its keeper leaves, `parent`, or any `other`."""
    with contextlib.suppress(OSError):
        os.ftruncate(lock, 0)
        os.pwrite(lock, json.dumps(role).encode(), 0)


def number(value: Any) -> float | None:
    """Return a finite number, None for anything else."""
    fits = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e18  # noqa: PLR2004
    return float(value) if fits and math.isfinite(value) else None


def size_of(path: Path) -> int:
    """Return a file's size, 0 where there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def disk_free(path: Path) -> int | None:
    """Return the bytes that are free where the attempt is."""
    with contextlib.suppress(OSError):
        found = os.statvfs(str(path if path.exists() else Path.home()))
        return found.f_bavail * found.f_frsize
    return None


def detached(work: Callable[[], object]) -> None:
    """Have a process do it that no terminal, connection or parent can end."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    try:
        os.setsid()
        if not os.fork():
            quiet()
            work()
    finally:
        os._exit(0)


def quiet() -> None:
    """Let go of the connection's streams, or it would stay open as long as we live."""
    null = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(null, number)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
