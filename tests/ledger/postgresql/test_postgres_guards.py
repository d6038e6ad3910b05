# ruff: noqa: S608  (raw SQL is what is tried here)
"""What raw SQL may not do to the lines in PostgreSQL, what `verify` notices, and what a head record knows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from cloudgpu.errors import LedgerUnavailable
from cloudgpu.ledger.open import open_ledger
from cloudgpu.ledger.postgresql.schema import TRIGGERS
from cloudgpu.ledger.postgresql.store import PostgresLedger
from tests.ledger.lines import Clock, intended, note, seen
from tests.postgres import Server

COLUMNS = "seq, occurred_at, clock, recorded_at, actor, kind, subject, dedupe, prev_hash, body, hash"
COPY = f"SELECT {COLUMNS} FROM line WHERE seq = 3"
Again = Callable[..., PostgresLedger]


@pytest.fixture
def url(postgres: Server) -> str:
    return postgres.schema()


@pytest.fixture
def again(url: str, tmp_path: Path) -> Iterator[Again]:
    """Open the ledger as the next command of a client would."""
    opened: list[PostgresLedger] = []

    def make(client: str = "home") -> PostgresLedger:
        found = open_ledger(url, tmp_path / client, actor="somebody", clock=Clock())
        assert isinstance(found, PostgresLedger)
        opened.append(found)
        return found

    yield make
    for ledger in opened:
        ledger.close()


@pytest.fixture
def ledger(again: Again) -> PostgresLedger:
    found = again()
    found.append([intended(), seen(), note(1), note(2)])
    return found


@pytest.fixture
def raw(ledger: PostgresLedger, url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(url, autocommit=True) as connection:
        yield connection


def contents(raw: psycopg.Connection) -> list[tuple[object, ...]]:
    return raw.execute(f"SELECT {COLUMNS} FROM line ORDER BY seq").fetchall()


@pytest.mark.parametrize("how", ["", "SET session_replication_role = replica; SET search_path = pg_temp"])
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE {line} SET body = '{{}}'",
        "UPDATE {line} SET body = body WHERE seq = 3",
        "UPDATE {line} SET body = body WHERE seq = 99",
        "DELETE FROM {line}",
        "DELETE FROM {line} WHERE seq = 5",
        "TRUNCATE {line}",
        "INSERT INTO {line} SELECT * FROM {line} WHERE seq = 3",
        "INSERT INTO {line} SELECT * FROM {line} WHERE seq = 3 ON CONFLICT (seq) DO UPDATE SET body = '{{}}'",
        "INSERT INTO {line} SELECT 8, '', '', '', '', '', '', 'hole', hash, '', '' FROM {line} WHERE seq = 5",
        "INSERT INTO {line} SELECT 6, '', '', '', '', '', '', 'fork', hash, '', '' FROM {line} WHERE seq = 4",
        "INSERT INTO {line} VALUES (-1, '', '', '', '', '', '', 'below', '', '', '')",
        "INSERT INTO {line} VALUES (NULL, '', '', '', '', '', '', 'none', '', '', '')",
        (
            "INSERT INTO {line} SELECT 6, '', '', '', '', '', '', dedupe, hash, '', '' FROM {line} WHERE seq = 5 "
            "ON CONFLICT (dedupe) DO UPDATE SET body = '{{}}'"
        ),
        "MERGE INTO {line} USING (SELECT 1) AS one ON true WHEN MATCHED THEN DELETE",
    ],
)
def test_a_line_is_neither_changed_nor_deleted_nor_replaced(
    ledger: PostgresLedger, raw: psycopg.Connection, statement: str, how: str, url: str
) -> None:
    before = contents(raw)
    schema = url.rpartition("%3D")[2]
    if how:
        raw.execute(how)
    with pytest.raises(psycopg.errors.IntegrityConstraintViolation, match=r"lines? of the ledger (is|are)"):
        raw.execute(statement.format(line=f"{schema}.line"))
    raw.execute(f"SET search_path = {schema}")
    assert contents(raw) == before
    assert ledger.verify().faults == ()


def unguarded(raw: psycopg.Connection, *statements: str) -> None:
    """Do it as somebody who means it: the guards taken off, and put back."""
    raw.execute("ALTER TABLE line DISABLE TRIGGER USER")
    for statement in statements:
        raw.execute(statement)
    for name in TRIGGERS:
        raw.execute(f"ALTER TABLE line ENABLE ALWAYS TRIGGER {name}")


@pytest.mark.parametrize("column", COLUMNS.split(", ")[1:])
def test_every_changed_field_is_noticed(ledger: PostgresLedger, raw: psycopg.Connection, column: str) -> None:
    value = '{"machines":99,"unanswered":[]}' if column == "body" else "2026-11-19T00:00:00.000000Z"
    unguarded(raw, f"UPDATE line SET {column} = '{value}' WHERE seq = 4")
    assert any("ine 4" in fault for fault in ledger.verify().faults)


@pytest.mark.parametrize("seq", [1, 3, 4])
def test_a_deleted_line_is_noticed(ledger: PostgresLedger, raw: psycopg.Connection, seq: int) -> None:
    unguarded(raw, f"DELETE FROM line WHERE seq = {seq}")
    assert any(f"Line {seq} is missing" in fault for fault in ledger.verify().faults)


def test_a_deleted_last_line_is_noticed_by_every_client_that_knew_it(
    ledger: PostgresLedger, raw: psycopg.Connection, again: Again
) -> None:
    again("other").append([note(3)])
    unguarded(raw, "DELETE FROM line WHERE seq = 6")
    assert "ends at line 5, and its head record knew line 6" in (again("other").integrity_problem() or "")
    assert any("ends at line 5" in fault for fault in again("other").verify().faults)
    assert ledger.integrity_problem() is None, "this client has never seen line 6"
    ledger.append([note(4)])
    assert "another line 6" in (again("other").integrity_problem() or "")
    again("other").settle("looked everywhere")
    assert [again(home).integrity_problem() for home in ("other", "home")] == [None, None]
    assert ledger.verify().faults == ()


@pytest.mark.parametrize(
    "how",
    [
        "DROP TABLE line, machine, ended_usage, ledger_team, ledger_schema",
        "DROP SCHEMA {schema} CASCADE; CREATE SCHEMA {schema}",
    ],
)
def test_lost_tables_are_not_silently_begun_anew(
    ledger: PostgresLedger, raw: psycopg.Connection, again: Again, how: str, url: str
) -> None:
    known = ledger.id
    raw.execute(how.format(schema=url.rpartition("%3D")[2]))
    late = again()
    assert "missing or empty" in (late.integrity_problem() or "")
    for attempt in (lambda: late.append([note(2)]), late.machines, late.rebuild):
        with pytest.raises(LedgerUnavailable, match="5 lines"):
            attempt()
    late.settle("the database was lost")
    assert (again().id, again().integrity_problem(), again().verify().faults) == (known, None, ())
    assert again().append([note(1)])


def test_another_ledger_at_the_same_place_is_noticed(
    ledger: PostgresLedger, raw: psycopg.Connection, again: Again
) -> None:
    raw.execute("DROP TABLE line, machine, ended_usage, ledger_team, ledger_schema")
    again("stranger").append([note(number) for number in range(9)])
    assert "is not the ledger" in (again().integrity_problem() or "")
    again().settle("meant")
    assert again().integrity_problem() is None


def test_a_changed_row_of_the_projection_is_noticed_and_rebuilt(
    ledger: PostgresLedger, raw: psycopg.Connection
) -> None:
    row = ledger.machines()[0]
    ((text,),) = raw.execute("SELECT row FROM machine").fetchall()
    raw.execute("UPDATE machine SET row = %s", (json.dumps(json.loads(text) | {"name": "other"}),))
    assert [fault.split()[4] for fault in ledger.verify().faults] == ["cg-1"]
    ledger.rebuild()
    assert ledger.machines() == [row]
    assert ledger.verify().faults == ()


@pytest.mark.parametrize("guard", sorted(TRIGGERS))
@pytest.mark.parametrize(
    "how",
    [
        "DROP TRIGGER {guard} ON line",
        "ALTER TABLE line DISABLE TRIGGER {guard}",
        "ALTER TABLE line ENABLE TRIGGER {guard}",
        "CREATE OR REPLACE FUNCTION {guard}() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
    ],
    ids=["dropped", "disabled", "not-for-replicas", "emptied"],
)
def test_a_guard_that_was_taken_off_is_noticed_and_put_back(
    ledger: PostgresLedger, raw: psycopg.Connection, guard: str, how: str
) -> None:
    raw.execute(how.format(guard=guard))
    assert any(guard in fault for fault in ledger.verify().faults)
    ledger.rebuild()
    assert ledger.verify().faults == ()
    assert ledger.append([note(7)])


def test_a_rule_that_swallows_lines_is_noticed_and_taken_off(ledger: PostgresLedger, raw: psycopg.Connection) -> None:
    raw.execute("CREATE RULE swallow AS ON INSERT TO line WHERE NEW.actor = 'nobody' DO INSTEAD NOTHING")
    assert any("swallow" in fault for fault in ledger.verify().faults)
    ledger.rebuild()
    assert ledger.verify().faults == ()


def test_what_is_written_is_on_the_servers_disk_even_where_it_is_told_to_be_quick(
    ledger: PostgresLedger, raw: psycopg.Connection
) -> None:
    raw.execute("ALTER ROLE ada SET synchronous_commit = off")
    try:
        ledger.close()
        ledger.machines()
        assert ledger._store._raw.execute("SHOW synchronous_commit").fetchone() == ("on",)
    finally:
        raw.execute("ALTER ROLE ada RESET synchronous_commit")
