"""Timeouts of calls to clouds: the seconds that a call has over all its attempts, and which reads timed out just now.

Each page of a long list has these seconds again, so that a slow cloud that answers is read to its end. A read that
timed out is not sent again at once: the next caller would wait as long.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable

from cloudgpu.errors import AnswerTimeout, InvalidRequest

ENVIRONMENT_VARIABLE = "CLOUDGPU_PATIENCE"
DEFAULT_S = 7.0  # for the answer to a read, over all its attempts
MAX_CONNECT_S = 3.0
_CHANGE_FACTOR = 2  # times a read's timeout, for a call that changes something: clouds take longer for it
_SKIP_FACTOR = 2  # times a read's timeout, during which a read that timed out is not sent again


def patience_s() -> float:
    """Return how many seconds a read may go unanswered: CLOUDGPU_PATIENCE, else 7. Raises InvalidRequest."""
    setting = os.environ.get(ENVIRONMENT_VARIABLE) or str(DEFAULT_S)
    try:
        seconds = float(setting)
    except ValueError:
        seconds = math.nan
    if 0 < seconds < math.inf:
        return seconds
    message = f"{ENVIRONMENT_VARIABLE} is {setting!r}, which is not a number of seconds."
    raise InvalidRequest(
        message, field=ENVIRONMENT_VARIABLE, value=setting, next=f"Unset it, or name seconds: {ENVIRONMENT_VARIABLE}=20"
    )


class CallTimeouts:
    """The timeouts of one account's calls: seconds for a read, for a change, to connect; `monotonic` is their clock."""

    def __init__(self, seconds: float = DEFAULT_S, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.read_s = seconds
        self.change_s = _CHANGE_FACTOR * seconds
        self.connect_s = min(MAX_CONNECT_S, seconds / 2)  # so that a lost connection can be tried once more
        self.now = monotonic
        self._lock = threading.Lock()
        self._timed_out_reads: dict[tuple[str, str], tuple[float, str]] = {}  # since when, and the error's message

    def is_spent(self, started_s: float, *, read: bool) -> bool:
        """Say whether a call that began at `started_s` has no time left to connect: then it is not sent again."""
        return self.seconds_left(started_s, read=read) < self.connect_s

    def seconds_left(self, started_s: float, *, read: bool) -> float:
        """Return how many seconds a call that began at `started_s` has left, 0 or less where its time is over."""
        return started_s + (self.read_s if read else self.change_s) - self.now()

    def raise_if_timed_out_lately(self, action: str, where: str) -> None:
        """Raise AnswerTimeout where this read timed out there a moment ago."""
        with self._lock:
            timeout_record = self._timed_out_reads.get((action, where))
        if timeout_record is not None and self.now() - timeout_record[0] < _SKIP_FACTOR * self.read_s:
            raise AnswerTimeout(timeout_record[1], field="provider", next="Try again in a minute.")

    def record_timeout(self, action: str, where: str, seconds: float) -> AnswerTimeout:
        """Remember that this read timed out there, and return the error for it."""
        message = f"{where} did not answer {action} within {seconds:g} seconds."
        with self._lock:
            self._timed_out_reads[action, where] = self.now(), message
        return AnswerTimeout(message, field="provider", next="Try again in a minute.")

    def record_answer(self, action: str, where: str) -> None:
        """Forget that this read timed out: it was answered."""
        with self._lock:
            self._timed_out_reads.pop((action, where), None)
