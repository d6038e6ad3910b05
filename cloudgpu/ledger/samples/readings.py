"""Reads lines of a file of samples, of which some may be cut short by a crash or not be cloudgpu's."""

from __future__ import annotations

import json
from collections.abc import Sequence

from cloudgpu.core.activity.utilization import usage_intervals
from cloudgpu.ledger.samples.packing import Sample, pack

DAY = 86400.0  # seconds
MAX_TIME = 1e11  # epoch seconds; a later timestamp is invalid


def parsed(line: bytes) -> Sample | None:
    """Return a line's sample; None for a line that is cut short or has no time."""
    try:
        found = _JSON.decode(line.decode())
    except (ValueError, RecursionError):
        return None
    at = found.get("t") if isinstance(found, dict) else None
    return found if isinstance(at, int | float) and 0 <= at < MAX_TIME else None


def has_length(sample: Sample) -> bool:
    """Return whether a sample covers a time of at most a day."""
    length = sample.get("s")
    return isinstance(length, int | float) and 0 < length <= DAY


def can_be_read(sample: Sample) -> bool:
    """Return whether the values of a sample are valid readings."""
    try:
        return bool(pack([sample]) and usage_intervals([sample]))
    except (TypeError, ValueError):
        return False


def packed_all(samples: Sequence[Sample]) -> bytes:
    """Return samples packed, without invalid ones."""
    try:
        return pack(samples)
    except TypeError:
        return pack([one for one in samples if can_be_read(one)])


def _no_number(word: str) -> float:
    raise ValueError(f"{word} is not a number")


_JSON = json.JSONDecoder(parse_constant=_no_number)
