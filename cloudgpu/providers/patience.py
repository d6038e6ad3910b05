"""Timeouts of calls to clouds: the seconds that a call has over all its attempts, and which reads timed out just now.

The limit is on silence, not on work: each page of a long list has these seconds again, so that a slow cloud that
answers is read to its end. A read that timed out is not sent again at once: the next caller would wait as long.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable

from cloudgpu.errors import InvalidRequest, Silent

VARIABLE = "CLOUDGPU_PATIENCE"
DEFAULT_S = 7.0  # for the answer to a read, over all its attempts
CONNECT_S = 3.0
_CHANGE_FACTOR = 2  # times a read's seconds, for a call that changes something: clouds take longer for it
_REMEMBER_FACTOR = 2  # times a read's seconds is a silent read not sent again


def patience_s() -> float:
    """Return how many seconds a read may go unanswered: CLOUDGPU_PATIENCE, else 7. Raises InvalidRequest."""
    text = os.environ.get(VARIABLE) or str(DEFAULT_S)
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if 0 < seconds < math.inf:
        return seconds
    message = f"{VARIABLE} is {text!r}, which is not a number of seconds."
    raise InvalidRequest(message, field=VARIABLE, value=text, next=f"Unset it, or name seconds: {VARIABLE}=20")


class Patience:
    """The timeouts of one account's calls: seconds for a read, for a change, to connect; `monotonic` is their clock."""

    def __init__(self, seconds: float = DEFAULT_S, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.read_s = seconds
        self.change_s = _CHANGE_FACTOR * seconds
        self.connect_s = min(CONNECT_S, seconds / 2)  # so that a lost connection can be tried once more
        self.now = monotonic
        self._lock = threading.Lock()
        self._silent: dict[tuple[str, str], tuple[float, str]] = {}  # since when, and the error's message

    def is_spent(self, started: float, *, read: bool) -> bool:
        """Say whether a call that began at `started` has no time left to connect: then it is not sent again."""
        return self.seconds_left(started, read=read) < self.connect_s

    def seconds_left(self, started: float, *, read: bool) -> float:
        """Return how many seconds a call that began at `started` has left, 0 or less where its time is over."""
        return started + (self.read_s if read else self.change_s) - self.now()

    def raise_if_silent(self, action: str, where: str) -> None:
        """Raise Silent where this read timed out there a moment ago."""
        with self._lock:
            found = self._silent.get((action, where))
        if found is not None and self.now() - found[0] < _REMEMBER_FACTOR * self.read_s:
            raise Silent(found[1], field="provider", next="Try again in a minute.")

    def record_silence(self, action: str, where: str, seconds: float) -> Silent:
        """Remember that this read timed out there, and return the error for it."""
        message = f"{where} did not answer {action} within {seconds:g} seconds."
        with self._lock:
            self._silent[action, where] = self.now(), message
        return Silent(message, field="provider", next="Try again in a minute.")

    def record_answer(self, action: str, where: str) -> None:
        """Forget that this read timed out: it was answered."""
        with self._lock:
            self._silent.pop((action, where), None)
