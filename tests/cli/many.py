"""Many command lines from one process: each runs in a fork of it, with arguments, environment and streams of its own.

`python many.py SOCKET MODULE ...` loads the modules once for the whole run. Each process of tests that connects to the
socket gets a fork of it, which reads one job per line, `{"args", "environ", "out", "err", "mounts"}`, and answers with
the number of a further fork's process, then with its exit code. What runs in that fork is `main()`, as the installed
command calls it; only the start of the interpreter, the import of modules and what is read from the packages' own data
files is shared.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import fcntl
import functools
import gc
import hashlib
import importlib
import json
import os
import pkgutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from tests.cli.documents import check_output
from tests.cli.parsed import read_verbs
from tests.cli.program import Done, Program

LOADED = "CLOUDGPU_TEST_LOADED"  # the directory of the sockets of what is loaded once for a run


@dataclass
class Many:
    """The process that forks. `done` takes a program and its arguments, and returns how it ended."""

    jobs: IO[str]
    answers: IO[str]
    free: threading.Lock = field(default_factory=threading.Lock)
    _last: Fork | None = None

    @classmethod
    def open(cls, *modules: str) -> Many:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(_loaded(modules)))
            return cls(connection.makefile("w"), connection.makefile("r"))

    def done(self, program: Program, args: Sequence[str], place: Path) -> Done:
        one = self.start(program, args, place)
        one.wait()
        out = (place / "out").read_bytes().decode(errors="surrogateescape")
        check_output(args, out, one.returncode)
        return Done(one.returncode, out, (place / "err").read_text())

    def start(self, program: Program, args: Sequence[str], place: Path) -> Fork:
        """Begin a command; one at a time. One that a test gave up waiting for is ended first."""
        if self._last is not None:
            self._last.kill()
            self._last.wait()
        out, err = place / "out", place / "err"
        job = {"args": list(args), "environ": program.env(), "out": str(out), "err": str(err)}
        job["mounts"] = program.mounts_of if isinstance(program, ForkedProgram) else None
        self.jobs.write(json.dumps(job) + "\n")
        self.jobs.flush()
        self._last = Fork(self, int(self.answers.readline()), place)
        return self._last

    def close(self) -> None:
        self.jobs.close()
        self.answers.close()


def _loaded(modules: Sequence[str]) -> Path:
    """Return the socket of the process that has loaded these modules; begin it where none of this run has."""
    place = Path(os.environ[LOADED])
    path = place / hashlib.sha256(" ".join(modules).encode()).hexdigest()[:12]
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            argv = [sys.executable, "-m", "tests.cli.many", str(path), *modules]
            environ = os.environ | {"PYTHONPATH": os.pathsep.join([*sys.path[:1], os.environ.get("PYTHONPATH", "")])}
            root = Path(__file__).parents[2]
            with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=-1, text=True, cwd=root, env=environ) as begun:
                assert begun.stdout.readline() == "listening\n"
                begun.wait()  # what listens is a child of it, and lives as long as the run
    return path


@functools.cache
def shared(*modules: str) -> Many:
    """Return one such process for all tests of this process."""
    return Many.open(*modules)


@dataclass
class Fork:
    """A command that was begun, with what tests use of a `Popen`."""

    many: Many
    pid: int
    place: Path
    returncode: int | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def wait(self, timeout: float | None = None) -> int:
        """Return its exit code once it has ended; the test's own patience is the limit."""
        with self._lock:
            if self.returncode is None:
                self.returncode = int(self.many.answers.readline())
            return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[bytes, bytes]:
        """Return what it said once it has ended."""
        self.wait(timeout)
        return (self.place / "out").read_bytes(), (self.place / "err").read_bytes()

    def kill(self) -> None:
        """End it, if it has not ended."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.kill(self.pid, signal.SIGKILL)


@dataclass
class ForkedProgram(Program):
    """`cloudgpu` with CLOUDGPU_HOME at `home`, whose commands are forks; they see what the process `mounts_of` sees."""

    many: Many | None = None
    mounts_of: int | None = None
    _place: Path = field(init=False)

    def __post_init__(self) -> None:
        self._place = self.home.parent / f"{self.home.name}.said"
        self._place.mkdir(parents=True, exist_ok=True)

    def __call__(self, *args: str, stdin: bytes = b"", timeout: float = 60) -> Done:
        assert self.many is not None
        return self.many.done(self, args, self._place)

    def start(self, *args: str, **_more: object) -> Fork:
        assert self.many is not None
        return self.many.start(self, args, self._place)


@dataclass
class QuickProgram(ForkedProgram):
    """`cloudgpu` whose calls are forks, one by one; what begins beside another, or reads, is a process of its own."""

    def __call__(self, *args: str, stdin: bytes = b"", timeout: float = 60) -> Done:
        assert self.many is not None
        if stdin or not self.many.free.acquire(blocking=False):
            return Program.__call__(self, *args, stdin=stdin, timeout=timeout)
        try:
            return super().__call__(*args, timeout=timeout)
        finally:
            self.many.free.release()

    def start(self, *args: str, **more: Any) -> subprocess.Popen[bytes]:
        return Program.start(self, *args, **more)


# What commands load, here once and not in every fork; the rest of cloudgpu is imported room by room.
_COMMON = (
    "asyncio", "paramiko", "psutil", "psycopg", "typer",
    "cloudgpu.providers.local.provider", "cloudgpu.providers.registry",
)  # fmt: skip
_AWS = ("budgets", "ec2", "iam", "pricing", "scheduler", "service-quotas", "ssm", "sts")
_ROOMS = ("access", "agent", "catalog", "cli", "config", "control", "core", "ledger", "views")


def _load(modules: Sequence[str]) -> None:
    for name in (*_COMMON, *modules):
        importlib.import_module(name)
    clouds = (name.rpartition(".")[0] for name in modules if name.startswith("cloudgpu.providers."))
    for room in (*(f"cloudgpu.{room}" for room in _ROOMS), *clouds):
        place = importlib.import_module(room).__path__
        for found in pkgutil.walk_packages(place, f"{room}."):
            if not found.name.endswith("__main__"):
                importlib.import_module(found.name)
    from cloudgpu.catalog.read import catalogue

    catalogue()
    read_verbs()
    if "boto3" in modules:
        read_models()
    gc.collect()
    gc.freeze()  # no fork looks for garbage among what all share


def _listen(path: str) -> None:
    """Fork for each that connects, until the run's first process has ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    first = int(Path(os.environ[LOADED], "first").read_text())
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(64)
        listener.settimeout(2)
        sys.stdout.write("listening\n")
        sys.stdout.flush()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        while Path(f"/proc/{first}").exists():
            with contextlib.suppress(TimeoutError):
                connection, _ = listener.accept()
                if os.fork() == 0:
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    for number in (0, 1):
                        os.dup2(connection.fileno(), number)
                    connection.close()
                    listener.close()
                    _serve()
                    os._exit(0)
                connection.close()


def _serve() -> None:
    """Do the jobs of one process of tests, until it ends."""
    import cloudgpu.agent.program

    for line in sys.stdin:
        job = json.loads(line)
        if "up" in job["args"]:
            cloudgpu.agent.program.source()  # half a second the first time, here once
        child = os.fork()
        if child == 0:
            _run(job)
        sys.stdout.write(f"{child}\n")
        sys.stdout.flush()
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


def read_models() -> None:
    """Read AWS's SDK's data files once, here: half of what a command on AWS computes is to make clients of them."""
    import boto3

    from tests.clouds.aws.sdk import keep_models

    keep_models()
    for service in _AWS:
        boto3.session.Session().client(service, region_name="us-east-1")


def _join_mounts(of: int | None) -> None:
    if of is not None:
        place = os.open(f"/proc/{of}/ns/mnt", os.O_RDONLY)
        assert ctypes.CDLL(None, use_errno=True).setns(place, 0) == 0, os.strerror(ctypes.get_errno())
        os.close(place)


def _look_in(places: str) -> None:
    """Look for modules and plugins where a process with this PYTHONPATH does."""
    new = [place for place in places.split(os.pathsep) if place and place not in sys.path]
    if new:
        sys.path[1:1] = new
        importlib.invalidate_caches()


def _run(job: dict[str, object]) -> None:
    from cloudgpu.cli.app import main

    code: object = 70
    try:
        for number, path in ((0, os.devnull), (1, job["out"]), (2, job["err"])):
            flags = os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC
            os.dup2(os.open(path, flags, 0o600), number)
        sys.stdin = os.fdopen(0)
        _join_mounts(job["mounts"])
        os.environ.clear()
        os.environ.update(job["environ"])
        _look_in(os.environ.get("PYTHONPATH", ""))
        sys.argv = ["cloudgpu", *job["args"]]
        main()
    except SystemExit as end:
        code = end.code or 0
    finally:
        atexit._run_exitfuncs()  # as at the end of a process: a ledger is closed, and its file whole
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1)


if __name__ == "__main__":
    _load(sys.argv[2:])
    if os.fork() == 0:
        os.setsid()
        _listen(sys.argv[1])
