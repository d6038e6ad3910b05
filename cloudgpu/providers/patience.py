"""How long a cloud may say nothing: the seconds that a call has over all its attempts, and what was silent just now.

What counts is silence, not work: each page of a long list has these seconds anew, so that a cloud that is slow and
answers is read to its end. A read that was silent is not asked again at once: whoever comes next would wait as long.
Nor is the proof of an end waited for where no question about it is answered.
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
_CHANGES = 2  # times as long has a call that changes something: it takes a cloud longer, and asking again costs more
_REMEMBERED = 2  # times as long is a silent read not asked again


def patience_s() -> float:
    """Return how many seconds a read may be without an answer: CLOUDGPU_PATIENCE, else 7. Raises InvalidRequest."""
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
    """What one account's calls are given: seconds for a read, for a change, to connect; `monotonic` is their clock."""

    def __init__(self, seconds: float = DEFAULT_S, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.reads = seconds
        self.changes = _CHANGES * seconds
        self.connect = min(CONNECT_S, seconds / 2)  # so that a way that was lost once can be tried again
        self.now = monotonic
        self._lock = threading.Lock()
        self._silent: dict[tuple[str, str], tuple[float, str]] = {}  # since when, and what was said

    def is_spent(self, begun: float, *, read: bool) -> bool:
        """Say whether a call that began at `begun` has no time left to connect again: then it is not sent again."""
        return self.left(begun, read=read) < self.connect

    def left(self, begun: float, *, read: bool) -> float:
        """Return how many seconds a call that began at `begun` has left, 0 or less where it has had its time."""
        return begun + (self.reads if read else self.changes) - self.now()

    def check(self, action: str, where: str) -> None:
        """Raise Silent where this read was silent there a moment ago."""
        with self._lock:
            found = self._silent.get((action, where))
        if found is not None and self.now() - found[0] < _REMEMBERED * self.reads:
            raise Silent(found[1], field="provider", next="Try again in a minute.")

    def silent(self, action: str, where: str, seconds: float) -> Silent:
        """Remember that this read was silent there, and return the error that says so."""
        message = f"{where} did not answer {action} within {seconds:g} seconds."
        with self._lock:
            self._silent[action, where] = self.now(), message
        return Silent(message, field="provider", next="Try again in a minute.")

    def answered(self, action: str, where: str) -> None:
        """Remember that it answers."""
        with self._lock:
            self._silent.pop((action, where), None)


GIVEN_UP_AFTER = timedelta(seconds=10)  # after the first question of a proof that was not answered


class Silence:
    """How long rounds of questions have gone without an answer to one of them. An error is an answer."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self.word = ""  # what was not answered first
        self._silent = False  # in this round
        self._since: datetime | None = None

    def note(self, error: CloudgpuError) -> str:
        """Note what was said in place of an answer in this round; return its sentence without the full stop."""
        word = error.message.removesuffix(".")
        if isinstance(error, Silent):
            self._silent, self.word = True, self.word or word
        return word

    @property
    def is_now(self) -> bool:
        """Whether a question of this round was not answered."""
        return self._silent

    def lasts(self) -> bool:
        """End the round; say whether the silence has lasted so long that it is given up."""
        silent, self._silent = self._silent, False
        now = self._clock()
        self._since = (self._since or now) if silent else None
        return self._since is not None and now - self._since >= GIVEN_UP_AFTER


def poll_until(
    ask: Callable[[], T | None],
    fault: Callable[[str], CloudgpuError],
    within: timedelta,
    *,
    clock: Callable[[], datetime],
    pause: Callable[[float], None],
    last: str,
    first_s: float = 0.2,
    longest_s: float = 5.0,
    through: tuple[type[CloudgpuError], ...] = (),
) -> T:
    """Return what `ask` returns once it is not None; it is asked again and again, with longer and longer pauses.

    Raises what `fault` makes of the last word (`last` where none was said), once it took longer than `within` or no
    question is answered any more; at once what is no ProviderUnavailable, and what is of `through`.
    """
    deadline, pause_s, silence = clock() + within, first_s, Silence(clock)
    while True:
        try:
            found = ask()
        except through:
            raise
        except ProviderUnavailable as error:
            last = silence.note(error)
        else:
            if found is not None:
                return found
        if clock() >= deadline or silence.lasts():
            raise fault(last)
        pause(pause_s)
        pause_s = min(longest_s, pause_s * 1.5)
