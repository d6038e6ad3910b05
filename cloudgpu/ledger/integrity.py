"""Whether the ledger's lines, its head record and the clock agree; each disagreement is one sentence."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from cloudgpu.core.values.times import duration_text, iso
from cloudgpu.ledger.log import lines
from cloudgpu.ledger.log.head import Head, Record, Unreadable

if TYPE_CHECKING:
    from cloudgpu.ledger.log.base import Verification
    from cloudgpu.ledger.log.sql import Connection

MAX_CLOCK_SKEW = timedelta(minutes=5)  # how far two honest clocks may differ

_LINES_IN_THE_FUTURE = """
SELECT max(recorded_at) FROM line WHERE recorded_at > ?
AND seq >= coalesce((SELECT max(seq) FROM line WHERE subject = 'ledger' AND kind = 'ledger_settled'), 0)"""


def check_missing(location: str, record: Record) -> str | None:
    """Return a sentence where there is a head record and no ledger; None without a head record."""
    if record is None:
        return None
    had = f"says that it had {record.seq} lines" if isinstance(record, Head) else "is damaged"
    return f"The ledger {location} is missing or empty, and its head record {had}."


def check_head(connection: Connection, location: str, record: Record) -> str | None:
    """Return how the lines contradict the head record, or None; a record that lags behind is normal after a crash."""
    if record is None:
        return None
    if isinstance(record, Unreadable):
        return f"The head record {record.path} of the ledger is damaged."
    if record.ledger != lines.id_of(connection):
        return f"The ledger {location} is not the ledger {record.ledger} that was used here before."
    found = connection.execute("SELECT hash FROM line WHERE seq = ?", (record.seq,)).fetchone()
    if found is None:
        seq = lines.end_of(connection)[0]
        return f"The ledger {location} ends at line {seq}, and its head record knew line {record.seq}."
    if found[0] != record.hash:
        return f"The ledger {location} has another line {record.seq} than the one its head record knew."
    return None


def check_clock(connection: Connection, now: datetime, database_time: Callable[[], datetime | None]) -> str | None:
    """Return how the clock contradicts the lines since the last `settle`, or None.

    Where the database's own clock agrees with this one, whoever wrote those lines had the wrong one.
    """
    (latest,) = connection.execute(_LINES_IN_THE_FUTURE, (iso(now + MAX_CLOCK_SKEW),)).fetchone()
    if not latest:
        return None
    there = database_time()
    if there is not None and abs(now - there) <= MAX_CLOCK_SKEW:
        return None
    (actor,) = connection.execute("SELECT actor FROM line WHERE recorded_at = ?", (latest,)).fetchone()
    return (
        f"This machine's clock says {iso(now)}, and the ledger has a line that {actor} recorded at {latest}. "
        "One of the two clocks is, or was, wrong."
    )


def wrong_clock(now: datetime, there: datetime | None) -> str | None:
    """Return how this computer's clock contradicts that of the ledger's database; None where they agree."""
    if there is None or abs(now - there) <= MAX_CLOCK_SKEW:
        return None
    apart = duration_text(round(abs(now - there).total_seconds()))
    return f"This computer's clock is {apart} {'ahead of' if now > there else 'behind'} that of the ledger's database."


def id_if_intact(connection: Connection, location: str, record: Record, end: lines.End) -> str | None:
    """Return the ledger's id for its next head record; None while lines and head record disagree."""
    if isinstance(record, Head) and (record.seq, record.hash) == end[:2]:
        return record.ledger  # the chain begins with the id: what ends with this hash is this ledger
    return lines.id_of(connection) if check_head(connection, location, record) is None else None


def verification(connection: Connection, location: str, record: Record, missing_guards: list[str]) -> Verification:
    """Recompute the chain; compare guards, projection and head record, all in the caller's one snapshot."""
    from cloudgpu.ledger.log.base import Verification
    from cloudgpu.ledger.log.projections import differences  # `ls` does without

    count, last, broken = lines.check_chain(lines.stored_lines(connection))
    differing = [] if broken else differences(connection)
    broken += [f"The guard {name} was taken off or changed." for name in missing_guards]
    problem = check_head(connection, location, record)
    problems = (*differing, *broken, *((problem,) if problem else ()))
    return Verification(count, last, problems, rebuildable=bool(differing) and len(differing) == len(problems))
