"""Reads lines of a file of samples, of which some may be cut short by a crash or not be cloudgpu's."""

from __future__ import annotations

import json
from collections.abc import Sequence

from cloudgpu.core.activity.utilization import usage_intervals
from cloudgpu.ledger.samples.packing import Sample, pack

DAY_S = 86400.0  # seconds
MAX_EPOCH_S = 1e11  # epoch seconds; a later timestamp is invalid


def parse_line(line: bytes) -> Sample | None:
    """Return a line's sample; None for a line that is cut short or has no time."""
    try:
        sample = _DECODER.decode(line.decode())
    except (ValueError, RecursionError):
        return None
    ended_at = sample.get("t") if isinstance(sample, dict) else None
    return sample if isinstance(ended_at, int | float) and 0 <= ended_at < MAX_EPOCH_S else None


def has_length(sample: Sample) -> bool:
    """Return whether a sample covers a time of at most a day."""
    length = sample.get("s")
    return isinstance(length, int | float) and 0 < length <= DAY_S


def is_valid(sample: Sample) -> bool:
    """Return whether the values of a sample are valid readings."""
    try:
        return bool(pack([sample]) and usage_intervals([sample]))
    except (TypeError, ValueError):
        return False


def pack_valid(samples: Sequence[Sample]) -> bytes:
    """Return samples packed, without invalid ones."""
    try:
        return pack(samples)
    except TypeError:
        return pack([one for one in samples if is_valid(one)])


def _no_number(token: str) -> float:
    raise ValueError(f"{token} is not a number")


_DECODER = json.JSONDecoder(parse_constant=_no_number)
