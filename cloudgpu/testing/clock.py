"""A clock that only the test moves."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

START = datetime(2026, 11, 20, 11, 0, tzinfo=UTC)


class ManualClock:
    """Returns the same aware UTC time until `advance` is called; give it wherever a clock is asked for."""

    def __init__(self, start: datetime = START) -> None:
        self.now = start.astimezone(UTC)

    def __call__(self) -> datetime:
        """Return the present of this clock."""
        return self.now

    def advance(self, seconds: float) -> None:
        """Move the clock by `seconds`; a negative number sets it back, as a wrong clock would."""
        self.now += timedelta(seconds=seconds)
