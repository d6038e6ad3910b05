"""One clock for many processes: whole seconds in a file that all of them map. Nothing moves it but `advance`."""

from __future__ import annotations

import mmap
import struct
from datetime import UTC, datetime
from pathlib import Path

_FORM = struct.Struct("q")


class SharedClock:
    """The lab's time: its commands, its models of clouds and its judge read this one."""

    def __init__(self, path: Path, begin: datetime | None = None) -> None:
        if begin is not None:
            path.write_bytes(_FORM.pack(int(begin.timestamp())))
            path.chmod(0o666)  # a command that waits lets time pass, whoever's it is
        with path.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), _FORM.size)
        self.path = path

    def time(self) -> float:
        """Return epoch seconds, as `time.time` does."""
        return float(_FORM.unpack(self._shared[: _FORM.size])[0])

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.time(), UTC)

    def advance(self, seconds: float) -> None:
        """Go on by whole seconds: clouds date what happens by those."""
        self.go_to(self.time() + max(1, round(seconds)))

    def go_to(self, epoch: float) -> None:
        self._shared[: _FORM.size] = _FORM.pack(int(epoch))
