"""In which order the files of a run begin, so that every core has work from the first minute to the last."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

# Of the long runs: what takes minutes begins first, else it goes on alone at the end.
LONGEST = (
    "test_thirty_days.py",
    "test_crash.py",
    "test_crash_aws_park.py",
    "test_half_year.py",
    "test_lab.py",
    "test_crash_verbs.py",
    "test_crash_aws.py",
    "test_crash_up.py",
    "test_crash_azure.py",
    "test_crash_gcp.py",
    "test_ctrl_c_aws.py",
)
WAIT = {"access", "agent", "cli", "docs", "faults", "local", "machine", "ssh"}  # rooms that wait for real processes
SHORT = {"catalog", "config", "core", "views"}  # rooms that start nothing
BY = 0.8  # of the others, all that wait have begun


def order(root: Path) -> Callable[[pytest.Item], Any]:
    """Return the key by which tests are sorted; a file's own stay in their order.

    Long runs come first. Then what waits and what computes begin in turn: workers of both kinds share the cores. Short
    files come last, so that no worker waits for another one's long one. The order in which files are read says nothing.
    """
    files = sorted(path for path in root.rglob("test_*.py"))
    waiting = [path for path in files if _room(path, root) in WAIT]
    others = [path for path in files if _room(path, root) not in WAIT]
    others.sort(key=lambda path: _room(path, root) in SHORT)
    place = {path: BY * number / len(waiting) for number, path in enumerate(waiting)}
    place |= {path: number / len(others) for number, path in enumerate(others)}

    def key(item: pytest.Item) -> Any:
        if item.get_closest_marker("soak") is None:
            return 1, 0, place.get(item.path, 1.0), str(item.path)
        number = LONGEST.index(item.path.name) if item.path.name in LONGEST else len(LONGEST)
        return 0, number, 0.0, str(item.path)

    return key


def _room(path: Path, root: Path) -> str:
    """Return the room that a test belongs to: a provider's own, or the first folder below the tests."""
    rooms = path.relative_to(root).parts[:-1]
    return rooms[1] if rooms[:1] == ("providers",) and len(rooms) > 1 else (rooms or ("",))[0]
