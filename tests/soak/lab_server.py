"""The lab's PostgreSQL: it is killed and started again, frozen, and put back to an older copy of its files."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.postgres import Server


class LabServer(Server):
    """As the tests' own, with what happens to a server in some weeks."""

    @property
    def pid(self) -> int:
        return self._process.pid

    def copy(self) -> Path:
        """Return a copy of its files, made while it stood."""
        self._process.send_signal(signal.SIGINT)
        self._process.wait(60)
        copy = self.root / f"copy-{len(list(self.root.iterdir()))}"
        self._copied(self.data, copy)
        self.start()
        return copy

    def back_to(self, copy: Path) -> None:
        """Let it go on from an older copy."""
        self.kill()
        shutil.rmtree(self.data)
        self._copied(copy, self.data)
        self.start()

    def again(self) -> None:
        """Start it after a crash."""
        self.kill()
        self.start()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Let it answer nothing, as one that swaps: its connections stand, and nothing moves."""
        of = psutil.Process(self.pid)
        all_of = [of, *of.children(recursive=True)]
        for one in all_of:
            one.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            for one in reversed(all_of):
                one.send_signal(signal.SIGCONT)

    def _copied(self, source: Path, place: Path) -> None:
        shutil.copytree(source, place, copy_function=shutil.copy2)
        place.chmod(0o700)
        if self.user:
            for directory, _, files in os.walk(place):
                for path in (directory, *(os.path.join(directory, name) for name in files)):  # noqa: PTH118  (fast)
                    shutil.chown(path, self.user)
