"""The memory and CPU of what `ls` reads: 10,000 machines of which 1,000 live, each reading in a process of its own.

`there` reads the living, as `ls` does; `machines` reads all, as `ls --all` does.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

from cloudgpu.core.events.log import Draft
from cloudgpu.ledger.open import open_ledger

sys.path.insert(0, str(Path(__file__).parent))
from admission import HOUR, NOW, _life

AIM = 80  # MB at the peak
_READ = """
import json, resource, sys, time
from datetime import UTC, datetime
from pathlib import Path
from cloudgpu.ledger.open import open_ledger
ledger = open_ledger(None, Path(sys.argv[1]), actor="somebody", clock=lambda: datetime.now(UTC))
begun = time.process_time()
rows = getattr(ledger, sys.argv[2])()
cpu = time.process_time() - begun
print(json.dumps([len(rows), cpu * 1e3, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3]))
"""


def measure(machines: int = 10_000, living: int = 1000) -> dict[str, list[dict[str, Any]]]:
    """Return the peak memory (MB) of the process that reads the living, against that which reads all."""
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory) / "ledger"
        _write(place, machines, living)
        (_, ours_cpu, ours), (_, all_cpu, every) = _read(place, "there"), _read(place, "machines")
    what = f"reading of `ls`, {machines} machines of which {living} live"
    memory = {"what": f"{what}: peak memory", "unit": "MB", "ours": ours, "against": every, "aim": f"<= {AIM} MB"}
    cpu = {"what": f"{what}: CPU", "unit": "ms CPU", "ours": ours_cpu, "against": all_cpu, "aim": "less", "n": 1}
    memory |= {"ratio": ours / every, "met": ours <= AIM, "n": 1, "spread": ""}
    return {"rows": [memory, cpu | {"ratio": ours_cpu / all_cpu, "met": ours_cpu < all_cpu, "spread": ""}]}


def _write(place: Path, machines: int, living: int) -> None:
    ledger = open_ledger(None, place, actor="somebody", clock=lambda: NOW)
    for begin in range(0, machines, 1000):
        lines = [line for number in range(begin, min(machines, begin + 1000)) for line in _life(number)]
        ledger.append(lines + [_gone(number) for number in range(max(living, begin), min(machines, begin + 1000))])
    ledger.close()


def _gone(number: int) -> Draft:
    at = NOW - HOUR + timedelta(microseconds=number)
    return Draft(
        "instance_vanished",
        f"cg-{number:016x}",
        {"provider_id": f"i-{number:017x}", "proof": "none is there"},
        at,
        f"g:{number}",
    )


def _read(place: Path, what: str) -> tuple[int, float, float]:
    command = [sys.executable, "-c", _READ, str(place), what]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    rows, cpu, memory = json.loads(found.stdout)
    return rows, cpu, memory


if __name__ == "__main__":
    for row in measure()["rows"]:
        print(f"{row['what']}: {row['ours']:.0f} against {row['against']:.0f} {row['unit']}")
