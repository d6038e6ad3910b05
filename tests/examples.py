"""How many examples a property gets: few in `make test`, many in `make soak`, which runs each property again."""

from __future__ import annotations

import os

FACTOR = float(os.environ.get("CLOUDGPU_EXAMPLES", "0.15"))
FEWEST = 10


def some(usual: int) -> int:
    """Return how many examples to try where `usual` is what a property deserves."""
    return max(min(usual, FEWEST), round(usual * FACTOR))
