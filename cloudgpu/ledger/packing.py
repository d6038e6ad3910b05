"""Packs a day of one machine's samples: column by column, stamps and ages as steps, then LZMA; a tenth of the lines."""

from __future__ import annotations

import json
import lzma
from collections.abc import Sequence
from typing import Any

Sample = dict[str, Any]
STEPPED = frozenset({"t", "in", "out", "jup"})  # they mostly grow by the same amount
ABSENT = False  # no reading is a boolean; null is one that could not be taken


def packed(samples: Sequence[Sample]) -> bytes:
    """Return samples as bytes, `unpacked` being the way back; numbers are kept to a thousandth."""
    names = sorted({name for one in samples for name in one})
    columns = {name: [one.get(name, ABSENT) for one in samples] for name in names}
    stepped = {name: _steps(column) if name in STEPPED else column for name, column in columns.items()}
    return lzma.compress(json.dumps(stepped, separators=(",", ":")).encode(), preset=6)


def unpacked(data: bytes) -> list[Sample]:
    """Return the samples that were packed; raise ValueError for anything else."""
    try:
        columns = json.loads(lzma.decompress(data))
        whole = {name: _sums(column) if name in STEPPED else column for name, column in columns.items()}
        rows = zip(*whole.values(), strict=True)
        return [{name: value for name, value in zip(whole, row, strict=True) if value is not ABSENT} for row in rows]
    except (lzma.LZMAError, EOFError, ValueError, TypeError, AttributeError) as fault:
        raise ValueError("this is no packed day of samples") from fault


def _steps(column: Sequence[Any]) -> list[Any]:
    """Return each number as the step from the one before; what is none stays as it is."""
    found, last = [], 0.0
    for value in column:
        is_number = value is not None and value is not ABSENT
        found.append(_thousandths(value - last) if is_number else value)
        last = value if is_number else last
    return found


def _sums(column: Sequence[Any]) -> list[Any]:
    found, last = [], 0.0
    for step in column:
        is_number = step is not None and step is not ABSENT
        last = _thousandths(last + step) if is_number else last
        found.append(last if is_number else step)
    return found


def _thousandths(value: float) -> float:
    """Return a number to a thousandth; a whole one as an int, which is shorter to write."""
    rounded = round(value, 3)
    return int(rounded) if rounded == int(rounded) else rounded
