"""Compresses a day of one machine's samples, and keeps a permanent summary of each past day.

Samples are compressed by column, timestamps and ages as differences, then LZMA: a tenth of the size.

Workdays are one line a day in a file beside the samples, some hundred bytes each. They can be computed again from the
samples while those exist. Lines are appended; the last one of a day counts, and a line cut short by a crash is
ignored.
"""

from __future__ import annotations

import json
import lzma
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cloudgpu.core.activity.utilization import KINDS, UsageSpan
from cloudgpu.ledger.log.files import missing_newline, open_to_write, read_our_file

Sample = dict[str, Any]  # as an agent writes it: `t` is its end in epoch seconds, `s` how many seconds it covers
DELTA_CODED = frozenset({"t", "in", "out", "jup"})  # these mostly grow by the same amount
MISSING = False  # marks a missing reading, as no reading is a boolean; null is one that failed


def pack(samples: Sequence[Sample]) -> bytes:
    """Return samples as compressed bytes, which `unpack` reads; numbers are rounded to a thousandth."""
    names = sorted({name for one in samples for name in one})
    columns = {name: [one.get(name, MISSING) for one in samples] for name in names}
    encoded = {name: _deltas(column) if name in DELTA_CODED else column for name, column in columns.items()}
    return lzma.compress(json.dumps(encoded, separators=(",", ":")).encode(), preset=6)


def unpack(data: bytes) -> list[Sample]:
    """Return the samples that were packed; raise ValueError for anything else."""
    try:
        columns = json.loads(lzma.decompress(data))
        decoded = {name: _undo_deltas(column) if name in DELTA_CODED else column for name, column in columns.items()}
        rows = zip(*decoded.values(), strict=True)
        return [{name: value for name, value in zip(decoded, row, strict=True) if value is not MISSING} for row in rows]
    except (lzma.LZMAError, EOFError, ValueError, TypeError, AttributeError) as error:
        raise ValueError("this is not a packed day of samples") from error


def _deltas(column: Sequence[Any]) -> list[Any]:
    """Return each number as its difference from the one before; other values stay as they are."""
    deltas, previous = [], 0.0
    for value in column:
        is_number = value is not None and value is not MISSING
        deltas.append(_rounded_to_thousandths(value - previous) if is_number else value)
        previous = value if is_number else previous
    return deltas


def _undo_deltas(column: Sequence[Any]) -> list[Any]:
    values, previous = [], 0.0
    for delta in column:
        is_number = delta is not None and delta is not MISSING
        previous = _rounded_to_thousandths(previous + delta) if is_number else previous
        values.append(previous if is_number else delta)
    return values


def _rounded_to_thousandths(value: float) -> float:
    """Return a number to a thousandth; a whole one as an int, which is shorter to write."""
    rounded = round(value, 3)
    return int(rounded) if rounded == int(rounded) else rounded


FILE_NAME = "workdays.jsonl"
MAX_BYTES = 100_000_000  # bytes that are read at most; ten years with different values each minute are smaller
VERSION = 1  # of the rules for what counts as work: a line of another version is ignored
DAY_S = 86400  # seconds
MAX_JOULES = 1e5 * DAY_S  # a day at the largest plausible power (`core.activity.agent_status`)
MAX_GPU_SECONDS = 1e3 * DAY_S  # GPU-seconds of the largest plausible number of GPUs
_COMPLETE_LINE = re.compile(rb'^\{"v":%d,"day":"([0-9-]{10})".*\}$' % VERSION, re.MULTILINE)
_LETTER_OF_KIND = {kind: kind[1] for kind in KINDS}  # the second letters of gpu, used, idle and unknown use
_KIND_OF_LETTER = {letter: kind for kind, letter in _LETTER_OF_KIND.items()}


@dataclass(frozen=True, slots=True)
class Workdays:
    """The daily summaries of the machine with this directory. A writer holds its lock."""

    directory: Path

    def read(self) -> dict[str, tuple[UsageSpan, ...]]:
        """Return the usage of each known day, by UTC date; empty where there is no file, or none that can be read."""
        found: dict[str, tuple[UsageSpan, ...]] = {}
        for line in self._content().split(b"\n"):
            with suppress(ValueError, KeyError, TypeError, AttributeError, RecursionError):
                day = json.loads(line)
                if day["v"] == VERSION:
                    found[day["day"]] = tuple(_spans(day))
        return found

    def days(self) -> set[str]:
        """Return the UTC dates of the known days, in a tenth of the time of `read`."""
        return {found.decode() for found in _COMPLETE_LINE.findall(self._content())}

    def add(self, days: Mapping[str, Sequence[UsageSpan]]) -> None:
        """Append the usage of these days, and return once it is on the disk. Raises OSError."""
        if not days:
            return
        text = b"".join(_line(day, days[day]) for day in sorted(days))
        handle = open_to_write(self.directory / FILE_NAME, os.O_RDWR | os.O_APPEND)
        with os.fdopen(handle, "r+b", buffering=0) as file:
            file.write(missing_newline(handle) + text)
            os.fsync(handle)

    def _content(self) -> bytes:
        try:
            return read_our_file(self.directory / FILE_NAME, MAX_BYTES)
        except OSError:
            return b""


def _line(day: str, spans: Sequence[UsageSpan]) -> bytes:
    """Return a day as a line. `steps` has two numbers a span: seconds since the span before, and its own length."""
    last_end, offsets = _midnight(day), []
    for one in spans:
        offsets += [one.begin - last_end, one.end - one.begin]
        last_end = one.end
    record: dict[str, Any] = {"v": VERSION, "day": day, "steps": offsets}
    record["kinds"] = "".join(_LETTER_OF_KIND[one.kind] for one in spans)
    if any(one.joules is not None for one in spans):
        record["joules"] = [one.joules for one in spans]
    if any(one.gpu_seconds is not None for one in spans):
        record["cards"] = [one.gpu_seconds for one in spans]
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"


def _spans(day: Mapping[str, Any]) -> Iterator[UsageSpan]:
    """Yield the spans of a line; raise ValueError for spans that samples of that day cannot have."""
    midnight = last_end = _midnight(day["day"])
    steps, kinds = iter(day["steps"]), day["kinds"]
    joules, gpu_seconds_list = (day.get(name, [None] * len(kinds)) for name in ("joules", "cards"))
    earliest = midnight - DAY_S  # a sample is of the day on which it ends
    for gap, length, letter, joules_drawn, gpu_seconds in zip(
        steps, steps, kinds, joules, gpu_seconds_list, strict=True
    ):
        begin, end = last_end + gap, last_end + gap + length
        is_plausible = all(
            one is None or 0 <= one < maximum
            for one, maximum in ((joules_drawn, MAX_JOULES), (gpu_seconds, MAX_GPU_SECONDS))
        )
        if not earliest <= begin < end <= midnight + DAY_S or not is_plausible:
            raise ValueError(f"no day: {begin} to {end}, {joules_drawn} J, {gpu_seconds} s of GPUs")
        earliest = last_end = end
        yield UsageSpan(
            begin,
            end,
            _KIND_OF_LETTER[letter],
            *(None if one is None else float(one) for one in (joules_drawn, gpu_seconds)),
        )


def _midnight(day: str) -> int:
    return int(datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=UTC).timestamp())
