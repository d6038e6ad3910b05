"""Shows on a terminal that something goes on: a turning sign, the seconds, and the step, on the last line of stderr.

It appears after a second without output and goes away before the next line, so that an answer never contains it. A
question, or a line that is not ended, is left alone. Pipes and dumb terminals get none.
"""

from __future__ import annotations

import _thread
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from cloudgpu.cli.terminal import columns, is_coloured, is_terminal, paint, steps

SILENT_S, TURN_S = 1.0, 0.1
LOCK_S = 0.5  # an interrupted write may have left the lock closed; nothing waits longer than this for it
NONE_FOR = ("watch", "demo")  # show by themselves what goes on
_CLEAR = "\r\x1b[K"


class Spinner:
    """Draws on `stream` from a thread of its own, until it is stopped; `out` and `stream` report what they write."""

    def __init__(self, stream: Any, step: str, *, now: Any = time.monotonic) -> None:
        self.stream, self.step, self._now = stream, step, now
        self._begun = self._wrote = now()
        self._drawn = self._stopped = False
        self._at_start = True  # of a line
        self._turn = 0
        self._lock = _thread.allocate_lock()
        fancy = (getattr(stream, "encoding", None) or "").lower().startswith("utf")
        self._signs = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏" if fancy else "|/-\\"

    def run(self) -> None:
        """Draw until stopped."""
        while not self._stopped:
            time.sleep(TURN_S)
            with suppress(OSError, ValueError):  # a terminal that is gone, a stream that is closed
                self.draw()

    def draw(self) -> None:
        """Draw the line anew, where there was no output for a second."""
        now = self._now()
        if self._stopped or not self._at_start or now - self._wrote < SILENT_S or not self._lock.acquire(timeout=0):
            return
        try:
            if not self._stopped and self._at_start:
                self._turn += 1
                self._drawn = True
                self.stream.write(f"{_CLEAR}{self._line(now)}")
                self.stream.flush()
        finally:
            self._lock.release()

    def _line(self, now: float) -> str:
        sign = self._signs[self._turn % len(self._signs)]
        head = f"{sign} {int(now - self._begun)} s  "
        room, words, taken = columns() - 1 - len(head), self.step.split(), ""
        for word in words:
            if len(f"{taken} {word}") > room - 3:
                taken += " .."
                break
            taken = f"{taken} {word}".lstrip()
        return (paint(sign, "cyan") if is_coloured(self.stream) else sign) + head[1:] + taken

    def begin(self, step: str) -> None:
        """Count from now on the seconds of this step; without one, of the step before, after an answer was typed."""
        self.step = step or self.step
        self._begun = self._wrote = self._now()
        self._at_start = True

    def write(self, stream: Any, text: str) -> int:
        """Write what the program says, on a line that is clear."""
        held = self._lock.acquire(timeout=LOCK_S)
        try:
            if self._drawn:
                self.stream.write(_CLEAR)
                self.stream.flush()
                self._drawn = False
            if text:
                self._at_start, self._wrote = text.endswith("\n"), self._now()
            written: int = stream.write(text)
            return written
        finally:
            if held:
                self._lock.release()

    def stop(self) -> None:
        """Clear the line, and draw no more."""
        self._stopped = True
        with suppress(OSError, ValueError):
            self.write(self.stream, "")


class _Told:
    """A stream that tells the spinner before it writes."""

    def __init__(self, stream: Any, spinner: Spinner) -> None:
        self._stream, self._spinner = stream, spinner

    def write(self, text: str) -> int:
        return self._spinner.write(self._stream, text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


_running: list[Spinner] = []


@contextmanager
def shown(verb: str) -> Iterator[None]:
    """Show meanwhile that something goes on, where stderr is a terminal."""
    out, err = sys.stdout, sys.stderr
    if not is_terminal(err) or verb in NONE_FOR:
        yield
        return
    spinner = Spinner(err, verb)
    _running.append(spinner)
    steps.append(spinner.begin)
    told_out: Any = _Told(out, spinner) if out is not None and out.isatty() else out
    told_err: Any = _Told(err, spinner)
    sys.stdout, sys.stderr = told_out, told_err
    _thread.start_new_thread(spinner.run, ())
    try:
        yield
    finally:
        end()
        sys.stdout, sys.stderr = out, err


def end() -> None:
    """Show nothing any more: another program has the terminal from now on, or what follows has no end."""
    steps.clear()
    while _running:
        _running.pop().stop()
