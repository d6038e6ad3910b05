"""How long a lock is waited for: one that was not to be had in time is not waited for as long again by this process.

Its holder may be suspended. A command that ends a machine asks for the lock several times, and the bill goes on.
"""

from __future__ import annotations

import time

AGAIN_S = 0.5
REMEMBERED_S = 60.0
_in_vain: dict[str, float] = {}  # by lock: when it was last waited for in vain


def seconds(lock: str, usual: float) -> float:
    """Return how many seconds to wait for this lock now."""
    since = _in_vain.get(lock)
    if since is None or time.monotonic() - since >= REMEMBERED_S:
        return usual
    return min(AGAIN_S, usual)


def in_vain(lock: str) -> None:
    """Remember that the lock was not to be had in time."""
    _in_vain[lock] = time.monotonic()


def had(lock: str) -> None:
    """Remember that the lock was to be had."""
    _in_vain.pop(lock, None)
