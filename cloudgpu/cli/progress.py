"""Shows progress on a terminal: a spinner, the seconds, and the step, on the last line of stderr.

It appears after half a second without output and goes away before the next line, so that an answer never contains it. A
question, or a line that is not ended, is left alone. Pipes and dumb terminals get none.
"""

from __future__ import annotations

import _thread
import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from cloudgpu.cli.terminal import columns, has_unicode, is_coloured, is_terminal, paint, step_listeners

SILENT_S, TURN_S = 0.5, 0.1  # without output until the spinner appears, and between two of its frames
LOCK_TIMEOUT_S = 0.5  # an interrupted write may have left the lock closed; nothing waits longer than this for it
MIN_TRANSFER, GIGABYTE = 1_000_000, 1_000_000_000  # bytes; a smaller copy ends before its progress could be read
RATE_WINDOW_S, MIN_RATE_WINDOW_S = 10.0, 0.5  # seconds over which a rate is measured, and after which it is shown
NO_SPINNER_FOR = ("watch", "demo")  # they print their own progress
STEPS = {  # the first step of a verb, where its name alone says too little
    "ls": "ls, looking at your machines",
    "up": "up, looking for offers",
    "estimate": "estimate, looking for offers",
    "recommend": "recommend, looking for offers",
    "gpus": "gpus, reading prices",
    "regions": "regions, measuring distances",
    "quota": "quota, asking the account",
    "catalog": "catalogue, reading price lists",
    "orphans": "orphans, searching your accounts",
    "reap": "reap, asking your accounts",
    "policy": "policy, reading policies and history",
    "cost": "cost, adding up the ledger",
    "report": "report, adding up the ledger",
    "export": "export, reading the ledger",
    "ledger": "ledger, copying and checking lines",
    "image": "image, asking your accounts",
    "volume": "volume, asking your accounts",
    "doctor": "doctor, checking",
    "init": "init, checking",
    "allow": "allow, looking for your address",
    "ssh": "ssh, connecting",
    "exec": "exec, connecting",
    "cp": "cp, connecting",
    "tunnel": "tunnel, connecting",
    "run": "run, reading the directory and looking for offers",
    "jobs": "jobs, reading the ledger",
    "logs": "logs, connecting",
    "cancel": "cancel, connecting",
}
_CLEAR = "\r\x1b[K"


class Spinner:
    """Draws on `stream` from a thread of its own, until it is stopped; stdout and stderr write through it meanwhile."""

    def __init__(self, stream: Any, step: str, *, now: Any = time.monotonic) -> None:
        self.stream, self.step, self._now = stream, step, now
        self._begun_at = self._wrote_at = now()
        self._drawn = self._stopped = False
        self._at_start = True  # of a line
        self._frame_number = 0
        self._detail = ""  # how far the step is, shown after its name
        self._lock = _thread.allocate_lock()
        self._frames = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏" if has_unicode(stream) else "|/-\\"

    def run(self) -> None:
        """Draw until stopped."""
        while not self._stopped:
            time.sleep(TURN_S)
            with suppress(OSError, ValueError):  # a terminal that is gone, a stream that is closed
                self.draw()

    def draw(self) -> None:
        """Draw the line again, if there was no output for a while, or if it is known how far the step is."""
        now = self._now()
        may_draw = self._detail or now - self._wrote_at >= SILENT_S
        if self._stopped or not self._at_start or not may_draw or not self._lock.acquire(timeout=0):
            return
        try:
            if not self._stopped and self._at_start:
                self._frame_number += 1
                self._drawn = True
                self.stream.write(f"{_CLEAR}{self._line(now)}")
                self.stream.flush()
        finally:
            self._lock.release()

    def _line(self, now: float) -> str:
        frame = self._frames[self._frame_number % len(self._frames)]
        prefix = f"{frame} {int(now - self._begun_at)} s  "
        width, words, shown_text = (
            columns() - 1 - len(prefix),
            f"{self.step}{self._detail or _counts_text()}".split(),
            "",
        )
        for word in words:
            if len(f"{shown_text} {word}") > width - 3:
                shown_text += " .."
                break
            shown_text = f"{shown_text} {word}".lstrip()
        return (paint(frame, "bold") if is_coloured(self.stream) else frame) + prefix[1:] + shown_text

    def begin(self, step: str) -> None:
        """Begin this step, and count its seconds; an empty text continues the previous step after an answer."""
        self.step, self._detail = step or self.step, ""
        if "cloudgpu.parallel" in sys.modules:
            from cloudgpu.parallel import reset_counts

            reset_counts()
        self._begun_at = self._wrote_at = self._now()
        self._at_start = True

    def show_detail(self, detail: str) -> None:
        """Show how far the step is (`3 of 8 runs`), from now on and until the next one begins."""
        self._detail = f": {detail}"

    def write(self, stream: Any, text: str) -> int:
        """Write what the program says, on a line that is clear."""
        has_lock = self._lock.acquire(timeout=LOCK_TIMEOUT_S)
        try:
            if self._drawn:
                self.stream.write(_CLEAR)
                self.stream.flush()
                self._drawn = False
            if text:
                self._at_start, self._wrote_at = text.endswith("\n"), self._now()
            written: int = stream.write(text)
            return written
        finally:
            if has_lock:
                self._lock.release()

    def stop(self) -> None:
        """Clear the line, and draw no more."""
        self._stopped = True
        with suppress(OSError, ValueError):
            self.write(self.stream, "")


def _counts_text() -> str:
    """Return how many parallel calls have ended, as the end of a step's line."""
    if "cloudgpu.parallel" not in sys.modules:  # nothing was called so
        return ""
    from cloudgpu.parallel import counts

    parts = [f"{done} of {total} {unit}" for unit, (done, total) in counts().items() if total > 1]
    return f": {', '.join(parts)}" if parts else ""


class _ReportingStream:
    """A stream that tells the spinner before it writes."""

    def __init__(self, stream: Any, spinner: Spinner) -> None:
        self._stream, self._spinner = stream, spinner

    def write(self, text: str) -> int:
        return self._spinner.write(self._stream, text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


_active_spinners: list[Spinner] = []


@contextmanager
def show_spinner(verb: str) -> Iterator[None]:
    """Show a spinner during the block, if stderr is a terminal."""
    out, err = sys.stdout, sys.stderr
    if not is_terminal(err) or verb in NO_SPINNER_FOR:
        yield
        return
    spinner = Spinner(err, STEPS.get(verb, verb))
    _active_spinners.append(spinner)
    step_listeners.append(spinner.begin)
    reporting_out: Any = None if out is None else _ReportingStream(out, spinner)  # a reader of a pipe may show it, too
    reporting_err: Any = _ReportingStream(err, spinner)
    sys.stdout, sys.stderr = reporting_out, reporting_err
    _thread.start_new_thread(spinner.run, ())
    try:
        yield
    finally:
        end()
        sys.stdout, sys.stderr = out, err


def begin(step: str) -> None:
    """Show this step in the spinner; nothing in a pipe."""
    for spinner in _active_spinners:
        spinner.begin(step)


def show_detail(detail: str) -> None:
    """Show in the spinner how far the step is (`3 of 8 runs`); nothing in a pipe."""
    for spinner in _active_spinners:
        spinner.show_detail(detail)


class Transfer:
    """Shows how many bytes have arrived, how fast they come, and how long the rest takes at that rate."""

    def __init__(
        self, *, now: Callable[[], float] = time.monotonic, show_detail: Callable[[str], None] = show_detail
    ) -> None:
        self._now, self._show_detail = now, show_detail
        self._progress: list[tuple[float, int]] = []  # of the last seconds: when, and the bytes until then

    def show(self, done_bytes: int, total_bytes: int) -> None:
        """Show that `done_bytes` of `total_bytes` have arrived; a small copy is not shown."""
        if total_bytes >= MIN_TRANSFER:
            now = self._now()
            self._progress = [point for point in self._progress if now - point[0] <= RATE_WINDOW_S] + [
                (now, done_bytes)
            ]
            unit, unit_bytes = ("GB", 1e9) if total_bytes >= GIGABYTE else ("MB", 1e6)
            self._show_detail(
                f"{done_bytes / unit_bytes:,.1f} of {total_bytes / unit_bytes:,.1f} {unit}{self._speed(total_bytes)}"
            )

    def _speed(self, total_bytes: int) -> str:
        (begun_at, first_bytes), (last_at, done_bytes) = self._progress[0], self._progress[-1]
        if last_at - begun_at < MIN_RATE_WINDOW_S or done_bytes <= first_bytes:
            return ""
        from cloudgpu.core.values.times import duration_text

        bytes_per_s = (done_bytes - first_bytes) / (last_at - begun_at)
        left_text = (
            ""
            if done_bytes >= total_bytes
            else f", {duration_text(math.ceil((total_bytes - done_bytes) / bytes_per_s))} left"
        )
        return f", {bytes_per_s / 1e6:,.1f} MB/s{left_text}"


def end() -> None:
    """End the spinner: another program uses the terminal from now on, or what follows has no end."""
    step_listeners.clear()
    while _active_spinners:
        _active_spinners.pop().stop()
