"""What still runs on a machine that is about to end, as text in 80 columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cloudgpu.cli.render import rounded
from cloudgpu.core.values.printable import printable

if TYPE_CHECKING:
    from cloudgpu.views.documents.machines.machines import BusyMachine

SHOWN, WIDTH = 10, 80


def running_lines(found: Sequence[BusyMachine]) -> list[str]:
    """Return what ends with each machine, and of which machines that is not known."""
    return [line for one in found for line in _lines(one)]


def _lines(one: BusyMachine) -> list[str]:
    if one["processes"] is None:
        return [f"{one['name']}: it is not known what still runs there: {one['error']}"]
    rows = [(str(each["pid"]), rounded(each["seconds"]), printable(each["command"])) for each in one["processes"]]
    shown, more = rows[:SHOWN], len(rows) - SHOWN
    widths = [max(len(row[column]) for row in shown) for column in (0, 1)]
    lines = [f"    {pid:>{widths[0]}}  {age:>{widths[1]}}  {command}"[:WIDTH] for pid, age, command in shown]
    rest = [f"    and {more} more"] if more > 0 else []
    return [f"{one['name']}: this still runs there and ends now:", *lines, *rest]
