# ruff: noqa: S608  (raw SQL is what is tried here)
"""What raw SQL may not do to the lines by accident, and what `verify` notices of what was done on purpose."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cloudgpu.ledger.log.lines import canonical, line_hash
from cloudgpu.ledger.open import SqliteLedger, open_ledger
from cloudgpu.ledger.sqlite.migrations import TRIGGERS
from tests.ledger.lines import Clock, intended, note, seen

COLUMNS = "seq, occurred_at, clock, recorded_at, actor, kind, subject, dedupe, prev_hash, body, hash"
COPY = f"SELECT {COLUMNS} FROM line WHERE seq = 3"


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[SqliteLedger]:
    found = open_ledger(None, tmp_path, actor="somebody", clock=Clock())
    assert isinstance(found, SqliteLedger)
    found.append([intended(), seen(), note(1), note(2)])
    yield found
    found.close()


@pytest.fixture
def raw(ledger: SqliteLedger, tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)
    yield connection
    connection.close()


def contents(raw: sqlite3.Connection) -> list[tuple[object, ...]]:
    return raw.execute(f"SELECT {COLUMNS} FROM line ORDER BY seq").fetchall()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE line SET body = '{}'",
        "UPDATE line SET body = body WHERE seq = 3",
        "UPDATE OR REPLACE line SET seq = 2 WHERE seq = 3",
        "UPDATE OR IGNORE line SET body = '{}' WHERE seq = 3",
        "DELETE FROM line",
        "DELETE FROM line WHERE seq = 5",
        "REPLACE INTO line VALUES (3, '', '', '', '', '', '', 'x', '', '{}', '')",
        f"INSERT OR REPLACE INTO line {COPY}",
        "INSERT OR REPLACE INTO line VALUES (9, '', '', '', '', '', '', 'note:scope:fake/main:1', '', '{}', '')",
        f"INSERT OR IGNORE INTO line {COPY}",
        f"INSERT INTO line {COPY} ON CONFLICT (seq) DO UPDATE SET body = '{{}}'",
        "INSERT INTO line VALUES (8, '', '', '', '', '', '', 'hole', (SELECT hash FROM line WHERE seq = 5), '{}', '')",
        "INSERT INTO line VALUES (6, '', '', '', '', '', '', 'fork', (SELECT hash FROM line WHERE seq = 4), '{}', '')",
        "INSERT INTO line VALUES (NULL, '', '', '', '', '', '', 'no seq', '', '{}', '')",
        "INSERT OR REPLACE INTO line VALUES (-1, '', '', '', '', '', '', 'below', '', '{}', '')",
    ],
)
def test_a_line_is_neither_changed_nor_deleted_nor_replaced(
    ledger: SqliteLedger, raw: sqlite3.Connection, statement: str
) -> None:
    before = contents(raw)
    with pytest.raises(sqlite3.IntegrityError, match="line of the ledger is"):
        raw.execute(statement)
    assert contents(raw) == before
    assert ledger.verify().faults == ()


def unguarded(raw: sqlite3.Connection, *statements: str) -> None:
    """Do it as somebody who means it: the guards taken off, and put back."""
    guards = raw.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
    for name, _ in guards:
        raw.execute(f"DROP TRIGGER {name}")
    for statement in statements:
        raw.execute(statement)
    for _, text in guards:
        raw.execute(text)


@pytest.mark.parametrize("column", COLUMNS.split(", ")[1:])
def test_every_changed_field_is_noticed(ledger: SqliteLedger, raw: sqlite3.Connection, column: str) -> None:
    value = '{"machines":99,"unanswered":[]}' if column == "body" else "2026-11-19T00:00:00.000000Z"
    unguarded(raw, f"UPDATE line SET {column} = '{value}' WHERE seq = 4")
    assert any("ine 4" in fault for fault in ledger.verify().faults)


@pytest.mark.parametrize("body", ['{"unanswered": [], "machines": 1}', "not json", "[]"])
def test_a_body_that_is_written_otherwise_is_noticed(ledger: SqliteLedger, raw: sqlite3.Connection, body: str) -> None:
    unguarded(raw, f"UPDATE line SET body = '{body}' WHERE seq = 4")
    assert any("Line 4" in fault for fault in ledger.verify().faults)


@pytest.mark.parametrize("seq", [1, 3, 4])
def test_a_deleted_line_is_noticed(ledger: SqliteLedger, raw: sqlite3.Connection, seq: int) -> None:
    unguarded(raw, f"DELETE FROM line WHERE seq = {seq}")
    assert any(f"Line {seq} is missing" in fault for fault in ledger.verify().faults)


def test_a_deleted_last_line_is_noticed_by_the_head_record(ledger: SqliteLedger, raw: sqlite3.Connection) -> None:
    unguarded(raw, "DELETE FROM line WHERE seq = 5")
    assert "ends at line 4" in (ledger.integrity_problem() or "")
    assert any("ends at line 4" in fault for fault in ledger.verify().faults)


def test_two_exchanged_lines_are_noticed(ledger: SqliteLedger, raw: sqlite3.Connection) -> None:
    unguarded(
        raw,
        "UPDATE line SET seq = 99 WHERE seq = 4",
        "UPDATE line SET seq = 4 WHERE seq = 5",
        "UPDATE line SET seq = 5 WHERE seq = 99",
    )
    assert ledger.verify().faults


def test_a_chain_that_was_recomputed_to_the_end_is_noticed_by_the_head_record(
    ledger: SqliteLedger, raw: sqlite3.Connection
) -> None:
    lines = list(ledger.events())[2:]
    changes, previous = [], lines[0].prev_hash
    for line in lines:
        body = canonical({**line.body, "forged": True})
        values = f"body = '{body}', prev_hash = '{previous}'"
        previous = line_hash(replace(line, prev_hash=previous), body)
        changes.append(f"UPDATE line SET {values}, hash = '{previous}' WHERE seq = {line.seq}")
    unguarded(raw, *changes)
    ledger.rebuild()
    assert "another line 5" in (ledger.integrity_problem() or "")
    assert [fault for fault in ledger.verify().faults if "another line 5" not in fault] == []


def test_a_changed_row_of_the_projection_is_noticed_and_rebuilt(ledger: SqliteLedger, raw: sqlite3.Connection) -> None:
    row, (text,) = ledger.machines()[0], raw.execute("SELECT row FROM machine").fetchone()
    raw.execute("UPDATE machine SET row = ?", (json.dumps(json.loads(text) | {"usage_totals": {}, "name": "other"}),))
    raw.execute("INSERT INTO machine (id, is_resource, row, state) VALUES ('cg-made-up', 0, '{}', '{}')")
    assert [fault.split()[4] for fault in ledger.verify().faults] == ["cg-1", "cg-made-up"]
    ledger.rebuild()
    assert ledger.machines() == [row]
    assert ledger.verify().faults == ()


@pytest.mark.parametrize("guard", sorted(TRIGGERS))
def test_a_guard_that_was_taken_off_is_noticed_and_put_back(
    ledger: SqliteLedger, raw: sqlite3.Connection, guard: str
) -> None:
    raw.execute(f"DROP TRIGGER {guard}")
    assert any(guard in fault for fault in ledger.verify().faults)
    ledger.rebuild()
    assert ledger.verify().faults == ()


def test_thousands_of_faults_are_told_in_a_few_sentences(ledger: SqliteLedger, raw: sqlite3.Connection) -> None:
    ledger.append([note(number) for number in range(10, 200)])
    unguarded(raw, "UPDATE line SET actor = 'else'")
    assert 0 < len(ledger.verify().faults) <= 20


def test_where_one_field_ends_and_the_next_begins_is_part_of_the_hash(ledger: SqliteLedger) -> None:
    line = next(iter(ledger.events("cg-1")))
    one = type(line)(1, "a", "b", "c", "d", "e", "f", "g", "h", {})
    other = type(line)(1, "ab", "", "c", "d", "e", "f", "g", "h", {})
    assert line_hash(one, "{}") != line_hash(other, "{}")


OLD = """
CREATE TRIGGER line_is_only_appended BEFORE INSERT ON line
WHEN NEW.seq IS NOT (SELECT coalesce(max(seq), 0) + 1 FROM line)
BEGIN SELECT RAISE(ABORT, 'a line of the ledger is only appended'); END"""


def exchanged(raw: sqlite3.Connection) -> None:
    raw.execute("DROP TRIGGER line_is_only_appended")
    raw.execute(OLD)


def test_a_file_of_an_earlier_schema_is_given_the_guard_that_knows_of_moves(
    ledger: SqliteLedger, raw: sqlite3.Connection
) -> None:
    exchanged(raw)
    raw.execute("PRAGMA user_version = 6")
    ledger.close()
    ledger.append([note(3)])
    assert ledger.verify().faults == ()
    (text,) = raw.execute("SELECT sql FROM sqlite_master WHERE name = 'line_is_only_appended'").fetchone()
    assert "ledger_moved" in text


def test_a_guard_that_was_changed_is_noticed_and_put_back(ledger: SqliteLedger, raw: sqlite3.Connection) -> None:
    exchanged(raw)
    ledger.close()
    assert ledger.verify().faults == ("The guard line_is_only_appended was taken off or changed.",)
    ledger.rebuild()
    assert ledger.verify().faults == ()
