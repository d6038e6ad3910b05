"""How long a job's directory takes to snapshot, beside `rsync -a` of the same directory to another one.

Both copy every file, write it beside and rename it. Ours hashes it as well; rsync keeps times and owners. They work in
turns on the same file system, a directory in memory where there is one: a disk that is busy would drown the difference.
The second time nothing has changed: ours compares times with what it wrote down, rsync with the copy. The aims are for
CPU time, of all processes and threads: on a busy computer the three processes of rsync get more turns than our one.
"""

from __future__ import annotations

import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cloudgpu.access.jobs.snapshot import take_snapshot

SMALL_FILES, LARGE_BYTES, PIECE = 10_000, 2 << 30, 1 << 20
AIM = 1.3  # times rsync
AGAIN_AIM = 5  # it writes the list of 10,000 files anew, and rsync writes nothing: 0.3 s against 0.07 s
MEMORY = Path("/dev/shm")  # noqa: S108  (shared memory of Linux)
Taken = tuple[float, float]  # seconds, CPU seconds
LATER_S = 60.0  # after the files were written: a snapshot trusts no time that is younger than 2 s


def measure(turns: int = 5) -> dict[str, Any]:
    """Return the rows: 10,000 small files and 2 GiB in one file, the first time and unchanged."""
    rows = []
    for what, fill in (("10,000 small files", _small), ("2 GiB in one file", _large)):
        with tempfile.TemporaryDirectory(dir=_place()) as directory:
            place = Path(directory)
            fill(place / "source")
            found = [_turn(place) for _ in range(turns + 1)][1:]
        for at, more, aim in ((0, "", AIM), (1, ", unchanged", AGAIN_AIM)):
            rows += _rows(f"snapshot of {what}{more}", [turn[at] for turn in found], aim)
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


def _turn(place: Path) -> list[tuple[Taken, Taken]]:
    """Take and copy the directory twice each; return what both took, for the first and the second time."""
    source, later = place / "source", time.time() + LATER_S
    for made in ("store", "copy"):
        shutil.rmtree(place / made, ignore_errors=True)
    argv = ["rsync", "-a", f"{source}/", str(place / "copy")]
    found = []
    for _ in range(2):
        ours = _timed(lambda: take_snapshot(source, place / "store", now=lambda: later))
        found.append((ours, _timed(lambda: subprocess.run(argv, check=True))))
    return found


def _timed(act: Callable[[], object]) -> Taken:
    begun, cpu = time.perf_counter(), _cpu()
    act()
    return time.perf_counter() - begun, _cpu() - cpu


def _cpu() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def _rows(what: str, pairs: Sequence[tuple[Taken, Taken]], aim: float) -> list[dict[str, Any]]:
    elapsed = _row(what, "s", [(ours[0], other[0]) for ours, other in pairs])
    cpu = _row(what, "CPU s", [(ours[1], other[1]) for ours, other in pairs])
    return [elapsed, cpu | {"aim": f"<= {aim:g}", "met": cpu["ratio"] <= aim}]


def _row(what: str, unit: str, pairs: Sequence[tuple[float, float]]) -> dict[str, Any]:
    ours, against = (statistics.median(values) for values in zip(*pairs, strict=True))
    ratios = [one / other for one, other in pairs]
    found = {"what": what, "unit": unit, "ours": ours, "against": against, "ratio": statistics.median(ratios)}
    return found | {"n": len(pairs), "spread": f"{min(ratios):.2f} to {max(ratios):.2f}"}


if __name__ == "__main__":
    for row in measure(int(sys.argv[1]) if len(sys.argv) > 1 else 5)["rows"]:
        print(row)
