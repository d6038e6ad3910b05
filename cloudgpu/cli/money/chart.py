"""Draws numbers in the terminal: a sparkline, gauges, columns of days, lines. Made without colours.

Only the verbs that draw import this. Lines are drawn by plotext, which is imported when one is drawn.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import NamedTuple

from cloudgpu.cli.terminal import has_unicode

MIN_WIDTH, MAX_WIDTH = 20, 160  # columns of a chart
ROWS = 8  # of a chart, without its axis
HALF_CELL = 0.5  # a cell that is filled at least so far is drawn


class ChartCharacters(NamedTuple):
    """The characters of a chart: eighths of a cell from low to high, an empty day, a gauge, an axis."""

    eighths: str
    empty: str
    used: str
    reserved: str
    free: str
    axis: str
    corner: str
    foot: str


BLOCKS = ChartCharacters("▁▂▃▄▅▆▇█", "·", "█", "▒", "░", "│", "└", "─")
ASCII = ChartCharacters("_.-:=+*#", " ", "#", "=", ".", "|", "+", "-")  # if the output has no Unicode


def chart_characters() -> ChartCharacters:
    """Return the characters that standard output can show: blocks in Unicode, else ASCII."""
    return BLOCKS if has_unicode(sys.stdout) else ASCII


def sparkline(values: Sequence[float]) -> str:
    """Return one character for each value, from low to high; a dot for zero and negative values."""
    characters, top_value = chart_characters(), max(values, default=0)
    return "".join(
        characters.eighths[_cell_height(value, top_value, 8) - 1] if value > 0 else characters.empty for value in values
    )


def gauge(used: float, limit: float, width: int, reserved: float = 0) -> str:
    """Return a bar of exactly `width`: what was used, what is reserved, the rest.

    A small use is visible, too; the bar is full only if the limit is reached.
    """
    characters, width = chart_characters(), max(1, width)
    used_cells, covered_cells = _cell_count(used, limit, width), _cell_count(used + reserved, limit, width)
    if reserved > 0 and used < limit:
        used_cells, covered_cells = min(used_cells, width - 1), max(covered_cells, min(used_cells, width - 1) + 1)
    return (
        characters.used * used_cells
        + characters.reserved * (covered_cells - used_cells)
        + characters.free * (width - covered_cells)
    )


def column_chart(labels: Sequence[str], values: Sequence[float], width: int, height: int = ROWS) -> str:
    """Return a column for each value, of dollars, over its label; labels that do not fit are left out."""
    if not values:
        return ""
    characters, top_value = chart_characters(), axis_end(max(values))
    ticks = {height: dollars(top_value), (height + 1) // 2: dollars(top_value * ((height + 1) // 2) / height)}
    margin = max(map(len, ticks.values()))
    column_width = max(1, min(8, (min(width, MAX_WIDTH) - margin - 2) // len(values)))
    bar_width = max(1, column_width - 1)
    levels = [_cell_height(value, top_value, 8 * height) if value > 0 else 0 for value in values]
    lines = []
    for row in range(height, 0, -1):
        row_text = "".join(
            _bar_cell(level - 8 * (row - 1), characters, bar_width).ljust(column_width) for level in levels
        )
        lines.append(f"{ticks.get(row, '').rjust(margin)} {characters.axis}{row_text}".rstrip())
    lines.append(f"{'$0'.rjust(margin)} {characters.corner}{characters.foot * (column_width * len(values))}")
    return "\n".join([*lines, " " * (margin + 2) + _axis_labels(labels, column_width)])


def line_chart(series: Mapping[str, Sequence[tuple[float, float]]], width: int, height: int = 14) -> str:
    """Return a chart of named lines, each of (x, dollars); each has a mark of its own, so that it needs no colour."""
    import plotext

    all_points = [point for points in series.values() for point in points]
    if not all_points:
        return ""
    top_value = axis_end(max(y for _, y in all_points))
    plotext.clear_figure()
    plotext.limit_size(False, False)  # the width is known here
    plotext.plot_size(max(MIN_WIDTH, min(MAX_WIDTH, width)), height)
    plotext.theme("clear")
    plotext.ylim(0, top_value)
    plotext.yticks([0, top_value / 2, top_value], [dollars(0), dollars(top_value / 2), dollars(top_value)])
    marks = cycle("•x+o" if chart_characters() is BLOCKS else "*x+o")
    for name, points in series.items():
        plotext.plot([x for x, _ in points], [y for _, y in points], label=name, marker=next(marks))
    return "\n".join(line.rstrip() for line in plotext.uncolorize(plotext.build()).splitlines())


def axis_end(largest: float) -> float:
    """Return the end of an axis: the next of 1, 2, 4, 5, 8 or 10 times a power of ten."""
    if largest <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(largest))
    return next((step * power for step in (1, 2, 4, 5, 8) if step * power >= largest), 10 * power)


def dollars(amount: float) -> str:
    """Return an amount for an axis, with no more digits than it needs."""
    places = 0 if amount == int(amount) else 2 if amount * 100 == int(amount * 100) else 4
    return f"${amount:,.{places}f}"


def _cell_height(value: float, top_value: float, level_count: int) -> int:
    """Return the height of a positive value in `level_count` levels: at least one, so that it is visible."""
    return max(1, min(level_count, math.floor(value / top_value * level_count + HALF_CELL))) if top_value > 0 else 0


def _cell_count(value: float, limit: float, width: int) -> int:
    if value <= 0:
        return 0
    if limit <= 0 or value >= limit:
        return width
    return max(1, min(width - 1, math.floor(value / limit * width + HALF_CELL))) if width > 1 else 0


def _bar_cell(eighths: int, characters: ChartCharacters, width: int) -> str:
    return "" if eighths <= 0 else characters.eighths[min(8, eighths) - 1] * width


def _axis_labels(labels: Sequence[str], column_width: int) -> str:
    """Return the labels under their columns, without those that would touch the one before."""
    line = ""
    for number, label in enumerate(labels):
        column = number * column_width
        if not line or column > len(line):
            line = line.ljust(column) + label
    return line
