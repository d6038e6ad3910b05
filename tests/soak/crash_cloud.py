"""Kills the unchanged command at a call that it makes to a model of a cloud, and says what must hold afterwards.

The server is in the test's process: when the call that is meant arrives, or when it is done and before it is answered,
the server kills the command with SIGKILL and closes the connection. Calls are counted per action, since some are made
side by side. Of calls that change nothing one of the two moments is enough: both find the same cloud and the same
files. What there is is read back from the model, never by the product.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cli.many import ForkedProgram, Many
from tests.cli.program import Program

TIMEOUT_S = 120.0
LEFT_WITHIN_S = 20.0  # a bound against hanging, for a computer that is busy; alone it takes a tenth of a second
CTRL_C = 130


@dataclass(frozen=True, slots=True)
class Moment:
    """Just `before` or just `after` the `nth` call of an action."""

    action: str
    nth: int
    phase: str

    @property
    def said(self) -> str:
        """Where that is, for people."""
        return f"{self.phase} {self.action} number {self.nth}"


def moments(actions: list[str], is_read: Callable[[str], bool]) -> list[Moment]:
    """Return where to kill a command that makes these calls."""
    seen: Counter[str] = Counter()
    found = []
    for action in actions:
        seen[action] += 1
        phases = ("before",) if is_read(action) else ("before", "after")
        found += [Moment(action, seen[action], phase) for phase in phases]
    return found


class Watch:
    """What the server tells of each call: `then` is done once, at the moment; what it returns the server does."""

    def __init__(self, at: Moment | None = None, then: Callable[[], str | None] = lambda: None) -> None:
        self.actions: list[str] = []
        self.came = False
        self._at, self._then = at, then
        self._numbers: dict[int, int] = {}
        self._lock = threading.Lock()

    def __call__(self, number: int, action: str, phase: str) -> str | None:
        """Count the call; act where it is meant."""
        with self._lock:
            if phase == "before":
                self.actions.append(action)
                self._numbers[number] = self.actions.count(action)
            meant = Moment(action, self._numbers[number], phase) == self._at and not self.came
            self.came |= meant
        return self._then() if meant else None


class CloudLife:
    """One home with an account at a model, and its commands."""

    def __init__(self, server: Any, home: Path, config: str, many: Many | None = None) -> None:
        """Commands are processes of their own; with `many`, forks of one that has the SDK already."""
        self.server, self.home = server, home
        environ = {"PYTHONDONTWRITEBYTECODE": "1", **server.environ}
        self.program = Program(home, environ) if many is None else ForkedProgram(home, environ, many)
        self.program.config(config)

    def counted(self, *args: str) -> list[str]:
        """Run a verb to its end and return the actions that it called."""
        self.server.on_call = watch = Watch()
        self.done(*args)
        self.server.on_call = None
        return watch.actions

    def killed(self, *args: str, at: Moment, codes: tuple[int, ...] = ()) -> bool:
        """Run a verb and kill it at a moment; return whether that came. `codes` are other right ends."""
        begun: Future[Any] = Future()

        def kill() -> str:
            process = begun.result(TIMEOUT_S)
            os.kill(process.pid, signal.SIGKILL)
            process.wait(TIMEOUT_S)
            return "drop"

        return self._watched(begun, Watch(at, kill), args, *codes)

    def left(self, *args: str, at: Moment, program: Program | None = None) -> str:
        """Run a verb, and press Ctrl-C at a moment, from which on the cloud is silent; return what it says on stderr.

        It has to end by itself, with 130. `program`: what runs it instead of the usual one.
        """
        begun: Future[Any] = Future()

        def press() -> str:
            process = begun.result(TIMEOUT_S)
            os.kill(process.pid, signal.SIGINT)
            process.wait(LEFT_WITHIN_S)
            return "drop"

        self.server.on_call = watch = Watch(at, press)
        process = (program or self.program).start(*args)
        begun.set_result(process)
        try:
            out, err = process.communicate(timeout=TIMEOUT_S)
        finally:
            self.server.on_call = None
            process.kill()
        assert watch.came, (args, process.returncode, out, err)
        assert process.returncode == CTRL_C, (args, process.returncode, out, err)
        assert b"Traceback" not in err, err
        return str(err.decode())

    def interrupted(self, *args: str, at: Moment) -> bool:
        """Run a verb, and let the cloud take the spot machines at a moment; return whether that came."""
        return self._watched(Future(), Watch(at, self.take), args, *range(11))

    def take(self) -> None:
        """Let the cloud take every spot machine that lives."""
        raise NotImplementedError

    def _watched(self, begun: Future[Any], watch: Watch, args: tuple[str, ...], *codes: int) -> bool:
        self.server.on_call = watch
        process = self.program.start(*args)
        begun.set_result(process)
        try:
            out, err = process.communicate(timeout=TIMEOUT_S)
        finally:
            self.server.on_call = None
            process.kill()
        assert process.returncode in (0, -signal.SIGKILL, *codes), (args, process.returncode, out, err)
        return watch.came

    def done(self, *args: str, code: int = 0) -> dict[str, Any]:
        """Run a verb that ends with this exit code; return its JSON document."""
        done = self.program(*args, "-o", "json", timeout=TIMEOUT_S)
        assert done.code == code, (args, done.code, done.out, done.err)
        document: dict[str, Any] = done.json
        return document

    def check_no_saved_call(self) -> None:
        """No saved call stays in the home: it holds the key of a host."""
        left = {path.relative_to(self.home).parts[0] for path in self.home.rglob("*") if not path.is_dir()}
        assert not left - {"config.toml", "identities.json", "ledger", "keys", "locks", "number", "providers"}, left
