"""Servers and writers of the tests in processes of their own, forked from one that has loaded what they need.

To start Python and load asyncssh for each of two hundred servers took longer than most of the tests themselves, and
to start it for each writer that is killed a few milliseconds later most of the time of the runs that do so.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import ssl
import subprocess
from collections.abc import Callable
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from pathlib import Path
from select import POLLIN, poll
from typing import IO, Any

_FORKS = multiprocessing.get_context("forkserver")
_SERVERS = ["__main__", "cloudgpu.providers.local.sshd", "tests.access.sshserver"]
_WRITERS = [
    "psycopg",
    "tests.ledger.writer",
    "cloudgpu.ledger.log.projections",
    "cloudgpu.ledger.log.head",
    "tests.providers.local.crash",
]
_FORKS.set_forkserver_preload([*_SERVERS, *_WRITERS])


class Forked:
    """A process that runs `serve(ours, *args)`; its first word on `ours` is its port.

    It ends at the latest with this process: `ours` is closed then.
    """

    def __init__(self, serve: Callable[..., None], *args: Any) -> None:
        self._ours, theirs = _FORKS.Pipe()
        self._process = _FORKS.Process(target=serve, args=(theirs, *args), daemon=True)
        _begin()
        self._process.start()
        theirs.close()
        self.pid: int = self._process.pid
        self.port: int = self._ours.recv()

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, as to a process of one's own."""
        os.kill(self.pid, number)

    def kill(self) -> None:
        """End it, frozen or not, and wait until it has ended."""
        self._process.kill()
        self._process.join()
        self._ours.close()


class Begun:
    """A process that runs `work(*args)` and says on `stdout` what it writes there: what tests use of a `Popen`."""

    def __init__(self, work: Callable[..., None], *args: Any, errors: Path, **environ: str) -> None:
        """Begin it, with `environ` in its environment; what it says of errors goes into a file."""
        ours, theirs = _FORKS.Pipe(duplex=False)
        words = theirs, work, args, os.environ | environ, os.fspath(errors)
        self._process = _FORKS.Process(target=_work, args=words, daemon=True)
        _begin()
        self._process.start()
        theirs.close()
        self.stdout: IO[str] = os.fdopen(os.dup(ours.fileno()))
        ours.close()

    @property
    def returncode(self) -> int | None:
        """How it ended, as a `Popen` says it; None while it runs."""
        return self._process.exitcode

    def kill(self) -> None:
        """End it by SIGKILL."""
        self._process.kill()

    def wait(self, timeout: float | None = None) -> int:
        """Return its status once it has ended. Raises TimeoutExpired."""
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired(str(self._process), timeout or 0)
        return self._process.exitcode

    def communicate(self, timeout: float | None = None) -> tuple[str, None]:
        """Return what it has yet to say, once it has ended."""
        with self.stdout:
            said = self.stdout.read()
        self.wait(timeout)
        return said, None


def _work(
    theirs: Connection, work: Callable[..., None], args: tuple[Any, ...], environ: dict[str, str], errors: str
) -> None:
    os.environ.clear()
    os.environ.update(environ)
    os.dup2(theirs.fileno(), 1)
    os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), 2)
    theirs.close()
    work(*args)


def fork() -> int:
    """Fork this process with all that it has made, and return as `os.fork` does.

    A child inherits locks that other threads hold at that moment, OpenSSL's too, and would wait for them for ever. So
    one that cannot make what every client of a cloud makes is killed, and another one made: it has done nothing yet.
    """
    for _ in range(10):
        ours, theirs = os.pipe()
        child = os.fork()
        if child == 0:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            os.write(theirs, b"1")
            os.close(theirs)
            os.close(ours)
            return 0
        os.close(theirs)
        answer = poll()
        answer.register(ours, POLLIN)
        is_usable = bool(answer.poll(20_000)) and os.read(ours, 1) == b"1"
        os.close(ours)
        if is_usable:
            return child
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    raise RuntimeError("ten forks in a row inherited a lock that somebody held")


def until_closed(ours: Connection) -> None:
    """Return when whoever asked for the server is done with it, or gone."""
    try:
        ours.recv()
    except EOFError:
        return


def _begin() -> None:
    """Start the process that forks, once, and not as a part of the one test that came first."""
    home = os.environ.pop("CLOUDGPU_HOME", None)
    try:
        forkserver.ensure_running()
    finally:
        if home is not None:
            os.environ["CLOUDGPU_HOME"] = home
