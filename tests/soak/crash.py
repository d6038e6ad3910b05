"""Kills the unchanged command at its N-th call that leaves a trace, and says what must hold afterwards.

strace delivers SIGKILL on entry to the N-th call of a name, so that call and all later ones do not happen. It runs
without `-f`: its count is then the command's own, and the machine that the command detaches runs free of it, as
in life (with `-f` every process and thread would be counted, and killed, by itself). The machine's own start-up is
killed separately, under the command line by which the provider starts it. Locks (flock) are not counted: how often
a wait polls one is chance, and the calls before and after a lock are points anyway.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.cli.many import QuickProgram, shared

# `?`: a call that this processor's Linux does not have is left out
CALLS = ",".join(
    f"?{name}"
    for name in (
        "write pwrite64 writev pwritev pwritev2 fsync fdatasync sync_file_range ftruncate truncate fallocate "
        "rename renameat renameat2 unlink unlinkat mkdir mkdirat rmdir link linkat symlink symlinkat chmod fchmod "
        "fchmodat utimensat sendto sendmsg sendmmsg kill tgkill fork vfork clone clone3 execve"
    ).split()
)
NOTHING = "nothing"
SYNCS = {"fsync", "fdatasync", "sync_file_range"}
_UNNAMED = re.compile(r"/tmp-[^/]*/")  # in a directory that gets its name, by a rename, when it is whole
FORKS = ("fork", "vfork", "clone", "clone3")
PATIENCE_S = 20.0
_LINE = re.compile(r"(?P<call>\w+)\((?:AT_FDCWD[^,]*, )?(?:\"(?P<path>[^\"]*)\"|\d+<(?P<open>[^>]*)>)?")
_CHANCE = re.compile(r"[0-9a-f]{8,}|\.\w+\.part|\.\d+\.new")


def strace_works() -> bool:
    """Say whether strace is there and may trace (a container can forbid it)."""
    words = ["strace", "-o", "/dev/null", "-e", "inject=exit_group:signal=KILL:when=1", "true"]
    return (
        shutil.which("strace") is not None and subprocess.run(words, capture_output=True, check=False).returncode == -9
    )


needs_strace = pytest.mark.skipif(
    not strace_works(), reason="strace, which kills a command at its N-th write, is not installed or may not trace"
)


def strace(words: list[str], log: Path, *, at: Point | None = None) -> list[str]:
    """Return the words that run `words` and kill it there; the log holds the calls it made."""
    inject = ["-e", f"inject={at.call}:signal=KILL:when={at.nth}"] if at else []
    return ["strace", "-y", "-s", "0", "-o", str(log), "-e", f"trace={CALLS}", "-e", "signal=none", *inject, *words]


def calls_of(log: Path) -> list[str]:
    """Return the calls that were made, each with the file it went to, without what is chance in names.

    A call that failed (a directory that was there already) leaves no trace: it counts, but is called `nothing`.
    """
    calls = []
    for line in log.read_text(errors="replace").splitlines():
        found = _LINE.match(line)
        if found is not None:
            file = _CHANCE.sub("*", found["path"] or found["open"] or "")
            calls.append(f"{found['call']} {NOTHING if ' = -1 ' in line else file}")
    return calls


@dataclass(frozen=True, slots=True)
class Point:
    """Where to kill: at the `nth` call of this name. strace counts every name by itself."""

    call: str
    nth: int
    said: str


def point_at(calls: list[str], number: int) -> Point:
    """Return the `number`-th of all calls, from 1, as strace has to be told."""
    name = calls[number - 1].partition(" ")[0]
    nth = sum(call.partition(" ")[0] == name for call in calls[:number])
    return Point(name, nth, f"call {number} of {len(calls)}, {calls[number - 1]}")


def points_of(calls: list[str]) -> list[Point]:
    """Return where to kill: every call, but of equal ones in a row the first and the last.

    Such rows are the pages of one SQLite transaction and the entries of one removed directory; of SQLite's shared
    memory, which no reader trusts after a crash, the first is enough. The very first call is the command's own
    execve, and one past the end is no kill.

    Left out is what finds the same files as another point. A sync: a kill takes nothing from the kernel, so whoever
    dies at it leaves what the next call finds. In a directory that has no name yet, and that nobody reads: after the
    first call of each name, all but the last one.
    """
    points, begin = [], 0
    for end in range(1, len(calls) + 1):
        if end == len(calls) or calls[end] != calls[begin]:
            first, last = begin + 1, end
            points += [first] if calls[begin].endswith("-shm") else sorted({first, last})
            begin = end
    tell = [number for number in points if number > 1 and not calls[number - 1].endswith(NOTHING)]
    tell = [number for number in tell if calls[number - 1].partition(" ")[0] not in SYNCS]
    unnamed = [number for number in tell if _UNNAMED.search(calls[number - 1])]
    first = {calls[number - 1].partition(" ")[0]: number for number in reversed(unnamed)}
    kept = {*first.values(), *unnamed[-1:]}
    return [point_at(calls, number) for number in tell if number in kept or number not in unnamed]


class Life:
    """One home, its commands, and what must hold in it."""

    def __init__(self, home: Path) -> None:
        # What is killed is a process of its own (`traced`); what looks afterwards is a fork, which begins sooner.
        self.program = QuickProgram(home, {"PYTHONDONTWRITEBYTECODE": "1"}, shared())
        self.home = home
        self.log = home.parent / f"{home.name}.calls"

    def traced(self, *args: str, at: Point | None = None) -> bool:
        """Run a verb under strace; return whether it was killed."""
        words = strace([sys.executable, "-m", "cloudgpu", *args], self.log, at=at)
        done = subprocess.run(words, env=self.program.env(), capture_output=True, timeout=120, check=False)
        assert done.returncode in (0, -9), (args, at, done.returncode, done.stdout, done.stderr)
        return done.returncode == -9

    def counted(self, *args: str) -> list[str]:
        """Run a verb to its end and return the calls that it made."""
        assert not self.traced(*args)
        return calls_of(self.log)

    def done(self, *args: str) -> dict[str, object]:
        """Run a verb that must succeed; return its JSON document."""
        done = self.program(*args, "-o", "json", timeout=120)
        assert done.code == 0, (args, done.code, done.out, done.err)
        return done.json

    def launch(self, *, running: bool = True) -> None:
        """Launch the machine, and wait until its process says that it is up."""
        self.done("up", "--yes", "--no-wait")
        if running:
            (machine,) = self.directories()
            self.wait(lambda: '"port"' in _text(machine / "run.json"))

    def wait(self, condition) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, "waited in vain"
            time.sleep(0.02)

    def directories(self) -> list[Path]:
        """Return the machines that the provider has, found without the product."""
        return sorted((self.home / "providers" / "local" / "local").glob("i-*"))

    def machine_of(self, directory: Path) -> str:
        """Return the cloudgpu-id that a machine's own tags tell."""
        return json.loads(_text(directory / "metadata" / "tags.json"))["cloudgpu-id"]

    def check_after_a_kill(self, *, machine_expected: bool) -> None:
        """Never two machines, never one that the ledger does not know, the chain right; then `down` leaves nothing."""
        seen = self.done("ls", "--refresh")["machines"]
        assert len(self.directories()) <= 1
        if machine_expected:
            assert len(seen) == 1, seen
        if self.directories():
            assert len(seen) == 1, "the provider has a machine that the ledger does not know"
        again = self.done("up", "--yes", "--no-wait")["machine"]
        assert [self.machine_of(one) for one in self.directories()] == [again["id"]]
        assert [one["id"] for one in self.done("ls")["machines"]] == [again["id"]]
        assert seen == [] or seen[0]["id"] == again["id"]
        assert self.done("cost", "--verify")["errors"] == []  # only now is there a ledger, whenever the first one died
        # Two for good are two machines; for a moment, a machine being started shows itself and its parent.
        self.wait(lambda: len(machine_processes(self.home)) <= 1)
        self.check_down_leaves_nothing()

    def check_down_leaves_nothing(self) -> None:
        self.done("down", "--all", "--yes")
        left = {path.relative_to(self.home) for path in self.home.rglob("*") if not path.is_dir()}
        whose = {Path("identities.json"), Path("providers/local/local/place.json")}
        assert {path.parts[0] for path in left - whose} <= {"ledger", "keys"}, left
        assert not [path for path in left if path.suffix == ".part" or path.name.startswith(".")], left
        # One that was killed a moment ago may still be on its way out of the process table.
        _, left_running = psutil.wait_procs(processes_of(self.home), timeout=PATIENCE_S)
        assert left_running == []
        assert self.done("ls")["machines"] == []

    def end(self) -> None:
        """End what a failed case has left, by the product first, else by what names this home."""
        self.program("down", "--all", "--yes", timeout=120)
        for process in processes_of(self.home):
            process.kill()


def check_each(points: list[Point], case: Callable[[Point], bool]) -> int:
    """Run a case per point, all of them whatever fails; return how many said that the command was killed."""
    died, faults = 0, []
    for point in points:
        try:
            died += case(point)
        except (AssertionError, subprocess.TimeoutExpired) as fault:
            faults.append(f"killed at {point.said}: {fault}")
    assert not faults, "\n\n".join(faults)
    return died


def processes_of(home: Path) -> list[psutil.Process]:
    """Return the processes that have to do with this home, found without the product's own marker."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
                continue
            words = [*process.cmdline(), *process.environ().values()]
        except psutil.Error:
            continue
        if any(f"{home}/" in word or word == str(home) for word in words):
            found.append(process)
    return found


def machine_processes(home: Path) -> list[psutil.Process]:
    """Return the processes that are machines of this home: not the strace that one may run under."""
    named = [(process, words_of(process)) for process in processes_of(home)]
    return [process for process, words in named if "--alive" in words and words[0] != "strace"]


def words_of(process: psutil.Process) -> list[str]:
    """Return a process's command line; nothing for one that has just ended."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
