"""Kills real writers at any moment and looks at what they leave: shared by the suite and the soak."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path

from cloudgpu.ledger.log.base import Ledger
from cloudgpu.ledger.open import open_ledger
from tests.forked import Begun
from tests.ledger import writer

WRITER = Path(writer.__file__)


def opened(directory: Path, url: str | None = None) -> Ledger:
    return open_ledger(url, directory, actor="reader", clock=lambda: datetime.now(UTC))


def started(directory: Path, name: str, first: int, count: int, *, url: str | None = None) -> Begun:
    """Begin a writer in a process of its own, a fork."""
    environ = {"CLOUDGPU_LEDGER": url} if url else {}
    directory.parent.mkdir(parents=True, exist_ok=True)
    words = str(directory), name, str(first), str(count)
    return Begun(writer.main, *words, errors=said_by(directory, name), **environ)


def traced(directory: Path, name: str, first: int, count: int, *, before: tuple[str, ...]) -> subprocess.Popen[str]:
    """Begin a writer under the words `before`."""
    command = [*before, sys.executable, str(WRITER), str(directory), name, str(first), str(count)]
    directory.parent.mkdir(parents=True, exist_ok=True)
    with said_by(directory, name).open("w") as errors:
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)


def said_by(directory: Path, name: str) -> Path:
    """Where a writer's errors are, for whoever wants to know why it ended."""
    return directory.with_name(f"{directory.name}-{name}.err")


def killed_while_writing(
    directory: Path, name: str, first: int, chance: random.Random, *, url: str | None = None
) -> set[int]:
    """Start a writer, kill it -9 soon after its first line, and return the numbers that it acknowledged."""
    process = started(directory, name, first, 1_000_000, url=url)
    lines = [process.stdout.readline()]
    death = threading.Timer(chance.uniform(0, 0.006), process.kill)  # to hit any moment of a write
    death.start()
    rest, _ = process.communicate()
    death.join()
    lines += rest.splitlines(keepends=True)
    return {int(line) for line in lines if line.endswith("\n")}


def check_whole(directory: Path, acknowledged: dict[str, set[int]], *, killed: int, url: str | None = None) -> None:
    """Check that every acknowledged line stands, at most one more per kill, seq without holes, no doubt."""
    ledger = opened(directory, url)
    assert ledger.integrity_problem() is None
    found = ledger.verify()
    assert found.faults == ()
    assert [line.seq for line in ledger.events()] == list(range(1, found.line_count + 1))
    surplus = 0
    for name, numbers in acknowledged.items():
        written = {line.body["machines"] for line in ledger.events(f"scope:{name}")}
        assert numbers <= written, f"{name} lost {sorted(numbers - written)}"
        surplus += len(written - numbers)
        seen = [line for line in ledger.events(f"cg-{name}") if line.kind == "instance_observed"]
        assert len(seen) == len(written), "a transaction was written by half"
    assert surplus <= killed
    ledger.close()
