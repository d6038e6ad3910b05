"""Our model of AWS in a process of its own, with an account number of its own, on the lab's clock, with a book.

moto keeps its state in modules, so that two accounts that know nothing of each other are two processes. The book notes
each state that a machine was in, and from when on; what that costs is computed in `lab_bill.py`, without cloudgpu.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

from tests.soak import lab_bill
from tests.soak.lab_clock import SharedClock

ROOT = Path(__file__).parents[2]


class Cloud:
    """The account of AWS with this number, and its process."""

    def __init__(self, number: str, clock: SharedClock) -> None:
        self.number = number
        argv = [sys.executable, "-m", "tests.soak.lab_cloud", os.fspath(clock.path)]
        environ = os.environ | {"MOTO_ACCOUNT_ID": number}
        self._process = subprocess.Popen(argv, stdin=-1, stdout=-1, text=True, cwd=ROOT, env=environ)

    def begun(self) -> Cloud:
        """Wait until it listens: several are started side by side."""
        self.environ: dict[str, str] = self._said()
        return self

    def ask(self, *words: Any) -> Any:
        """Let it do something; the words are a method of `_Book` and its arguments."""
        self._process.stdin.write(json.dumps(words) + "\n")
        self._process.stdin.flush()
        return self._said()

    def machines(self) -> list[dict[str, Any]]:
        """Return every machine that there ever was: id, tags, type, state, and its states with their times."""
        return self.ask("machines")

    def cost(self, machine: Mapping[str, Any], until: float) -> Fraction:
        return lab_bill.cost(machine, until)

    def ahead(self, machine: Mapping[str, Any], now: float, until: float) -> Fraction:
        return lab_bill.ahead(machine, now, until)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()

    def _said(self) -> Any:
        line = self._process.stdout.readline()
        assert line, f"the model of account {self.number} has ended"
        return json.loads(line)


class _Book:
    """What the process does when it is asked."""

    def __init__(self, clock: SharedClock) -> None:
        from tests.clouds.aws import model, server

        model.time = SimpleNamespace(time=clock.time)
        self._clock, self._server = clock, server.AwsServer().start()
        self._server.model.watchers.append(self._note)
        self._server.on_call = self._call
        self._known: dict[str, tuple[Any, list[tuple[float, str]]]] = {}
        self._strike: tuple[int, int] | None = None
        self.environ = self._server.environ

    def machines(self) -> list[dict[str, Any]]:
        self._server.instances()  # whatever has to happen until now, happens
        return [self._shown(one, log) for one, log in self._known.values()]

    def due(self) -> float | None:
        """Return when the next thing happens by itself."""
        found = [at.timestamp() for at, _ in self._server.model.due.values() if at.year < 9000]
        return min(found, default=None)

    def settle(self) -> None:
        self._server.advance(0)

    def shut_down(self, id_: str) -> None:
        self._server.shut_down(id_)

    def interactive(self, id_: str) -> None:
        """Terminate a machine in the console."""
        from tests.clouds.aws import ec2, machines

        machines._acting(ec2.Ec2, self._server.instance(id_), lambda made: made._end)(
            self._server.instance(id_), "user"
        )

    def strike(self, pid: int, calls: int) -> None:
        """Kill a process, as a crash does, when so many further calls have come; a pid of 0 calls that off."""
        self._strike = (pid, calls) if pid else None

    def gaps(self) -> list[str]:
        return self._server.unmodelled

    def _call(self, _number: int, _action: str, phase: str) -> None:
        if self._strike is None or phase != "before":
            return
        pid, calls = self._strike
        self._strike = (pid, calls - 1) if calls > 1 else None
        if calls <= 1:
            os.kill(pid, signal.SIGQUIT)

    def _note(self, instance: Any) -> None:
        _, log = self._known.setdefault(instance.id, (instance, []))
        log.append((self._clock.time(), instance.state))

    def _shown(self, one: Any, log: list[tuple[float, str]]) -> dict[str, Any]:
        tags = {tag["key"]: tag["value"] for tag in one.get_tags()} or getattr(one, "lab_tags", {})
        one.lab_tags = tags
        return {"id": one.id, "tags": tags, "type": one.instance_type, "state": one.state, "log": log}


def main() -> None:
    book = _Book(SharedClock(Path(sys.argv[1])))
    print(json.dumps(book.environ), flush=True)  # noqa: T201
    for line in sys.stdin:
        method, *words = json.loads(line)
        print(json.dumps(getattr(book, method)(*words)), flush=True)  # noqa: T201
    os._exit(0)


if __name__ == "__main__":
    main()
