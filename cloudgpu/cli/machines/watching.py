"""Shows an answer repeatedly on a terminal, on the alternate screen, until Ctrl-C."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from cloudgpu.cli import progress
from cloudgpu.cli.common import colour_for
from cloudgpu.cli.terminal import is_terminal
from cloudgpu.errors import InvalidRequest, LedgerUnavailable

ALTERNATE_SCREEN, MAIN_SCREEN = "\x1b[?1049h", "\x1b[?1049l"
CURSOR_HOME, CLEAR_LINE, CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"


def show_repeatedly(answer: Callable[[], str], *, every_s: float, is_text: bool = True) -> None:
    """Show `answer()` every `every_s` seconds until Ctrl-C, then once more on the main screen.

    If the ledger cannot be read, the error is shown and it is tried again. Raises InvalidRequest without a terminal,
    and for an answer that is not text.
    """
    check_watch(is_text=is_text)
    progress.end()
    last_text = ""
    sys.stdout.write(ALTERNATE_SCREEN)
    try:
        while True:
            try:
                last_text = answer()
            except LedgerUnavailable as error:
                last_text = f"{error.message} {error.next or ''}".rstrip()
            sys.stdout.write(page(last_text, every_s))
            sys.stdout.flush()
            time.sleep(every_s)
    except KeyboardInterrupt:
        return
    finally:
        sys.stdout.write(MAIN_SCREEN)
        sys.stdout.write(f"{colour_for(last_text, sys.stdout)}\n" if last_text else "")
        sys.stdout.flush()


def check_watch(*, is_text: bool) -> None:
    """Raise InvalidRequest without a terminal, or for JSON."""
    if not is_text:
        raise InvalidRequest(
            "--watch shows text again and again; JSON is one document.",
            field="--watch",
            value=None,
            next="Leave out --watch, or -o json.",
        )
    if not is_terminal(sys.stdout):
        raise InvalidRequest("--watch needs a terminal.", field="--watch", value=None, next="Run: cloudgpu ls")


def page(text: str, every_s: float, rows: int | None = None) -> str:
    """Return the text that draws an answer over the previous one without clearing the screen.

    If it has more lines than the terminal's `rows`, the first are shown, and how many are missing.
    """
    from shutil import get_terminal_size

    max_lines = max(
        3, (rows or get_terminal_size().lines) - 3
    )  # an empty line, the last one, and where the cursor stands
    lines, hidden_text = colour_for(text, sys.stdout).split("\n"), ""
    if len(lines) > max_lines:
        hidden_text = f"{len(lines) - max_lines} more lines; "
        lines = lines[:max_lines]
    lines += ["", f"{hidden_text}every {every_s:g} s; Ctrl-C ends this."]
    return CURSOR_HOME + "".join(f"{line}{CLEAR_LINE}\n" for line in lines) + CLEAR_BELOW
