"""Timeouts of calls to clouds: the seconds that a call has over all its attempts, and which reads timed out just now.

The limit is on silence, not on work: each page of a long list has these seconds again, so that a slow cloud that
answers is read to its end. A read that timed out is not sent again at once: the next caller would wait as long.
Polling for a termination ends early, too, where no poll is answered.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TypeVar

from cloudgpu.errors import CloudgpuError, InvalidRequest, ProviderUnavailable, Silent

T = TypeVar("T")
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


SILENCE_LIMIT = timedelta(seconds=10)  # after the first poll that was not answered


class UnansweredRounds:
    """How long rounds of polls have each had a poll without an answer. An error is an answer."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self.first_message = ""  # of the error for the first poll without an answer
        self._silent = False  # in this round
        self._since: datetime | None = None

    def record(self, error: CloudgpuError) -> str:
        """Record the error of a poll of this round; return its message without the full stop."""
        message = error.message.removesuffix(".")
        if isinstance(error, Silent):
            self._silent, self.first_message = True, self.first_message or message
        return message

    @property
    def is_unanswered(self) -> bool:
        """Whether a poll of this round was not answered."""
        return self._silent

    def end_round(self) -> bool:
        """End the round; say whether polls have gone unanswered for SILENCE_LIMIT."""
        silent, self._silent = self._silent, False
        now = self._clock()
        self._since = (self._since or now) if silent else None
        return self._since is not None and now - self._since >= SILENCE_LIMIT


def poll_until(
    ask: Callable[[], T | None],
    make_error: Callable[[str], CloudgpuError],
    within: timedelta,
    *,
    clock: Callable[[], datetime],
    pause: Callable[[float], None],
    last_message: str,
    first_s: float = 0.2,
    longest_s: float = 5.0,
    raised_at_once: tuple[type[CloudgpuError], ...] = (),
) -> T:
    """Poll `ask` until it returns something other than None, with longer and longer pauses, and return that.

    Raises what `make_error` makes of the last error's message (`last_message` where there was none) once it took longer
    than `within`, or polls go unanswered; an error that is no ProviderUnavailable, or in `raised_at_once`, at once.
    """
    deadline, pause_s, silence = clock() + within, first_s, UnansweredRounds(clock)
    while True:
        try:
            found = ask()
        except raised_at_once:
            raise
        except ProviderUnavailable as error:
            last_message = silence.record(error)
        else:
            if found is not None:
                return found
        if clock() >= deadline or silence.end_round():
            raise make_error(last_message)
        pause(pause_s)
        pause_s = min(longest_s, pause_s * 1.5)
