"""Tells whoever waits what is waited for: at once or after some seconds, then ever more seldom."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

SOON_S = 10.0  # what takes no longer is not worth a sentence


class Waiting:
    """One wait, until a time (aware UTC). `what` is the beginning of a sentence: "x is not stopped yet"."""

    def __init__(
        self,
        tell: Callable[[str], object],
        clock: Callable[[], datetime],
        what: str,
        until: datetime,
        *,
        after: float = SOON_S,
    ) -> None:
        self._tell, self._clock, self._what, self._until = tell, clock, what, until
        self._tries = 0
        self._pause = max(after, SOON_S)
        self._next = clock() + timedelta(seconds=after)

    def on(self, last: str) -> None:
        """Say that it goes on, where it is time to; `last` is what was said or seen last."""
        self._tries += 1
        now = self._clock()
        if now < self._next:
            return
        self._next, self._pause = now + timedelta(seconds=self._pause), 2 * self._pause
        tries = "1 try" if self._tries == 1 else f"{self._tries} tries"
        self._tell(f"{self._what} after {tries} ({last.rstrip('.')}). Trying until {self._until:%H:%M:%S} UTC.")
