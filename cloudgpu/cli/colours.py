"""Gives words of an answer the colour of what they mean: states, money, headings, warnings, errors. Changes no word.

Answers are made without colours, and widths are counted there; here the finished text is coloured, line by line.
"""

from __future__ import annotations

import re

from cloudgpu.cli.terminal import paint

BY_COLOUR = {
    "green": ("running", "ready"),
    # Something is to be known, or will be another state in a moment.
    "magenta": ("pending", "stopping", "parking", "disk left"),
    # Something is to be done.
    "bold magenta": ("unknown", "unsettled", "interrupted"),
    # It costs little, or nothing.
    "dim": (
        "parked",
        "stopped",
        "deallocated",
        "terminated",
    ),
}
STATES = {state: colour for colour, states in BY_COLOUR.items() for state in states}
MARKS = {"ok": "green", "note": "magenta", "FAIL": "bold red", "FAILED:": "bold red", "error:": "bold red"}

# What can stand anywhere in a line. A state stands in a column: two spaces before it, and as many behind, or nothing.
_WORDS = re.compile(
    r"(?P<money><?\$-?\d[\d,]*(?:\.\d+)?)"
    rf"|(?<=  )(?P<state>{'|'.join(map(re.escape, STATES))})(?=  | \(|,|$)"
    r"|(?<=  )(?P<over>over \d+\w+)"
)
_MARK = re.compile(rf"(?P<indent> *)(?P<mark>{'|'.join(map(re.escape, MARKS))})(?= )")
_HEADINGS = re.compile(r" *[A-Z$/%.-]+(?: [A-Z$/%]+)*(?: {2,}[A-Z$/%.-]+(?: [A-Z$/%]+)*)+ *")
_TITLE = re.compile(r"Plan|At the cloud")


def coloured(text: str) -> str:
    """Return the text with codes around words that mean something; it stays the same without them."""
    return "\n".join(map(_line, text.split("\n")))


def _line(line: str) -> str:
    if _HEADINGS.fullmatch(line):
        return paint(line, "dim")
    if _TITLE.fullmatch(line):
        return paint(line, "bold")
    mark = _MARK.match(line)
    if mark is None:
        return _WORDS.sub(_painted, line)
    rest = _WORDS.sub(_painted, line[mark.end() :])
    return mark["indent"] + paint(mark["mark"], MARKS[mark["mark"]]) + rest


def _painted(found: re.Match[str]) -> str:
    if found["state"]:
        return paint(found[0], STATES[found[0]])
    return paint(found[0], "bold" if found["money"] else "bold magenta")
