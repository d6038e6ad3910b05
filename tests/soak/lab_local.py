"""What the local machines of one member's home are, read from their directories and processes."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

START_S = 90.0  # of this computer's own time: how long a machine may take until it listens, on a busy one


class LocalPlace:
    """The account `local` of a member, beside the models of clouds."""

    def __init__(self, name: str, home: Path) -> None:
        self.number, self._place = f"local of {name}", home / "providers" / "local" / "local"

    def ask(self, what: str, *_words: Any) -> Any:
        """Wait until what is being started is up or dead; nothing else happens here by itself."""
        until = time.monotonic() + START_S
        while what == "settle" and any(self._starts(one) for one in self._directories()):
            assert time.monotonic() < until, f"a machine of {self._place} does not come up"
            time.sleep(0.05)

    def machines(self) -> list[dict[str, Any]]:
        found = []
        for one in self._directories():
            tags = _read(one / "metadata" / "tags.json")
            if tags:
                found.append({"id": one.name, "tags": tags, "state": self._state(one), "log": []})
        return found

    def cost(self, _machine: Any, _until: float) -> None:
        """Return nothing: no cloud bills it."""

    def ahead(self, _machine: Any, _now: float, _until: float) -> int:
        return 0

    def _directories(self) -> Iterator[Path]:
        return iter(sorted(self._place.glob("i-*")))

    def _state(self, directory: Path) -> str:
        return "running" if _is_alive(directory) else "stopped"

    def _starts(self, directory: Path) -> bool:
        record, run = _read(directory / "machine.json"), _read(directory / "run.json")
        wanted = record.get("wanted") == "running" and "ended" not in record
        says = run if run.get("boot") == record.get("boots") else {}
        return wanted and "port" not in says and _is_alive(directory)


def _is_alive(directory: Path) -> bool:
    return any(
        str(directory) in process.info["cmdline"]
        for process in psutil.process_iter(["cmdline"])
        if process.info["cmdline"]
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
