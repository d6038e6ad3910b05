"""What `cloudgpu cost` takes in CPU seconds over a ledger of 10,000 machines, beside a bare loop over the same rows.

The bare loop reads each machine's row from the ledger's file, parses it, and adds up what has ended. Nine machines of
ten have ended, the tenth still runs. Both are processes of their own and run in turns; CPU time is their user and
system time. The command is measured over a tenth of the machines as well: ten times as many machines should take at
most ten times as long.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import ledger_life  # noqa: E402  (benchmarks/ is no package)
from cli_start import CLOUDGPU, cpu_seconds  # noqa: E402

from cloudgpu.core.events.log import Draft  # noqa: E402
from cloudgpu.core.values.times import iso  # noqa: E402
from cloudgpu.ledger.open import open_ledger  # noqa: E402

MACHINES = 10_000
AIM = 1.5  # CPU seconds
HOUR = timedelta(hours=1)
BARE = """
import json, sqlite3, sys
rows = [json.loads(text) for (text,) in sqlite3.connect(sys.argv[1]).execute("SELECT row FROM machine ORDER BY since")]
print(sum(sums[1] for row in rows for sums in row["usage_totals"].values()))
"""


def measure(n: int = 5, machines: int = MACHINES) -> dict[str, Any]:
    """Return the rows of the table: all machines against the bare loop, then against a tenth of them."""
    with tempfile.TemporaryDirectory() as home, tempfile.TemporaryDirectory() as small:
        fill(Path(home), machines)
        fill(Path(small), machines // 10)
        ours, bare, few = _in_turns(home, small, n)
    what, shown = f"cloudgpu cost, {machines:,} machines", statistics.median
    common = {"unit": "CPU s", "ours": shown(ours), "n": n, "spread": f"{min(ours):.2f} to {max(ours):.2f}"}
    against = {"against": shown(bare), "ratio": shown(ours) / shown(bare), "aim": f"<= {AIM:g} s"}
    tenth = {"against": shown(few), "ratio": shown(ours) / shown(few), "aim": "<= 10"}
    first = {"what": f"{what}, against a bare loop", **common, **against, "met": shown(ours) <= AIM}
    return {"rows": [first, {"what": f"{what}, against a tenth", **common, **tenth, "met": tenth["ratio"] <= 10}]}


def fill(home: Path, machines: int) -> None:
    """Put a ledger of this many machines into `home`, folded."""
    place = home / "ledger"
    place.mkdir(mode=0o700)
    growing = ledger_life.Growing(place / "ledger.db")
    growing.connection.execute("BEGIN")
    wanted = _lives(machines)
    while sheaf := list(islice(wanted, 2000)):
        growing.append(sheaf)
    growing.connection.execute("COMMIT")
    growing.connection.close()
    ledger = open_ledger(None, place, actor="a benchmark", clock=lambda: datetime.now(UTC))
    ledger.settle("it was made at once")  # the head record that a ledger has which grew line by line
    ledger.rebuild()
    ledger.close()


def _lives(machines: int) -> Iterator[Draft]:
    """Yield the lines of machines: launched a minute apart, seen to run, and, nine of ten, ended an hour later."""
    start = datetime.now(UTC) - HOUR - machines * timedelta(minutes=1)
    for number in range(machines):
        subject, at = f"cg-{number:016x}", start + number * timedelta(minutes=1)
        yield Draft("launch_intended", subject, ledger_life.intended(number), at, f"launch:{subject}")
        seen = ledger_life.seen(number, "running", at) | {"launched_at": iso(at)}
        yield Draft("instance_observed", subject, seen, at, f"seen:{subject}")
        if number % 10:
            ended = seen | {"state": "terminated", "billed": False, "since": iso(at + HOUR)}
            yield Draft("instance_observed", subject, ended, at + HOUR, f"ended:{subject}")


def _in_turns(home: str, small: str, n: int) -> tuple[list[float], list[float], list[float]]:
    environ = {**os.environ, "PYTHONPYCACHEPREFIX": f"{home}/bytecode"}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    cost = [*CLOUDGPU, "cost", "-o", "json"]
    bare = [sys.executable, "-c", BARE, f"{home}/ledger/ledger.db"]
    found: tuple[list[float], ...] = ([], [], [])
    for turn in range(n + 1):
        for spent, argv, where in zip(found, (cost, bare, cost), (home, home, small), strict=True):
            seconds = cpu_seconds(argv, {**environ, "CLOUDGPU_HOME": where})
            if turn:  # the first reads and compiles everything
                spent.append(seconds)
    return found[0], found[1], found[2]


if __name__ == "__main__":
    for row in measure(*map(int, sys.argv[1:]))["rows"]:
        times = f"{row['ours']:.2f} against {row['against']:.2f} CPU s"
        print(f"{row['what']}: {times}, {row['ratio']:.2f} ({row['spread']})")
