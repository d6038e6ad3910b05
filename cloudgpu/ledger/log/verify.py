"""Makes and checks the hash chain: one canonical text per body, one hash per line.

A hash covers every field and the line before. A check walks the whole chain and says what does not follow from what.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cloudgpu.core.events.log import Event

FIRST = ""  # the `prev_hash` of line 1

_write = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode


def canonical(body: Mapping[str, Any] | Sequence[Any]) -> str:
    """Return the one JSON text of a body: sorted keys, no spaces, ASCII. Raises TypeError or ValueError."""
    return _write(body)


def line_hash(line: Event, body: str) -> str:
    """Return the SHA-256 of a line, 64 hexadecimal digits; `body` is the text as it is stored.

    The fields are hashed as one JSON list, so that it is clear where each ends and the next begins.
    """
    fields = (
        line.seq,
        line.occurred_at,
        line.clock,
        line.recorded_at,
        line.actor,
        line.kind,
        line.subject,
        line.dedupe,
        line.prev_hash,
        body,
    )
    return hashlib.sha256(_write(fields).encode()).hexdigest()


_ENOUGH = 20  # sentences: after that, another one helps nobody


def walk(lines: Iterable[tuple[Any, ...]]) -> tuple[int, str, list[str]]:
    """Return (lines, last hash, faults) of the stored lines by seq: the event's ten columns, then the hash."""
    count, last, faults = 0, FIRST, _Sentences()
    for values in lines:
        count += 1
        text, stored = values[-2:]
        line = Event(*values[:9], {})  # type: ignore[call-arg]  # the columns are the fields
        faults.add(line.seq != count, f"Line {count} is missing: line {line.seq} is in its place.")
        faults.add(line.prev_hash != last, f"Line {line.seq} does not follow from the line before it.")
        faults.add(line_hash(line, text) != stored, f"Line {line.seq} was changed: its hash does not fit.")
        faults.add(not _is_canonical(text), f"Line {line.seq} has a body that is not as it was written.")
        count, last = line.seq, stored
    return count, last, faults.taken


class _Sentences:
    def __init__(self) -> None:
        self.taken: list[str] = []

    def add(self, wrong: bool, sentence: str) -> None:  # noqa: FBT001
        if wrong and len(self.taken) < _ENOUGH:
            self.taken.append(sentence)


def _is_canonical(text: str) -> bool:
    try:
        return canonical(json.loads(text)) == text
    except ValueError:
        return False
