"""What may stand in a file of samples: a crash tears lines, and somebody else may have written some."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from cloudgpu.core.activity.utilization import usage_intervals
from cloudgpu.ledger.samples.packing import pack

Sample = dict[str, Any]
DAY = 86400.0  # seconds
LATEST = 1e11  # epoch seconds: no stamp of a sample is later


def parsed(line: bytes) -> Sample | None:
    """Return a line's sample; None for a torn one, and for what has no time."""
    try:
        found = _JSON.decode(line.decode())
    except (ValueError, RecursionError):
        return None
    at = found.get("t") if isinstance(found, dict) else None
    return found if isinstance(at, int | float) and 0 <= at < LATEST else None


def has_length(sample: Sample) -> bool:
    """Say whether a sample is of a time that is not longer than a day."""
    length = sample.get("s")
    return isinstance(length, int | float) and 0 < length <= DAY


def can_be_read(sample: Sample) -> bool:
    """Say whether what a sample says are readings."""
    try:
        return bool(pack([sample]) and usage_intervals([sample]))
    except (TypeError, ValueError):
        return False


def packed_all(samples: Sequence[Sample]) -> bytes:
    """Return samples packed, without those that are none."""
    try:
        return pack(samples)
    except TypeError:
        return pack([one for one in samples if can_be_read(one)])


def _no_number(word: str) -> float:
    message = f"{word} is not a number"
    raise ValueError(message)


_JSON = json.JSONDecoder(parse_constant=_no_number)
