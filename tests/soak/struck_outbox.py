"""Loaded beside a command of the tests: kills it, or the ledger's server, where it touches the outbox or the ledger.

`CLOUDGPU_TEST_STRIKE` says where: `NAME NTH WHEN [PID]`, as in `add 2 after`. The names are in `POINTS`; `torn` in
place of `before` and `after` leaves half of a line. Where the variable has a file's name, what comes is noted there.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cloudgpu.ledger.book import Book
from cloudgpu.ledger.log.outbox import Outbox

STRIKE = "CLOUDGPU_TEST_STRIKE"
# A line of the outbox, a decision for the ledger, what that writes before it is committed, and the outbox's end.
POINTS = {
    "add": (Outbox, "add"),
    "append": (Book, "append"),
    "write": (Book, "_write"),
    "keep": (Outbox, "_remove_written"),
}
_came: Counter[str] = Counter()


def _struck(name: str, when: str) -> bool:
    """Say whether this is the place; end the process there, or another one."""
    meant = os.environ.get(STRIKE, "")
    if meant.startswith("/"):
        with Path(meant).open("a") as file:
            file.write(f"{name} {_came[name]} {when}\n")
        return False
    words = meant.split()
    if words[:3] != [name, str(_came[name]), when]:
        return False
    if len(words) > 3:
        os.kill(int(words[3]), signal.SIGQUIT)
    elif when != "torn":
        os.kill(os.getpid(), signal.SIGKILL)
    return True


def _wrapped(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
    def wrapped(self: Any, *args: Any, **more: Any) -> Any:
        _came[name] += 1
        _struck(name, "before")
        done = real(self, *args, **more)
        _struck(name, "after")
        return done

    return wrapped


def _torn(real: Callable[..., None]) -> Callable[..., None]:
    def wrapped(self: Outbox, handle: int, data: bytes) -> None:
        if _struck("add", "torn"):
            os.write(handle, data[: len(data) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        real(self, handle, data)

    return wrapped


for _name, (_owner, _method) in POINTS.items():
    setattr(_owner, _method, _wrapped(_name, getattr(_owner, _method)))
Outbox._write = _torn(Outbox._write)
