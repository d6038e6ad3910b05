"""What `cloudgpu cost --by project` costs in CPU seconds over a ledger of a million lines, as a ratio to `cloudgpu ls`.

Both read rows that the ledger keeps beside its lines, and no line and no ended use of the 200 machines in it. The two
run in turns. CPU time is user and system time of the child process; the ratio is that of the medians.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import ledger_life  # noqa: E402  (benchmarks/ is no package)
from cli_start import CLOUDGPU, cpu_seconds  # noqa: E402

from cloudgpu.ledger.open import open_ledger  # noqa: E402

LINES = 1_000_000
AIM = 2.0
LS, COST, DAYS = ("ls",), ("cost", "--by", "project"), ("cost", "--by", "day", "--since", "30d")


def measure(n: int = 15, count: int = LINES) -> dict[str, Any]:
    """Return the rows of the table: by project since ever with its aim, and a month by day beside it."""
    with tempfile.TemporaryDirectory() as home:
        fill(Path(home), count)
        environ = {**os.environ, "CLOUDGPU_HOME": home, "PYTHONPYCACHEPREFIX": f"{home}/bytecode"}
        environ.pop("PYTHONDONTWRITEBYTECODE", None)
        spent = _in_turns(environ, n)
    against = statistics.median(spent[LS])
    rows = [_row(f"cloudgpu {' '.join(words)}, {count:,} lines", spent[words], against) for words in (COST, DAYS)]
    rows[0] |= {"aim": f"<= {AIM:g}", "met": rows[0]["ratio"] <= AIM}
    return {"rows": rows}


def fill(home: Path, count: int) -> None:
    """Put a ledger with `count` lines of 200 machines, the last of them an hour old, into `home`, folded."""
    place = home / "ledger"
    place.mkdir(mode=0o700)
    ledger_life.START = datetime.now(UTC) - timedelta(hours=1) - timedelta(seconds=30 * count)
    growing = ledger_life.Growing(place / "ledger.db")
    growing.grow(count)
    growing.connection.close()
    ledger = open_ledger(None, place, actor="a benchmark", clock=lambda: datetime.now(UTC))
    ledger.settle("it was made at once")  # the head record that a ledger has which grew line by line
    ledger.rebuild()
    ledger.close()


def _in_turns(environ: Mapping[str, str], n: int) -> dict[tuple[str, ...], list[float]]:
    spent: dict[tuple[str, ...], list[float]] = {LS: [], COST: [], DAYS: []}
    for turn in range(n + 1):
        for words, seconds in spent.items():
            found = cpu_seconds([*CLOUDGPU, *words], environ)
            if turn:  # the first reads and compiles everything
                seconds.append(found)
    return spent


def _row(what: str, seconds: list[float], against: float) -> dict[str, Any]:
    ours = statistics.median(seconds)
    spread = f"{min(seconds):.3f} to {max(seconds):.3f}"
    row = {"what": what, "unit": "CPU s", "ours": ours, "against": against, "ratio": ours / against}
    return row | {"n": len(seconds), "spread": spread}


if __name__ == "__main__":
    for row in measure(*map(int, sys.argv[1:]))["rows"]:
        print(f"{row['what']}: {row['ratio']:.2f} times ls (n={row['n']}, {row['spread']} s, {row.get('aim', '')})")
