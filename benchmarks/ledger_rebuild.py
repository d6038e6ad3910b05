"""How long a full rebuild of the ledger's projections takes, against a bare loop that reads the rows and parses them.

CPU seconds of this process, in turns, at three lengths of one ledger of 200 machines: the longest gives the ratio, the
lengths together say how it grows. `python benchmarks/ledger_rebuild.py 1000000` takes about three minutes.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from ledger_life import Growing

from cloudgpu.ledger.log import lines, projections as folding

AIM, GROWTH = 4.0, 1.1  # times the bare loop; a line of the longest ledger against one of the shortest


def measure(longest: int = 200_000, turns: int = 3) -> dict[str, Any]:
    """Return the rows of the table: the rebuild of `longest` lines, and how a line's share grows from a quarter on."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as directory:
        ledger = Growing(Path(directory) / "ledger.db")
        found = {}
        for size in (longest // 4, longest // 2, longest):
            ledger.grow(size)
            found[size] = _in_turns(ledger, turns)
        assert folding.differences(ledger.connection) == []
        ledger.connection.close()
    ours, against = found[longest]
    first = found[longest // 4][0] / (longest // 4)
    ratio = ours / against
    growth = (ours / longest) / first
    return {
        "rows": [
            {
                "what": f"rebuild of {longest:,} lines",
                "unit": "CPU s",
                "ours": ours,
                "against": against,
                "ratio": ratio,
                "aim": f"<= {AIM:g}",
                "met": ratio <= AIM,
                "n": turns,
                "spread": ", ".join(f"{size:,}: {mine / bare:.2f}" for size, (mine, bare) in found.items()),
            },
            {
                "what": "a line of it, against one of a quarter",
                "unit": "us",
                "ours": ours / longest * 1e6,
                "against": first * 1e6,
                "ratio": growth,
                "aim": f"<= {GROWTH:g}",
                "met": growth <= GROWTH,
            },
        ]
    }


def _in_turns(ledger: Growing, turns: int) -> tuple[float, float]:
    rebuilt, read = [], []
    for _ in range(turns):
        read.append(_timed(lambda: _bare(ledger)))
        rebuilt.append(_timed(lambda: _rebuild(ledger)))
    return statistics.median(rebuilt), statistics.median(read)


def _bare(ledger: Growing) -> None:
    for row in ledger.connection.execute(f"SELECT {lines.COLUMNS} FROM line ORDER BY seq"):  # noqa: S608
        json.loads(row[9])


def _rebuild(ledger: Growing) -> None:
    ledger.connection.execute("BEGIN IMMEDIATE")
    folding.rebuild(ledger.connection)
    ledger.connection.execute("COMMIT")


def _timed(work: Callable[[], None]) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun


if __name__ == "__main__":
    for row in measure(int(sys.argv[1]) if len(sys.argv) > 1 else 200_000)["rows"]:
        print(row)
