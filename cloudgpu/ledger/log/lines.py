"""The ledger's lines: read as events or as summaries for a fold, and chained by their hashes.

A hash covers every field of a line and the hash of the line before it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from sys import intern
from typing import TYPE_CHECKING, Any

from cloudgpu.core.events.log import Event, EventSummary

if TYPE_CHECKING:
    from cloudgpu.ledger.log.sql import Connection

LastLine = tuple[int, str, str]  # seq, hash and recorded_at of the last line; (0, "", "") without lines

COLUMNS = "seq, occurred_at, clock, recorded_at, actor, kind, subject, dedupe, prev_hash, body"
_PAGE = 500  # lines read at once
_LARGE_PAGE = 5000  # lines read at once of all lines: a remote database sends a whole answer at once
_FOLD_PAGE = 1000  # lines read at once to fold: few enough for the first generation of the garbage collector
_END = "SELECT seq, hash, recorded_at FROM line ORDER BY seq DESC LIMIT 1"
_OF_SUBJECT = f"SELECT {COLUMNS} FROM line WHERE subject = ? ORDER BY seq"  # noqa: S608
_FOR_FOLDS = "SELECT seq, occurred_at, kind, subject, '', body FROM line"
_LAST_OF_SUBJECT = f"SELECT {COLUMNS} FROM line WHERE subject = ? ORDER BY seq DESC LIMIT 1"  # noqa: S608


def events_of(found: Sequence[tuple[Any, ...]]) -> list[Event]:
    """Return stored lines, each a tuple of the ten `COLUMNS`, as events."""
    bodies = json.loads(f"[{','.join(values[9] for values in found)}]")  # one call takes half the time of many
    return [Event(*values[:9], body) for values, body in zip(found, bodies, strict=True)]  # type: ignore[call-arg]


def last_line(connection: Connection) -> LastLine:
    """Return the last line's seq, hash and time; seq 0 where there is none."""
    end: LastLine = connection.execute(_END).fetchone() or (0, "", "")
    return end


def id_of(connection: Connection) -> str:
    """Return the ledger's id, which its first line holds."""
    (body,) = connection.execute("SELECT body FROM line WHERE seq = 1").fetchone() or ('{"ledger": ""}',)
    return str(json.loads(body)["ledger"])


def format_of(connection: Connection) -> int | None:
    """Return the format number in the first line; 0: it has none; None: there is no such line.

    None also for a damaged first line, which `verify` finds.
    """
    (kind, body) = connection.execute("SELECT kind, body FROM line WHERE seq = 1").fetchone() or ("", "")
    if kind != "ledger_opened":
        return None
    try:
        number = json.loads(body).get("format", 0)
    except (AttributeError, ValueError):
        return None
    return number if type(number) is int else 0


def last_event(connection: Connection, subject: str) -> Event | None:
    """Return the latest line of a subject, or None."""
    found = events_of(connection.execute(_LAST_OF_SUBJECT, (subject,)).fetchall())
    return found[0] if found else None


def lines_of(connection: Connection, subject: str) -> list[Event]:
    """Return every line of a subject, by seq."""
    return events_of(connection.execute(_OF_SUBJECT, (subject,)).fetchall())


def lines_after(connection: Connection, subject: str | None, after: int) -> list[Event]:
    """Return up to a page of lines behind `after`, by seq, of one subject or all."""
    condition = "" if subject is None else "subject = ? AND "
    query = f"SELECT {COLUMNS} FROM line WHERE {condition}seq > ? ORDER BY seq LIMIT {_PAGE}"  # noqa: S608
    return events_of(connection.execute(query, (after,) if subject is None else (subject, after)).fetchall())


def summaries_except(connection: Connection, excluded: Collection[str]) -> Iterator[EventSummary]:
    """Yield a summary of every line by seq, except for the kinds `excluded`, with an empty `dedupe`."""
    placeholders = ", ".join("?" * len(excluded))
    query = f"{_FOR_FOLDS} WHERE seq > ? AND kind NOT IN ({placeholders}) ORDER BY seq LIMIT {_FOLD_PAGE}"
    after = 0
    while found := connection.execute(query, (after, *excluded)).fetchall():
        *columns, texts = zip(*found, strict=True)
        yield from map(EventSummary, *columns, json.loads(f"[{','.join(texts)}]"))
        after = found[-1][0]


def summaries_of_kinds(connection: Connection, kinds: Collection[str]) -> list[EventSummary]:
    """Return a summary of every line of these kinds, by seq, with an empty `dedupe`."""
    query = f"{_FOR_FOLDS} WHERE kind IN ({', '.join('?' * len(kinds))}) ORDER BY seq"
    rows, lines = iter(connection.execute(query, tuple(kinds))), list[EventSummary]()
    while found := list(islice(rows, _FOLD_PAGE)):  # not all at once: their texts are gone when the next are read
        seqs, times, kinds_of_lines, subjects, dedupes, texts = zip(*found, strict=True)
        bodies = json.loads(f"[{','.join(texts)}]")
        lines += map(EventSummary, seqs, times, map(intern, kinds_of_lines), map(intern, subjects), dedupes, bodies)
    return lines


def stored_lines(connection: Connection, *, after: int | None = None) -> Iterator[tuple[Any, ...]]:
    """Yield every line by seq, or those behind `after`, as it is stored: the ten columns, then the hash."""
    query = f"SELECT {COLUMNS}, hash FROM line WHERE seq > ? ORDER BY seq LIMIT {_LARGE_PAGE}"  # noqa: S608
    after = -(2**63) if after is None else after  # below any line, one that somebody forged included
    while found := connection.execute(query, (after,)).fetchall():
        yield from found
        after = found[-1][0]


_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode


def canonical(body: Mapping[str, Any] | Sequence[Any]) -> str:
    """Return the one JSON text of a body: sorted keys, no spaces, ASCII. Raises TypeError or ValueError."""
    return _encode(body)


def line_hash(line: Event, body: str) -> str:
    """Return the SHA-256 of a line, 64 hexadecimal digits; `body` is the text as it is stored.

    The fields are hashed as one JSON list, so that it is clear where each ends and the next begins.
    """
    import hashlib  # `ls` does without

    hashed_fields = (
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
    return hashlib.sha256(_encode(hashed_fields).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of `verify`: the number of lines, the hash of the last one, and a sentence per fault.

    `rebuildable`: the lines are correct, but the projections are not; `rebuild` makes these again.
    """

    line_count: int
    head_hash: str
    faults: tuple[str, ...]
    rebuildable: bool = False


_MAX_FAULTS = 20  # sentences of `verify`


def check_chain(stored: Iterable[tuple[Any, ...]]) -> tuple[int, str, list[str]]:
    """Return (lines, last hash, faults) of the stored lines by seq: the event's ten columns, then the hash."""
    line_count, last_hash, faults = 0, "", _FaultList()
    for values in stored:
        line_count += 1
        body, digest = values[-2:]
        line = Event(*values[:9], {})  # type: ignore[call-arg]  # the columns are the fields
        faults.add(line.seq != line_count, f"Line {line_count} is missing: line {line.seq} is in its place.")
        faults.add(line.prev_hash != last_hash, f"Line {line.seq} does not follow from the line before it.")
        faults.add(line_hash(line, body) != digest, f"Line {line.seq} was changed: its hash does not fit.")
        faults.add(not _is_canonical(body), f"Line {line.seq} has a body that is not as it was written.")
        line_count, last_hash = line.seq, digest
    return line_count, last_hash, faults.sentences


class _FaultList:
    def __init__(self) -> None:
        self.sentences: list[str] = []

    def add(self, is_wrong: bool, sentence: str) -> None:  # noqa: FBT001
        if is_wrong and len(self.sentences) < _MAX_FAULTS:
            self.sentences.append(sentence)


def _is_canonical(text: str) -> bool:
    try:
        return canonical(json.loads(text)) == text
    except ValueError:
        return False
