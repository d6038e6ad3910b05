"""What the terminal can show: its width, and whether it has colours. The codes are our own: `--help` and `ls` use them.

Colour follows NO_COLOR and FORCE_COLOR (https://no-color.org, https://force-color.org). Without them there is colour on
a terminal that is not dumb.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

MIN_WIDTH, MAX_WIDTH, MAX_PROSE_WIDTH, DEFAULT_WIDTH = 40, 160, 100, 80  # columns
# style: the codes of ECMA-48 that it consists of. Yellow and cyan cannot be read on a light terminal.
CODES = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "magenta": "35",
    "bold red": "1;31",
    "bold magenta": "1;35",
    "bold underline": "1;4",
}


step_listeners: list[Callable[[str], None]] = []  # called with each step; none in a pipe


def columns() -> int:
    """Return how wide a line may be: COLUMNS, or the width of stdout's or stderr's terminal; 80 without one."""
    return table_columns() or _terminal_width(sys.__stderr__) or DEFAULT_WIDTH


def table_columns() -> int | None:
    """Return how wide a table may be: COLUMNS or the terminal's width; None in a pipe, where each row is one line."""
    columns_variable = os.environ.get("COLUMNS", "")
    return (
        _limited_width(int(columns_variable))
        if columns_variable.isdecimal() and int(columns_variable)
        else _terminal_width(sys.__stdout__)
    )


def _terminal_width(stream: Any) -> int | None:
    with suppress(AttributeError, ValueError, OSError):  # closed, or no terminal
        return _limited_width(os.get_terminal_size(stream.fileno()).columns)
    return None


def prose_columns() -> int:
    """Return how wide a line of prose may be: longer ones than 100 columns are hard to read."""
    return min(columns(), MAX_PROSE_WIDTH)


def _limited_width(width: int) -> int:
    return max(MIN_WIDTH, min(MAX_WIDTH, width or DEFAULT_WIDTH))


def filled(text: str, width: int, first: str = "", rest: str = "") -> str:
    """Return `text` in lines of at most `width` columns, which begin with `first` and `rest`; no word is broken."""
    from textwrap import fill

    return fill(
        text, width, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False, break_long_words=False
    )


def is_coloured(stream: Any) -> bool:
    """Return whether colours are shown on this stream."""
    if os.environ.get("NO_COLOR"):
        return False
    forced = os.environ.get("FORCE_COLOR")
    if forced:
        return forced not in ("0", "false")
    return is_terminal(stream)


def has_unicode(stream: Any) -> bool:
    """Return whether this stream can show characters other than ASCII, like blocks."""
    return (getattr(stream, "encoding", None) or "").lower().startswith("utf")


def is_terminal(stream: Any) -> bool:
    """Return whether this stream is a terminal on which a line can be overwritten."""
    return bool(stream is not None and stream.isatty() and os.environ.get("TERM", "dumb") != "dumb")


def paged(text: str) -> bool:
    """Show an answer that is longer than the terminal in the user's pager; return False if it was not shown.

    PAGER names it, else it is less. In a pipe, and on a dumb terminal, there is none.
    """
    if not is_terminal(sys.__stdout__):
        return False
    if text.count("\n") + 1 < os.get_terminal_size(sys.__stdout__.fileno()).lines:  # type: ignore[union-attr]
        return False
    import pydoc

    os.environ.setdefault("LESS", "FRX")  # less ends where all fits, shows colours, and leaves the text on the screen
    pydoc.pager(text)
    return True


def paint(text: str, style: str) -> str:
    """Return `text` in a style of `CODES`."""
    return f"\x1b[{CODES[style]}m{text}\x1b[0m" if text else text
