"""Appends lines to the chain inside the caller's transaction."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

from cloudgpu.core.events.log import Event
from cloudgpu.core.values.times import iso
from cloudgpu.ledger.chain import canonical, line_hash
from cloudgpu.ledger.lines import COLUMNS, End

if TYPE_CHECKING:
    from cloudgpu.core.events.log import Draft
    from cloudgpu.ledger.sql import Connection

_STANDS = "SELECT 1 FROM line WHERE dedupe = ?"
_INSERT = f"INSERT INTO line ({COLUMNS}, hash) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608


def append_lines(
    connection: Connection, drafts: Iterable[Draft], end: End, *, actor: str, recorded_at: str
) -> tuple[tuple[Event, ...], End]:
    """Write what does not stand already behind `end`; return the new lines and the new end."""
    written = []
    for draft in drafts:
        if connection.execute(_STANDS, (draft.dedupe,)).fetchone():
            continue
        text = canonical(draft.body)
        columns = _columns(draft, end, actor, recorded_at)
        line = Event(*columns, json.loads(text))
        end = line.seq, line_hash(line, text), recorded_at
        connection.execute(_INSERT, (*columns, text, end[1]))
        written.append(line)
    return tuple(written), end


def _columns(draft: Draft, end: End, actor: str, at: str) -> tuple[int, str, str, str, str, str, str, str, str]:
    """Return the line's fields in the order of `Event`, without its body."""
    when, subject = iso(draft.occurred_at), draft.subject
    return end[0] + 1, when, draft.clock, at, actor, draft.kind, subject, draft.dedupe, end[1]
