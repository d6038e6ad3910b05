"""Members of a lab: each command of theirs is a fork, of their own system user where we are root, in their own home.

The process that forks has loaded what commands need. A command sees the lab's clock, and what it waits is time that
passes there. It may be killed at any of its writes to the ledger.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import json
import os
import pkgutil
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

from tests.soak.lab_clock import SharedClock

ROOT = Path(__file__).parents[2]
KILLED = 137
PR_SET_KEEPCAPS, PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE = 8, 47, 2  # linux/prctl.h, linux/capability.h
CAPS_VERSION_3, CAP_DAC_READ_SEARCH = 0x20080522, 2


class Said(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Forks:
    """The process that forks."""

    def __init__(self, clock: SharedClock, place: Path) -> None:
        argv = [sys.executable, "-m", "tests.soak.lab_member", os.fspath(clock.path)]
        self._process = subprocess.Popen(argv, stdin=-1, stdout=-1, text=True, cwd=ROOT)
        self._out, self._err = place / "out", place / "err"

    def run(self, words: Sequence[str], environ: Mapping[str, str], uid: int, strike: int) -> Said:
        job = {"words": words, "environ": dict(environ), "uid": uid, "strike": strike}
        job |= {"out": os.fspath(self._out), "err": os.fspath(self._err)}
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        code = int(self._process.stdout.readline())
        return Said(code, self._out.read_text(), self._err.read_text())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()


@dataclass
class Member:
    """One person: a home, a way to the ledger, credentials for one account of AWS, and perhaps own machines.

    `hosts` are those, by what this member calls them: the number of each one's place.
    """

    name: str
    home: Path
    account: str  # its number
    environ: dict[str, str]
    forks: Forks
    uid: int = 0
    hosts: dict[str, str] = field(default_factory=dict)

    @property
    def local(self) -> str:
        """The number of this member's account `local`."""
        return f"local of {self.name}"

    @property
    def accounts(self) -> tuple[str, ...]:
        """What this member's commands can reach."""
        return self.account, self.local, *self.hosts.values()

    def __call__(self, words: str, *, strike: int = 0, **environ: str) -> Said:
        """Run a command; `strike` kills it at that write of the ledger."""
        own = {"CLOUDGPU_HOME": os.fspath(self.home), "HOME": os.fspath(self.home), "USER": self.name}
        return self.forks.run(words.split(), self.environ | own | environ, self.uid, strike)


def _serve() -> None:
    clock = SharedClock(Path(sys.argv[1]))
    _load()
    for line in sys.stdin:
        job = json.loads(line)
        child = os.fork()
        if child == 0:
            _run(job, clock)
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        print(KILLED if code == -9 else code, flush=True)  # noqa: T201


def _load() -> None:
    """Load all that commands load, here once: a member may not be able to read this checkout."""
    import boto3  # noqa: F401
    import psycopg  # noqa: F401

    import cloudgpu

    for module in pkgutil.walk_packages(cloudgpu.__path__, "cloudgpu."):
        if not module.name.endswith("__main__") and "azure" not in module.name and "gcp" not in module.name:
            importlib.import_module(module.name)
    cloudgpu.agent.program.source()
    gc.collect()
    gc.freeze()


def _run(job: dict[str, Any], clock: SharedClock) -> None:
    code = 70
    try:
        for number, path in ((0, os.devnull), (1, job["out"]), (2, job["err"])):
            flags = os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC
            os.dup2(os.open(path, flags, 0o600), number)
        if job["uid"]:
            become(job["uid"])
        os.umask(0o077)
        os.environ.clear()
        os.environ.update(job["environ"])
        os.chdir(job["environ"]["CLOUDGPU_HOME"])
        _on_time(clock, job["strike"])
        from cloudgpu.cli.app import run

        sys.argv = ["cloudgpu", *job["words"]]
        code = run(job["words"])
    finally:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def become(uid: int) -> None:
    """Go on as this system user, who may read every file: this Python may stand where only root can read it."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_KEEPCAPS, 1)
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)
    header, may = struct.pack("=Ii", CAPS_VERSION_3, 0), 1 << CAP_DAC_READ_SEARCH
    if libc.capset(header, struct.pack("=6I", may, may, may, 0, 0, 0)) == 0:
        libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_DAC_READ_SEARCH, 0, 0)  # so may the machines it starts


def _on_time(clock: SharedClock, strike: int) -> None:
    from cloudgpu.control.outage import opening as sessions
    from tests.soak.striking import struck

    left = [strike]

    def counted() -> None:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), 9)

    def opened(*args: Any, real: Any = sessions.open_session, **more: Any) -> Any:
        found = real(*args, **{**more, "clock": clock.now})
        found.pause = clock.advance
        return struck(found, counted)

    sessions.open_session = opened


if __name__ == "__main__":
    _serve()
