"""The clock of a model of a cloud: it runs with this machine's, ahead of it as far as a test says, and things fall due.

Whatever lasts in a model (a state, an operation, a timer) is put here by `later` or `at`; `advance` lets the clock run
ahead and makes each happen at its own time, in order.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

NEVER = datetime.max.replace(tzinfo=UTC)


@dataclass
class Clock:
    """`dwell_s` says how many seconds a state lasts, by its name; a state that is not named is over at once."""

    dwell_s: dict[str, float] = field(default_factory=dict)
    _ahead: timedelta = timedelta()
    _due: dict[str, tuple[datetime, int, Callable[[], None]]] = field(default_factory=dict)
    _order: itertools.count[int] = field(default_factory=itertools.count)

    def now(self) -> datetime:
        """Return the time of the model, aware UTC."""
        return datetime.fromtimestamp(time.time(), UTC) + self._ahead

    def at(self, key: str, when: datetime, then: Callable[[], None]) -> None:
        """Let something happen at a time; it replaces what was on its way for `key`."""
        self._due[key] = (when, next(self._order), then)

    def later(self, key: str, state: str, then: Callable[[], None]) -> None:
        """Let something happen when the dwell of a state is over; `math.inf` is until it is hurried."""
        seconds = self.dwell_s.get(state, 0.0)
        self.at(key, NEVER if seconds == math.inf else self.now() + timedelta(seconds=seconds), then)

    def cancel(self, key: str) -> None:
        """Let what was on its way for `key` not happen; none is no error."""
        self._due.pop(key, None)

    def when(self, key: str) -> datetime | None:
        """Return when what is on its way for `key` happens; None when nothing is."""
        return self._due[key][0] if key in self._due else None

    def hurry(self, key: str) -> None:
        """Let what is on its way for `key` happen now."""
        self._due.pop(key)[2]()

    def settle(self) -> None:
        """Let everything happen whose time has come: each look does this first."""
        while (found := self._next(self.now())) is not None:
            self.hurry(found)

    def advance(self, seconds: float) -> None:
        """Run ahead, and let each thing happen at its own time on the way."""
        goal = self.now() + timedelta(seconds=seconds)
        while (found := self._next(goal)) is not None:
            self._ahead += max(self._due[found][0] - self.now(), timedelta())
            self.hurry(found)
        self._ahead += max(goal - self.now(), timedelta())

    def _next(self, until: datetime) -> str | None:
        due = [(when, order, key) for key, (when, order, _) in self._due.items() if when <= until]
        return min(due)[2] if due else None
