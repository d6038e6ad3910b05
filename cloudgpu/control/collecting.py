"""Lets Python look for unreachable cycles less often while thousands of machines are in memory."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

THRESHOLDS = (200_000, 10, 10)  # objects made since the last look; the usual 700 made it a third of a pass's CPU time


@contextmanager
def collected_seldom() -> Iterator[None]:
    """Look for cycles every 200,000 new objects inside, and as before afterwards.

    What no cycle holds is let go of at once all the same.
    """
    before = gc.get_threshold()
    gc.set_threshold(*THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
