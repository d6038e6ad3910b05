"""Servers of the tests in processes of their own, forked from one that has loaded what they need.

To start Python and load asyncssh for each of two hundred servers took longer than most of the tests themselves.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from typing import Any

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["__main__", "cloudgpu.providers.local.sshd", "tests.access.sshserver"])


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
