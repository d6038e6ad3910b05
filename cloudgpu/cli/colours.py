"""Colours the words of an answer by their meaning: states, money, headings, warnings, errors.

Answers are made without colours, as their widths are counted; the finished text is coloured here, line by line.
"""

from __future__ import annotations

import re
from itertools import groupby

from cloudgpu.cli.terminal import paint

STATES_BY_COLOUR = {
    "green": ("running", "ready"),
    # In transition.
    "magenta": ("pending", "stopping", "parking", "disk left"),
    # The user should do something.
    "bold magenta": ("unknown", "unsettled", "interrupted"),
    # It costs little, or nothing.
    "dim": (
        "parked",
        "stopped",
        "deallocated",
        "terminated",
    ),
}
COLOURS_BY_STATE = {state: colour for colour, states in STATES_BY_COLOUR.items() for state in states}
# Words that begin a line: what a check found, and errors.
MARKS = {
    "ok": "green",
    "note": "magenta",
    "warn": "bold magenta",
    "FAIL": "bold red",
    "FAILED:": "bold red",
    "error:": "bold red",
}

# A bar has the colour of the words behind it, which are the status of a budget.
BARS = {"used up": "bold red", "passed by what runs": "bold magenta", "nearly used up": "magenta", "fits": "green"}

# Labels in what is shown before a question: what is erased, open to everybody, billed, or without a safeguard.
LABELS = {
    "stop erases": "bold red",
    "erases": "bold red",
    "open": "bold red",
    "money": "bold magenta",
    "guard": "bold magenta",
}
LABELS |= {"still billed": "bold magenta", "also billed": "magenta"}

# What can stand anywhere in a line. A state stands in a column: two spaces before it, and as many behind, or nothing.
_WORDS = re.compile(
    r"(?P<money><?\$-?\d[\d,]*(?:\.\d+)?)"
    rf"|(?<=  )(?P<state>{'|'.join(map(re.escape, COLOURS_BY_STATE))})(?=  | \(|,|$)"
    rf"|(?<= is )(?P<is>{'|'.join(map(re.escape, COLOURS_BY_STATE))})(?=[ ,;])"
    r"|(?<=  )(?P<over>over \d+\w+)"  # a lease that ended: `over 7d`
)
_MARK = re.compile(rf"(?P<indent> *)(?P<mark>{'|'.join(map(re.escape, MARKS))})(?= )")
_LABEL = re.compile(rf"  (?P<label>{'|'.join(LABELS)})(?=  )")
_BAR = re.compile(rf"  (?P<bar>[█▒░#=.]{{10,}})  (?P<state>{'|'.join(BARS)})")
# A machine over time: on spot, on demand, starting, waiting.
_TIMELINE = re.compile(r"  (?P<label>\S[^█▓░·]{0,16} +)(?P<run>[█▓░·]+)")
TIMELINE_COLOURS = {"█": "green", "▓": "magenta", "░": "bold magenta", "·": "dim"}
_HEADINGS = re.compile(r" *[A-Z$/%.-]+(?: [A-Z$/%]+)*(?: {2,}[A-Z$/%.-]+(?: [A-Z$/%]+)*)+ *")
_TITLE = re.compile(r"Plan|Stop|End|Extend|Start|At the cloud")


def coloured(text: str) -> str:
    """Return the text with codes around words that mean something; it stays the same without them."""
    return "\n".join(map(_coloured_line, text.split("\n")))


def _coloured_line(line: str) -> str:
    if _HEADINGS.fullmatch(line):
        return paint(line, "dim")
    if _TITLE.fullmatch(line):
        return paint(line, "bold")
    bar = _BAR.fullmatch(line)
    if bar is not None:
        return paint(line, BARS[bar["state"]])
    return _labelled(line)


def _labelled(line: str) -> str:
    """Return a line that begins with a label or a mark, or any other one."""
    timeline = _TIMELINE.fullmatch(line)
    if timeline is not None:
        painted = (paint("".join(same_cells), TIMELINE_COLOURS[mark]) for mark, same_cells in groupby(timeline["run"]))
        return f"  {timeline['label']}{''.join(painted)}"
    label = _LABEL.match(line)
    if label is not None:
        return f"  {paint(label['label'], LABELS[label['label']])}{_WORDS.sub(_painted_match, line[label.end() :])}"
    mark = _MARK.match(line)
    if mark is None:
        return _WORDS.sub(_painted_match, line)
    rest = _WORDS.sub(_painted_match, line[mark.end() :])
    return mark["indent"] + paint(mark["mark"], MARKS[mark["mark"]]) + rest


def _painted_match(match: re.Match[str]) -> str:
    if match["state"] or match["is"]:
        return paint(match[0], COLOURS_BY_STATE[match[0]])
    return paint(match[0], "bold" if match["money"] else "bold magenta")
