"""Runs every benchmark here and prints one table: what, ours, against what, the ratio, the aim, whether it is met.

A benchmark is a module with `measure() -> dict`; its `rows` go into the table. All but `walks`, which measures no time,
compare two things in one run, so that a busy or slow machine changes both: read the ratios, not the seconds.
"""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
Row = dict[str, Any]
COLUMNS = ("what", "unit", "ours", "against", "ratio", "aim", "met", "n", "spread")


def main() -> None:
    """Run those that are named on the command line, or all."""
    names = sys.argv[1:] or sorted(path.stem for path in HERE.glob("*.py") if "def measure(" in path.read_text())
    begun = time.monotonic()
    rows: list[Row] = []
    for name in (name for name in names if name != Path(__file__).stem):
        print(f"{name} ...", file=sys.stderr, flush=True)
        found = import_module(name).measure()
        rows += found.get("rows") or ROWS[name](found)
    print(table(rows))
    print(f"\n{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores, Python {platform.python_version()}, ", end="")
    print(f"{time.monotonic() - begun:.0f} s, load {os.getloadavg()[0]:.1f}")


def table(rows: list[Row]) -> str:
    """Return the rows under their heads, in columns."""
    cells = [COLUMNS, *[tuple(_shown(row.get(column)) for column in COLUMNS) for row in rows]]
    widths = [max(len(cell[at]) for cell in cells) for at in range(len(COLUMNS))]
    return "\n".join("  ".join(text.ljust(width) for text, width in zip(cell, widths, strict=True)) for cell in cells)


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "NO"
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
    return "" if value is None else str(value)


def _tunnel(found: Row) -> list[Row]:
    """Return the rows of the tunnel: throughput, and requests that failed over a restart of the server."""
    throughput = {
        "what": "tunnel throughput",
        "unit": "MB/s",
        "ours": found["ours_mb_s"],
        "against": found["ssh_mb_s"],
        "ratio": found["ratio"],
        "aim": ">= 1",
        "met": found["ratio"] >= 1,
    }
    failed = {
        "what": "requests failed over a restart",
        "ours": found["ours_failed"],
        "against": found["ssh_failed"],
        "aim": "0",
        "met": found["ours_failed"] == 0,
        "n": found["ours_requests"],
    }
    return [throughput, failed]


ROWS: dict[str, Callable[[Row], list[Row]]] = {"tunnel": _tunnel}


if __name__ == "__main__":
    main()
