"""Shows an answer again and again on a terminal, on a page of its own, until Ctrl-C."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from cloudgpu.cli import progress
from cloudgpu.cli.common import colour_for
from cloudgpu.cli.terminal import is_terminal
from cloudgpu.errors import InvalidRequest, LedgerUnavailable

PAGE, BACK = "\x1b[?1049h", "\x1b[?1049l"  # the terminal's other page, on which nothing of the user's is overwritten
HOME, END_OF_LINE, BELOW = "\x1b[H", "\x1b[K", "\x1b[J"


def watched(answer: Callable[[], str], *, every_s: float, text: bool = True) -> None:
    """Show `answer()` anew every so many seconds until Ctrl-C, then once more on the page that the user had.

    A ledger that cannot be read for a while is said, and asked again. Raises InvalidRequest without a terminal, and
    for an answer that is not text.
    """
    check_watch(text=text)
    progress.end()
    last = ""
    sys.stdout.write(PAGE)
    try:
        while True:
            try:
                last = answer()
            except LedgerUnavailable as error:
                last = f"{error.message} {error.next or ''}".rstrip()
            sys.stdout.write(page(last, every_s))
            sys.stdout.flush()
            time.sleep(every_s)
    except KeyboardInterrupt:
        return
    finally:
        sys.stdout.write(BACK)
        sys.stdout.write(f"{colour_for(last, sys.stdout)}\n" if last else "")
        sys.stdout.flush()


def check_watch(*, text: bool) -> None:
    """Raise InvalidRequest where nothing can be watched."""
    if not text:
        message = "--watch shows text again and again; JSON is one document."
        raise InvalidRequest(message, field="--watch", value=None, next="Leave out --watch, or -o json.")
    if not is_terminal(sys.stdout):
        message = "--watch needs a terminal."
        raise InvalidRequest(message, field="--watch", value=None, next="Run: cloudgpu ls")


def page(text: str, every_s: float, rows: int | None = None) -> str:
    """Return what draws an answer over the one before, without the screen being empty in between.

    Of an answer with more lines than the terminal has `rows`, the first are shown, and how many there are beside them.
    """
    from shutil import get_terminal_size

    room = max(3, (rows or get_terminal_size().lines) - 3)  # an empty line, the last one, and where the cursor stands
    lines, more = colour_for(text, sys.stdout).split("\n"), ""
    if len(lines) > room:
        more = f"{len(lines) - room} more lines; "
        lines = lines[:room]
    lines += ["", f"{more}every {every_s:g} s; Ctrl-C ends this."]
    return HOME + "".join(f"{line}{END_OF_LINE}\n" for line in lines) + BELOW
