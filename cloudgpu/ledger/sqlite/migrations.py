"""The SQLite schema as an ordered list: entry N takes a file from schema N to N+1, in one transaction."""

from __future__ import annotations

import sqlite3

APPLICATION_ID = 0x63677075  # "cgpu": the file's mark that it is a ledger of ours

_LINES = """
CREATE TABLE line (
    seq INTEGER PRIMARY KEY,
    occurred_at TEXT NOT NULL,
    clock TEXT NOT NULL,
    recorded_at TEXT NOT NULL,
    actor TEXT NOT NULL,
    kind TEXT NOT NULL,
    subject TEXT NOT NULL,
    dedupe TEXT NOT NULL UNIQUE,
    prev_hash TEXT NOT NULL,
    body TEXT NOT NULL,
    hash TEXT NOT NULL
)"""

# `INSERT OR REPLACE` deletes without firing a delete trigger: only a trigger before the insert stops it.
_TRIGGERS = {
    "line_is_never_changed": """
CREATE TRIGGER line_is_never_changed BEFORE UPDATE ON line
BEGIN SELECT RAISE(ABORT, 'a line of the ledger is never changed'); END""",
    "line_is_never_deleted": """
CREATE TRIGGER line_is_never_deleted BEFORE DELETE ON line
BEGIN SELECT RAISE(ABORT, 'a line of the ledger is never deleted'); END""",
    "line_is_only_appended": """
CREATE TRIGGER line_is_only_appended BEFORE INSERT ON line
WHEN NEW.seq IS NOT (SELECT coalesce(max(seq), 0) + 1 FROM line)
    OR NEW.prev_hash IS NOT coalesce((SELECT hash FROM line ORDER BY seq DESC LIMIT 1), '')
    OR EXISTS (SELECT 1 FROM line WHERE dedupe = NEW.dedupe)
    OR (SELECT kind FROM line ORDER BY seq DESC LIMIT 1) = 'ledger_moved'
    OR ((SELECT kind FROM line ORDER BY seq DESC LIMIT 1) = 'ledger_moving' AND NEW.kind <> 'ledger_arrived')
BEGIN SELECT RAISE(ABORT, 'a line of the ledger is only appended'); END""",
}

TRIGGERS = frozenset(_TRIGGERS)

MIGRATIONS: list[tuple[str, ...]] = [
    (
        f"PRAGMA application_id = {APPLICATION_ID}",
        _LINES,
        "CREATE INDEX line_by_subject ON line (subject)",
        "CREATE INDEX line_by_recorded_at ON line (recorded_at)",
        *_TRIGGERS.values(),
        # A projection: dropped and rebuilt at will.
        "CREATE TABLE machine (id TEXT PRIMARY KEY, name TEXT, since TEXT, ended TEXT, row TEXT NOT NULL)",
    ),
    (),  # records have the retained resources of a machine: they are folded again
    (),  # records have the attached costs of a machine: they are folded again
    (
        "DROP TABLE machine",
        # Projections: dropped and rebuilt at will. `state` is what the next line is folded into; resources are named
        # volumes and images.
        """
CREATE TABLE machine (
    id TEXT PRIMARY KEY, since TEXT, is_resource INTEGER NOT NULL, row TEXT NOT NULL, state TEXT NOT NULL
)""",
        "CREATE TABLE ended_usage (subject TEXT NOT NULL, ended TEXT NOT NULL, usage TEXT NOT NULL)",
        "CREATE INDEX ended_usage_by_subject ON ended_usage (subject)",
        "CREATE INDEX ended_usage_by_end ON ended_usage (ended)",
    ),
    (),  # the state for the next fold no longer repeats the record: all is folded again
    (),  # records have the time of the first launch: they are folded again
    # A file of an earlier schema has the trigger of its time, which may not know that a ledger moves.
    ("DROP TRIGGER IF EXISTS line_is_only_appended", _TRIGGERS["line_is_only_appended"]),
    (
        # What a launch reads stands before what it need not read: a row may go on over several pages. Without `name`
        # nothing of a machine is there any more.
        "DROP TABLE machine",
        "DROP TABLE ended_usage",
        """
CREATE TABLE machine (
    id TEXT PRIMARY KEY, since TEXT, is_resource INTEGER NOT NULL, key TEXT, name TEXT, exposure TEXT,
    row TEXT NOT NULL, state TEXT NOT NULL
)""",
        "CREATE INDEX machine_by_key ON machine (key, name)",
        "CREATE TABLE ended_usage (subject TEXT NOT NULL, ended TEXT NOT NULL, intervals TEXT, usage TEXT NOT NULL)",
        "CREATE INDEX ended_usage_by_subject ON ended_usage (subject)",
        "CREATE INDEX ended_usage_by_end ON ended_usage (ended, subject, intervals)",  # admissions read only these
        "CREATE INDEX ended_usage_without_price ON ended_usage (subject) WHERE intervals IS NULL",
    ),
]


def version_of(connection: sqlite3.Connection) -> int:
    """Return the file's schema number; 0 is a file that has none yet."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def is_foreign(connection: sqlite3.Connection) -> bool:
    """Say whether the file is some other program's database.

    The mark is read last: a ledger that another process makes meanwhile has its tables and its mark at once.
    """
    (table_count,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    (application_id,) = connection.execute("PRAGMA application_id").fetchone()
    return bool(application_id or table_count) and application_id != APPLICATION_ID


def migrate(connection: sqlite3.Connection) -> None:
    """Bring the file to the present schema, inside the caller's transaction."""
    for step in MIGRATIONS[version_of(connection) :]:
        for statement in step:
            connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")


def delete_move_mark(connection: sqlite3.Connection) -> None:
    """Delete the last line, which the caller knows for a mark of a move, inside its transaction."""
    connection.execute("DROP TRIGGER IF EXISTS line_is_never_deleted")
    connection.execute("DELETE FROM line WHERE seq = (SELECT max(seq) FROM line)")
    restore_triggers(connection)


def missing_triggers(connection: sqlite3.Connection) -> list[str]:
    """Return the names of triggers that somebody has dropped or changed."""
    found = dict(connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall())
    return sorted(name for name, text in _TRIGGERS.items() if found.get(name) != text.strip())


def restore_triggers(connection: sqlite3.Connection) -> None:
    """Put back the triggers that are missing, inside the caller's transaction."""
    for name in missing_triggers(connection):
        connection.execute(f"DROP TRIGGER IF EXISTS {name}")
        connection.execute(_TRIGGERS[name])
