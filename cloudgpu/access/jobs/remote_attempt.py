"""One attempt of a job, on the machine it runs on: its files, its phase, and its exit status, which is written once.

`access/jobs/program.py` sends this text over SSH. Standard library only, Python 3.8+.

`~/.cloudgpu/jobs/JOB/NUMBER/` is one attempt. `keeper.lock` is locked while the keeper lives, and by the command's
process until it executes the command; `supervisor.lock` while a supervisor lives. Whoever writes `exit.json` holds
`keeper.lock`. `begun` is created once, right before the command is executed, so an attempt begins only once.
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
    TreeListing,
    create,
    free_bytes,
    is_locked,
    load,
    safe_path,
    size_below,
    size_of,
    sync_directory,
    take_lock,
)

PROC = Path("/proc")
RESERVED_BYTES = 4096  # of exit.json and stop.json, allocated before the disk can be full
MAX_PROGRESS_BYTES = 4096  # of the progress file that the command writes
UNFINISHED_SUFFIXES = (".tmp", ".part")
VOLUME = "/data"  # where a volume is mounted; CLOUDGPU_VOLUME names another directory
ATTEMPT_VARIABLE = "CLOUDGPU_ATTEMPT"  # in the environment of a command and of all processes that it starts
KILL_TIMEOUT_S = 2.0  # in which processes that start while others are killed are killed too


def root_dir() -> Path:
    """Return cloudgpu's directory on this machine."""
    return Path.home() / ".cloudgpu"


def volume_path() -> Path:
    """Return where a volume is mounted."""
    return Path(os.environ.get("CLOUDGPU_VOLUME") or VOLUME)


def is_mounted() -> bool:
    """Tell whether a volume is mounted; a directory named by CLOUDGPU_VOLUME only has to exist."""
    return volume_path().is_dir() if os.environ.get("CLOUDGPU_VOLUME") else os.path.ismount(VOLUME)


def monotonic() -> float:
    """Return seconds since the boot; with time asleep where the system counts it."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def boot_id() -> str:
    """Return the id of this boot, empty where the system has none."""
    try:
        return (PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            command = ["/usr/sbin/sysctl", "-n", "kern.bootsessionuuid"]
            return subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=5).stdout.decode().strip()  # noqa: S603
        return ""


def proc_stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the name: state, parent, group, ..., start; empty for no process."""
    try:
        return (PROC / str(pid) / "stat").read_text(errors="replace").rpartition(") ")[2].split()
    except OSError:
        return []


def is_group_running(pid: int, start: str) -> bool:
    """Tell whether a process of this group lives.

    `start` is its leader's start as in /proc/PID/stat (clock ticks since the boot), because process ids are reused.
    """
    try:
        os.killpg(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    leader = proc_stat(pid)
    if not PROC.exists() or (leader and leader[0] not in "ZX"):
        return not leader or not start or leader[19] == start
    members = (proc_stat(int(name)) for name in os.listdir(str(PROC)) if name.isdigit())  # noqa: PTH208
    return any(stat and stat[0] not in "ZX" and stat[2] == str(pid) for stat in members)


def send_signal(pid: int, signal_number: int) -> None:
    """Send a signal to a process group, if it exists."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal_number)


def processes_with_variable(variable: bytes) -> Iterator[int]:
    """Yield this user's processes whose environment has `variable` (NAME=VALUE); none without /proc."""
    for name in os.listdir(str(PROC)) if PROC.exists() else ():  # noqa: PTH208
        if name.isdigit() and int(name) != os.getpid():
            with contextlib.suppress(OSError):  # another user's, or it has just ended
                if variable in (PROC / name / "environ").read_bytes().split(b"\0"):
                    yield int(name)


def output_sizes_at(path: Path, since: float) -> tuple[int, int]:
    """Return the bytes of stdout and stderr that were written until `since`, by the file of `Attempt.index_output`."""
    sizes = (0, 0)
    with contextlib.suppress(OSError), path.open() as file:
        for line in file:
            fields = line.split()
            if len(fields) != 3 or float(fields[0]) > since:  # noqa: PLR2004
                break
            sizes = (int(fields[1]), int(fields[2]))
    return sizes


class Attempt:
    """One attempt, by its directory. `out` and `err` are the files with the command's output."""

    def __init__(self, job: str, number: int) -> None:
        if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,63}", job) or int(number) < 1:
            raise Fault("invalid", f"{job!r} is not a job, or {number!r} not an attempt")
        self.job, self.number = job, int(number)
        self.dir = root_dir() / "jobs" / job / str(self.number)
        self.work_dir, self.out, self.err = self.dir / "work", self.dir / "out", self.dir / "err"
        self.keeper_lock, self.supervisor_lock = self.dir / "keeper.lock", self.dir / "supervisor.lock"
        self.progress_file, self.times_file = self.dir / "progress.json", self.dir / "times"
        self.process_tag = str(self.dir)  # value of ATTEMPT_VARIABLE: the full path, as homes may have jobs of one id
        self.cached_spec: dict[str, Any] = {}
        self.is_sigterm_sent = False
        self.indexed_sizes = (0, 0)
        self.indexed_at = 0.0

    @property
    def spec(self) -> dict[str, Any]:
        """What the attempt runs, without secrets."""
        if not self.cached_spec:
            self.cached_spec = self.read_object("spec.json")
        return self.cached_spec

    @property
    def volume(self) -> Path | None:
        """The job's directory on a volume, None if its results are not on a volume."""
        directory = self.spec.get("volume")
        return volume_path() / "cloudgpu" / safe_path(str(directory)) if directory else None

    @property
    def results(self) -> Path:
        """Where the command writes its results."""
        if self.volume is not None:
            return self.volume / "results"
        return self.work_dir / safe_path(str(self.spec.get("results") or "results"))

    @property
    def checkpoint(self) -> Path:
        """Where the command writes its checkpoints."""
        if self.volume is not None:
            return self.volume / "checkpoints"
        directory = self.spec.get("checkpoint")
        return self.work_dir / safe_path(str(directory)) if directory else self.dir / "checkpoint"

    def tree(self, kind: str) -> Path:
        """Return the directory of results, or of checkpoints if `kind` is `checkpoint`."""
        return self.checkpoint if kind == "checkpoint" else self.results

    def list_files(self, kind: str, names: Iterable[str]) -> dict[str, Any]:
        """Return the manifest of these entries of the results; of these checkpoints with the links to them."""
        names = self.with_links_to(names) if kind == "checkpoint" else names
        return TreeListing(self.tree(kind), self.dir / f"hashes-{kind}.json").read(names)

    def read_object(self, name: str) -> dict[str, Any]:
        """Return the JSON object in a file of the attempt; empty without one."""
        value = load(self.dir / name)
        return value if isinstance(value, dict) else {}

    def process(self) -> dict[str, Any]:
        """Return the record of the command's process; empty before the command began.

        Its start is there as `epoch`, as `mono` (seconds by `monotonic`), and as `start` with `boot` (`boot_id`).
        """
        return self.read_object("begun")

    def exit(self) -> dict[str, Any]:
        """Return how it ended; empty before."""
        return self.read_object("exit.json")

    def stop_request(self) -> dict[str, Any]:
        """Return the request to stop, with reason and grace; empty if there is none."""
        return self.read_object("stop.json")

    def reserve_disk(self) -> None:
        """Allocate the files that must be written even when the disk is full. Raises OSError."""
        for name in ("exit.new", "stop.new"):
            with os.fdopen(create(self.dir / name, os.O_WRONLY | os.O_TRUNC), "wb", 0) as file:
                file.write(b" " * RESERVED_BYTES)
                os.fsync(file.fileno())

    def write(self, name: str, value: dict[str, Any]) -> None:
        """Write the JSON file `NAME.json` into its reserved bytes, sync it, then rename it."""
        new_file = self.dir / f"{name}.new"
        with os.fdopen(create(new_file), "r+b", 0) as file:
            file.write(json.dumps(value).encode()[:RESERVED_BYTES].ljust(RESERVED_BYTES))
            os.fsync(file.fileno())
        new_file.replace(self.dir / f"{name}.json")
        sync_directory(self.dir)

    def record_exit(self, status: int | None, reason: str, why: str = "") -> None:
        """Write how it ended, once; the caller holds keeper.lock. `status` is that of waitpid."""
        if self.exit():
            return
        signal_number = os.WTERMSIG(status) if status is not None and os.WIFSIGNALED(status) else None
        code = None if status is None else 128 + signal_number if signal_number else os.WEXITSTATUS(status)
        if (
            signal_number and reason == "exited" and self.spec.get("slurm")
        ):  # only the process that follows the job ended; Slurm still runs the job
            reason = "lost"
        reason = self.stop_request().get("reason") or reason
        self.write(
            "exit", {"status": code, "signal": signal_number, "reason": reason, "ended": time.time(), "why": why[:500]}
        )

    def request_stop(self, reason: str, grace: float) -> None:
        """Write a request to stop; the first reason counts, and the shortest grace in seconds."""
        stop = self.stop_request()
        if not stop or grace < stop["grace"]:
            self.write("stop", {"reason": reason, "mono": monotonic(), **stop, "grace": grace})

    def is_running(self, process: dict[str, Any]) -> bool:
        """Tell whether the command, or another process of its group, runs."""
        return process.get("boot") == boot_id() and is_group_running(process["pid"], process["start"])

    def processes_outside_group(self) -> list[int]:
        """Return the processes that the command started, also those that left its process group (by setsid)."""
        return list(processes_with_variable(f"{ATTEMPT_VARIABLE}={self.process_tag}".encode()))

    def signal_all(self, process: dict[str, Any], signal_number: int) -> None:
        """Send a signal to the command and all processes that it started."""
        if self.is_running(process):
            send_signal(process["pid"], signal_number)
        for pid in self.processes_outside_group():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal_number)

    def kill(self, process: dict[str, Any]) -> None:
        """Kill the command and all processes that it started, until none is left or KILL_TIMEOUT_S is over."""
        deadline = monotonic() + KILL_TIMEOUT_S
        self.signal_all(process, signal.SIGKILL)
        while (self.is_running(process) or self.processes_outside_group()) and monotonic() < deadline:
            time.sleep(0.02)
            self.signal_all(process, signal.SIGKILL)

    # -- what a supervisor does

    def enforce(self, process: dict[str, Any]) -> None:
        """End the command at its timeout or on a request to stop: SIGTERM first, SIGKILL after the grace."""
        spec = self.spec
        if spec.get("timeout") and monotonic() - process["mono"] > spec["timeout"] and not self.stop_request():
            self.request_stop("timeout", spec.get("grace", 10.0))
        stop = self.stop_request()
        if stop and not self.is_sigterm_sent:
            self.is_sigterm_sent = True
            self.signal_all(process, signal.SIGTERM)
            self.signal_all(process, signal.SIGCONT)
        if stop and monotonic() - stop["mono"] > stop["grace"]:
            self.signal_all(process, signal.SIGKILL)

    def index_output(self, *, immediately: bool = False) -> None:
        """Append the time and both output sizes to the index, at most once a second; `logs --since` reads it."""
        sizes = (size_of(self.out), size_of(self.err))
        if sizes != self.indexed_sizes and (immediately or monotonic() - self.indexed_at >= 1):
            self.indexed_sizes, self.indexed_at = sizes, monotonic()
            with contextlib.suppress(OSError), os.fdopen(create(self.times_file, os.O_WRONLY | os.O_APPEND), "w") as f:
                f.write(f"{time.time():.3f} {sizes[0]} {sizes[1]}\n")

    def index_last_output(self) -> None:
        """Append the current output sizes, if they grew, so that a copy of the index covers all output."""
        with contextlib.suppress(OSError, ValueError, IndexError), self.times_file.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 200))
            fields = file.read().split()
            self.indexed_sizes = int(fields[-2]), int(fields[-1])
        self.index_output(immediately=True)

    def kill_setup(self) -> None:
        """Kill a setup whose keeper was killed."""
        setup = load(self.dir / "setup.json") or {}
        if setup.get("boot") == boot_id() and is_group_running(setup["pid"], setup["start"]):
            send_signal(setup["pid"], signal.SIGKILL)

    # -- its state

    def phase(self) -> str:
        """Return its phase, one of `Phase` in `core/jobs/remote_state.py`.

        If its start died before the command began, it is `absent` and may be started.
        """
        phase = self.read_phase()
        return self.read_phase() if phase in ("absent", "lost") else phase  # it may just have changed

    def read_phase(self) -> str:
        """Return its phase by one reading of its files."""
        exit_record, process = self.exit(), self.process()
        if exit_record:
            return "lost" if exit_record["reason"] == "lost" else "exited"
        has_keeper = is_locked(self.keeper_lock)
        if not process:
            return "absent" if not has_keeper else "setup" if (self.dir / "setup.json").exists() else "claimed"
        if load(self.keeper_lock) != "other" and (
            has_keeper or (is_locked(self.supervisor_lock) and load(self.supervisor_lock) == "parent")
        ):
            return "running"
        return "orphaned" if self.is_running(process) else "lost"

    def state(self) -> dict[str, Any]:
        """Return its state as JSON."""
        phase, process, exit_record = self.phase(), self.process(), self.exit()
        setup = load(self.dir / "setup.json") or {}
        output_times = [path.stat().st_mtime for path in (self.out, self.err) if size_of(path)]
        checkpoints = self.finished_checkpoints() if self.dir.exists() else []
        return {
            "phase": phase,
            "now": time.time(),
            "pid": process.get("pid"),
            "started": self.started_at(process.get("epoch")),
            "engine": load(self.dir / "engine.json"),
            "setup_s": setup.get("s"),
            "exit": exit_record or None,
            "out": size_of(self.out),
            "err": size_of(self.err),
            "last_output": max(output_times, default=None),
            "progress": self.read_progress(),
            "disk_free": free_bytes(self.dir),
            "results_bytes": size_below(self.results) if self.dir.exists() else 0,
            "data": load(self.dir / "data.json"),
            "checkpoints": [name for _, name in checkpoints],
            "checkpointed": checkpoints[0][0] / 1e9 if checkpoints else None,
            "notice": (root_dir() / "notice").exists(),
        }

    def started_at(self, process_start: float | None) -> float | None:
        """Return when the command began (epoch); a Slurm job when Slurm started it, not when it was submitted."""
        if not self.spec.get("slurm"):
            return process_start
        tasks = (load(self.dir / "engine.json") or {}).get("tasks", ())
        return min((task["begin"] for task in tasks if task["begin"] is not None), default=None)

    def read_progress(self) -> list[float | None] | None:
        """Return the progress that the command wrote as [done, total]; None without one."""
        progress = load(self.progress_file, MAX_PROGRESS_BYTES)
        if not isinstance(progress, dict):
            return None
        done, total = (finite_number(progress.get(name)) for name in ("done", "of"))
        return None if done is None else [done, total]

    def finished_checkpoints(self) -> list[tuple[int, str]]:
        """Return (mtime_ns, name) of the finished checkpoints, the newest first; links such as `last` do not count."""
        checkpoints = []
        for entry in self.entries():
            with contextlib.suppress(OSError):
                if not entry.is_symlink():
                    checkpoints.append((entry.stat(follow_symlinks=False).st_mtime_ns, entry.name))
        return sorted(checkpoints, reverse=True)[:1000]

    def entries(self) -> Iterator[os.DirEntry[str]]:
        """Yield the finished entries of the checkpoint directory."""
        with contextlib.suppress(OSError):
            for entry in list(os.scandir(str(self.checkpoint))):
                if not entry.name.startswith(".") and not entry.name.endswith(UNFINISHED_SUFFIXES):
                    yield entry

    def with_links_to(self, names: Iterable[str]) -> list[str]:
        """Return these names of checkpoints, with the links that lead to one of them, such as `last`."""
        checkpoints = set(names)
        root = os.path.realpath(str(self.checkpoint)) + os.sep
        targets = {entry.name: os.path.realpath(entry.path) for entry in self.entries() if entry.is_symlink()}
        links = [name for name, target in targets.items() if target.startswith(root)]
        return [
            *checkpoints,
            *(name for name in links if targets[name][len(root) :].partition(os.sep)[0] in checkpoints),
        ]

    def lock_as_supervisor(self) -> int:
        """Return the supervisor's lock if the attempt runs without one, else -1. Records a command that is lost."""
        if self.exit() or not self.dir.exists():
            return -1
        supervisor_fd = take_lock(self.supervisor_lock, wait=0.0)
        if supervisor_fd < 0:
            return -1
        write_lock_holder(supervisor_fd, "other")
        keeper_fd = take_lock(self.keeper_lock)
        if keeper_fd >= 0:
            process = self.process()
            if not process or not self.is_running(process):
                if process:
                    self.record_exit(None, "lost")
                os.close(supervisor_fd)
                supervisor_fd = -1
            os.close(keeper_fd)
        return supervisor_fd


def write_lock_holder(lock: int, holder: str) -> None:
    """Write who holds a lock: `keeper`; `parent`, the supervisor that is its parent; or `other`, a later supervisor."""
    with contextlib.suppress(OSError):
        os.ftruncate(lock, 0)
        os.pwrite(lock, json.dumps(holder).encode(), 0)


def finite_number(value: Any) -> float | None:
    """Return a finite number, None for anything else."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e18  # noqa: PLR2004
    return float(value) if is_number and math.isfinite(value) else None


def run_detached(work: Callable[[], object]) -> None:
    """Run `work` in a detached process, which outlives terminal, connection and parent."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    try:
        os.setsid()
        if not os.fork():
            detach_streams()
            work()
    finally:
        os._exit(0)


def detach_streams() -> None:
    """Close the connection's streams, or the connection would stay open as long as this process."""
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(null, descriptor)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
