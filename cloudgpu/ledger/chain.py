"""The hash chain: one canonical text per body, one hash per line that covers every field and the line before."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from cloudgpu.core.events.log import Event

FIRST = ""  # the `prev_hash` of line 1

_write = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode


def canonical(body: Mapping[str, Any]) -> str:
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
