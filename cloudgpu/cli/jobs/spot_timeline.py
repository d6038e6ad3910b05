"""Draws one run of spot policies over time: a character for each part of the time to the deadline."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from math import ceil
from typing import TYPE_CHECKING, NamedTuple

from cloudgpu.cli.render import clipped, paragraph
from cloudgpu.cli.terminal import columns, has_unicode
from cloudgpu.core.values.naming import counted

if TYPE_CHECKING:
    from cloudgpu.views.documents.jobs.spot import SpotBacktestDocument, SpotPolicyTimeline, SpotStretch

INDENT, LABEL_WIDTH, MIN_WIDTH, MAX_WIDTH = 2, 18, 20, 96  # columns
TICKS = 6  # intervals of the axis
_WORK_PRECISION = 1e-4  # shares of work are rounded to this


class Marks(NamedTuple):
    """The characters of a timeline."""

    spot: str
    on_demand: str
    changeover: str
    wait: str
    done: str
    available: str
    unavailable: str
    eighths: str
    axis: str
    tick: str


BLOCKS = Marks("█", "▓", "░", "·", " ", "▀", " ", " ▁▂▃▄▅▆▇█", "─", "┴")
PLAIN = Marks("#", "%", "/", ".", " ", "=", " ", " 123456789", "-", "+")  # if the output has no Unicode


def timeline_text(document: SpotBacktestDocument) -> str:
    """Return a drawing of one run: when spot was available, then each policy's actions and progress, above an axis."""
    marks, width = (
        BLOCKS if has_unicode(sys.stdout) else PLAIN,
        max(MIN_WIDTH, min(MAX_WIDTH, columns() - INDENT - LABEL_WIDTH)),
    )
    timeline, deadline_h = document["timeline"], document["deadline_h"]
    lines = [_title(document), ""]
    for name, availability in zip(timeline["traces"], timeline["available"], strict=True):
        lines.append(_labelled_line(clipped(name, LABEL_WIDTH - 1), _availability_line(availability, width, marks)))
    for policy in timeline["policies"]:
        lines += ["", _labelled_line(policy["policy"], _actions_line(policy["stretches"], deadline_h, width, marks))]
        lines.append(_labelled_line("", _progress_line(policy["stretches"], deadline_h, width, marks)))
        lines.append(_labelled_line("", _summary_text(document, policy)))
    lines += ["", *_axis_lines(deadline_h, width, marks), "", _legend_text(marks)]
    return "\n".join(line.rstrip() for line in lines)


def _title(document: SpotBacktestDocument) -> str:
    timeline = document["timeline"]
    trace_text = timeline["traces"][0] if not timeline["traces"][1:] else f"{len(timeline['traces'])} zones"
    optimum_text = f"{'$' if document['priced'] else ''}{timeline['optimum']:,.2f}"
    return paragraph(f"One run, from hour {timeline['at_h']:.1f} of {trace_text}; the optimum is {optimum_text}:")


def _labelled_line(label: str, characters: str) -> str:
    return f"{'':{INDENT}}{label:<{LABEL_WIDTH}}{characters}"


def _availability_line(availability: Sequence[bool], width: int, marks: Marks) -> str:
    characters = ""
    for column in range(width):
        first, end = (column_edge * len(availability) // width for column_edge in (column, column + 1))
        samples = availability[first : max(first + 1, end)]
        characters += marks.available if 2 * sum(samples) >= len(samples) else marks.unavailable
    return characters


def _actions_line(stretches: Sequence[SpotStretch], deadline_h: float, width: int, marks: Marks) -> str:
    """Return one character for each part of the time: the mode that took most of it."""
    characters = ""
    for column in range(width):
        since_h, until_h = column * deadline_h / width, (column + 1) * deadline_h / width
        hours_by_mode: dict[str, float] = {}
        for stretch in stretches:
            overlap = min(until_h, stretch["until_h"]) - max(since_h, stretch["since_h"])
            if overlap > 0:
                hours_by_mode[stretch["mode"]] = hours_by_mode.get(stretch["mode"], 0.0) + overlap
        characters += _mode_character(hours_by_mode, marks)
    return characters


def _mode_character(hours_by_mode: dict[str, float], marks: Marks) -> str:
    if not hours_by_mode:
        return marks.done
    mode = max(hours_by_mode, key=lambda mode: hours_by_mode[mode])
    return {"spot": marks.spot, "on_demand": marks.on_demand, "changeover": marks.changeover}.get(mode, marks.wait)


def _progress_line(stretches: Sequence[SpotStretch], deadline_h: float, width: int, marks: Marks) -> str:
    levels = len(marks.eighths) - 1
    characters = ""
    for column in range(width):
        until_h = (column + 1) * deadline_h / width
        if column * deadline_h / width >= stretches[-1]["until_h"]:
            break
        characters += marks.eighths[min(levels, ceil(_done_at(stretches, until_h) * levels - _WORK_PRECISION))]
    return characters


def _done_at(stretches: Sequence[SpotStretch], at_h: float) -> float:
    """Return the share of the work that is done at this hour, interpolated within a stretch."""
    done_before = 0.0
    for stretch in stretches:
        if at_h < stretch["until_h"]:
            stretch_share = max(0.0, at_h - stretch["since_h"]) / (stretch["until_h"] - stretch["since_h"])
            return done_before + (stretch["work_done"] - done_before) * stretch_share
        done_before = stretch["work_done"]
    return done_before


def _summary_text(document: SpotBacktestDocument, policy: SpotPolicyTimeline) -> str:
    hours_by_market = {"spot": 0.0, "on_demand": 0.0}
    for stretch in policy["stretches"]:
        if stretch["market"] is not None:
            hours_by_market[stretch["market"]] += stretch["until_h"] - stretch["since_h"]
    cost = f"{'$' if document['priced'] else ''}{policy['cost']:,.2f}"
    return (
        f"{cost}: {hours_by_market['spot']:.1f}h spot, {hours_by_market['on_demand']:.1f}h on demand, "
        f"{counted(policy['starts'], 'start')}, {policy['finish_h']:.1f}h"
    )


def _axis_lines(deadline_h: float, width: int, marks: Marks) -> list[str]:
    ticks = [round(number * (width - 1) / TICKS) for number in range(TICKS + 1)]
    line = "".join(marks.tick if column in ticks else marks.axis for column in range(width))
    labels = [" "] * (width + LABEL_WIDTH)
    for number, column in enumerate(ticks):
        label = _hour_text(deadline_h * number / TICKS)
        label_start = min(column, width - len(label))
        labels[label_start : label_start + len(label)] = label
    return [_labelled_line("", line), _labelled_line("", "".join(labels))]


def _hour_text(hours: float) -> str:
    from cloudgpu.core.values.times import duration_text

    return f"{hours:g}h" if hours.is_integer() else duration_text(round(hours * 60) * 60)


def _legend_text(marks: Marks) -> str:
    return paragraph(
        f"{marks.available} spot there, {marks.spot} on spot, {marks.on_demand} on demand, "
        f"{marks.changeover} changeover, {marks.wait} waiting, "
        f"{marks.eighths[1]}{marks.eighths[4]}{marks.eighths[-1]} work done"
    )
