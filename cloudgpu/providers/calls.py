"""Counts what this process sends to clouds, by provider and operation: retries count, for the clouds count them."""

from __future__ import annotations

import threading
from collections import Counter

from cloudgpu.parallel import go_on

_LOCK = threading.Lock()
_SENT: Counter[tuple[str, str]] = Counter()


def count(provider: str, operation: str) -> None:
    """Count one request; raise Abandoned where nobody waits for it any more."""
    go_on()
    with _LOCK:
        _SENT[provider, operation] += 1


def calls() -> dict[tuple[str, str], int]:
    """Return how many requests were sent, by (provider, operation)."""
    with _LOCK:
        return dict(_SENT)
