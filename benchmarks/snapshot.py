"""How long a job's directory takes to snapshot, beside `rsync -a` of the same directory to another one.

Both copy every file, write it beside and rename it. Ours hashes it as well; rsync keeps times and owners. They work in
turns on the same file system, a directory in memory where there is one: a disk that is busy would drown the difference.
The second time nothing has changed: ours compares times with what it wrote down, rsync with the copy.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cloudgpu.access.jobs.snapshot import take

SMALL_FILES, LARGE_BYTES, PIECE = 10_000, 2 << 30, 1 << 20
AIM = 1.3  # times rsync
AGAIN_AIM = 2.5  # it writes the list of 10,000 files anew, and rsync writes nothing
MEMORY = Path("/dev/shm")  # noqa: S108  (shared memory of Linux)
LATER_S = 60.0  # after the files were written: a snapshot trusts no time that is younger than 2 s


def measure(turns: int = 5) -> dict[str, Any]:
    """Return the rows: 10,000 small files and 2 GiB in one file, the first time and unchanged."""
    rows = []
    for what, fill in (("10,000 small files", _small), ("2 GiB in one file", _large)):
        with tempfile.TemporaryDirectory(dir=_place()) as directory:
            place = Path(directory)
            fill(place / "source")
            found = [_turn(place) for _ in range(turns + 1)][1:]
        first, again = zip(*found, strict=True)
        rows.append(_row(f"snapshot of {what}", first, AIM))
        rows.append(_row(f"snapshot of {what}, unchanged", again, AGAIN_AIM))
    return {"rows": rows}


def _place() -> Path:
    """Return a directory with room for the source and two copies."""
    room = 4 * LARGE_BYTES
    return MEMORY if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > room else Path.cwd()


def _small(source: Path) -> None:
    for number in range(SMALL_FILES):
        file = source / f"part{number // 100}" / f"file{number}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(os.urandom(1000 + number % 4000))


def _large(source: Path) -> None:
    source.mkdir()
    piece = os.urandom(PIECE - 8)
    with (source / "data.bin").open("wb") as stream:
        for number in range(LARGE_BYTES // PIECE):
            stream.write(piece + number.to_bytes(8, "big"))


def _turn(place: Path) -> list[tuple[float, float]]:
    """Take and copy the directory twice each; return the seconds of both, for the first and the second time."""
    source, later = place / "source", time.time() + LATER_S
    for made in ("store", "copy"):
        shutil.rmtree(place / made, ignore_errors=True)
    argv = ["rsync", "-a", f"{source}/", str(place / "copy")]
    found = []
    for _ in range(2):
        ours = _timed(lambda: take(source, place / "store", now=lambda: later))
        found.append((ours, _timed(lambda: subprocess.run(argv, check=True))))
    return found


def _timed(act: Callable[[], object]) -> float:
    begun = time.perf_counter()
    act()
    return time.perf_counter() - begun


def _row(what: str, pairs: tuple[tuple[float, float], ...], aim: float) -> dict[str, Any]:
    ours, against = (statistics.median(values) for values in zip(*pairs, strict=True))
    ratios = [one / other for one, other in pairs]
    ratio = statistics.median(ratios)
    found = {"what": what, "unit": "s", "ours": ours, "against": against, "ratio": ratio, "n": len(pairs)}
    return found | {"aim": f"<= {aim:g}", "met": ratio <= aim, "spread": f"{min(ratios):.2f} to {max(ratios):.2f}"}


if __name__ == "__main__":
    for row in measure(int(sys.argv[1]) if len(sys.argv) > 1 else 5)["rows"]:
        print(row)
