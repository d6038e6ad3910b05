"""Traces of spot availability: reads the public format, and samples a trace at another tick without looking ahead.

The format is that of the traces published with "Can't Be Late" (NSDI 2024):
`{"metadata": {"gap_seconds": 600}, "data": [1, 0, ...]}`, where `data[i]` is the number of instances that could be had
at sample i. So 0 means that spot is not available, and anything above it that it is.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass

from cloudgpu.core.spot.situation import is_finite
from cloudgpu.errors import InvalidRequest

FORMAT = 'Write it like {"metadata": {"gap_seconds": 600}, "data": [1, 0, 1]}, with 1 where spot was available.'
SHORTEST_GAP, LONGEST_GAP = 1, 86_400  # seconds between two samples
MAX_SAMPLES = 5_000_000


@dataclass(frozen=True, slots=True)
class Trace:
    """Whether spot was available in one zone: a byte a sample, 1 for available, `interval_s` seconds apart."""

    name: str
    interval_s: float
    data: bytes

    @property
    def seconds(self) -> float:
        """Return how long the trace is."""
        return len(self.data) * self.interval_s

    @property
    def share(self) -> float:
        """Return the share of samples with spot available, 0 to 1."""
        return sum(self.data) / len(self.data)

    def first(self, seconds: float) -> Trace:
        """Return the beginning of the trace, of so many seconds, or all of it where it is shorter."""
        return Trace(self.name, self.interval_s, self.data[: max(1, math.floor(seconds / self.interval_s + 1e-9))])

    def sampled(self, tick_s: float, start_s: float, ticks: int) -> bytes:
        """Return availability at `ticks` ticks from `start_s` on: at each, the last sample at or before it.

        After the end of the trace spot is not available: nothing is known of it.
        """
        data, gap = self.data, self.interval_s
        indexes = (math.floor((start_s + tick * tick_s) / gap + 1e-9) for tick in range(ticks))
        return bytes(data[place] if place < len(data) else 0 for place in indexes)

    def window_starts(self, window_s: float) -> int:
        """Return at how many samples a window of so many seconds can begin; 0 where the trace is too short."""
        return max(0, math.floor((self.seconds - window_s) / self.interval_s + 1e-9) + 1)


def parse_trace(text: str | bytes, name: str) -> Trace:
    """Return the trace that a JSON text of the public format holds; `name` is its file, for errors.

    Raises InvalidRequest, which names the file and what is wrong in it.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _invalid(name, f"is not JSON ({str(error)[:80]})", None) from None
    if not isinstance(value, dict):
        raise _invalid(name, "holds no JSON object", None)
    metadata = value.get("metadata")
    gap = metadata.get("gap_seconds") if isinstance(metadata, dict) else None
    return Trace(name, _gap(name, gap), _data(name, value.get("data")))


def _gap(name: str, gap: object) -> float:
    if gap is None:
        raise _invalid(name, "has no metadata.gap_seconds", None)
    if not is_finite(gap) or not SHORTEST_GAP <= float(gap) <= LONGEST_GAP:
        limits = f"a number of seconds from {SHORTEST_GAP} to {LONGEST_GAP}"
        raise _invalid(name, f"has a metadata.gap_seconds that is not {limits}", gap)
    return float(gap)


def _data(name: str, data: object) -> bytes:
    if not isinstance(data, list) or not data:
        raise _invalid(name, "has no samples: its data is not a list with at least one number", None)
    if len(data) > MAX_SAMPLES:
        raise _invalid(name, f"has more than {MAX_SAMPLES:,} samples", len(data))
    for index, sample in enumerate(data):
        if not is_finite(sample) or sample < 0:
            raise _invalid(name, f"has a sample at data[{index}] that is not a number of instances", sample)
    return bytes(1 if sample else 0 for sample in data)


def _invalid(name: str, problem: str, value: object) -> InvalidRequest:
    shown = None if value is None else repr(value)[:60]
    return InvalidRequest(f"The trace {name} {problem}.", field="--traces", value=shown, next=FORMAT)


def trace_of_changes(
    name: str, changes: Iterable[tuple[float, bool]], until_s: float, interval_s: float
) -> Trace | None:
    """Return a trace of what was seen at some moments: each holds until the next one was seen.

    `changes` are (epoch seconds, whether spot was there), oldest first. None where nothing was seen before `until_s`.
    """
    changes_before_end = [change for change in changes if change[0] < until_s]
    if not changes_before_end:
        return None
    data, index = bytearray(), 0
    for sample in range(min(MAX_SAMPLES, math.floor((until_s - changes_before_end[0][0]) / interval_s) + 1)):
        at = changes_before_end[0][0] + sample * interval_s
        while index + 1 < len(changes_before_end) and changes_before_end[index + 1][0] <= at:
            index += 1
        data.append(changes_before_end[index][1])
    return Trace(name, interval_s, bytes(data))
