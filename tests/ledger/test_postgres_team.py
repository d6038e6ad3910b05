"""A ledger that a team shares: what each role of the database may write, and by whose name."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest
from psycopg import sql

from cloudgpu.core.events import Draft
from cloudgpu.core.roles import PAYER_KINDS, Role, may_write
from cloudgpu.ledger.base import Ledger
from cloudgpu.ledger.chain import canonical, line_hash
from cloudgpu.ledger.open import open_ledger
from tests.ledger.lines import NOON, Clock, intended, note
from tests.postgres import PASSWORD, Server

Open = Callable[[str], Ledger]
RIGHTS = {"ledger_schema": "SELECT", "ledger_team": "SELECT", "line": "SELECT, INSERT", "machine": "ALL", "used": "ALL"}


def url_of(url: str, user: str) -> str:
    """Return the URL by which this database user comes to the same ledger."""
    return url if user == "ada" else url.replace(f"ada:{quote(PASSWORD, safe='')}", f"{quote(user)}:secret")


def as_user(url: str, user: str) -> psycopg.Connection:
    return psycopg.connect(url_of(url, user), autocommit=True)


@pytest.fixture
def mark() -> str:
    """What the names of this test's roles begin with: roles belong to the whole server."""
    return f"t{uuid.uuid4().hex[:10]}"


@pytest.fixture
def url(postgres: Server) -> str:
    return postgres.schema()


@pytest.fixture
def opened(url: str, tmp_path: Path) -> Iterator[Open]:
    """Open the ledger as the database user of this name, with a home of their own."""
    found: list[Ledger] = []

    def make(user: str) -> Ledger:
        found.append(open_ledger(url_of(url, user), tmp_path / user, actor="whoever", clock=Clock()))
        return found[-1]

    yield make
    for ledger in found:
        ledger.close()


@pytest.fixture
def team(postgres: Server, url: str, opened: Open, mark: str) -> Iterator[tuple[str, str]]:
    """A ledger with a team: the names of a member and of a payer."""
    opened("ada").append([intended()])
    schema, bo, cy = url.rpartition("%3D")[2], f"{mark}bo", f"{mark}cy"
    with psycopg.connect(url, autocommit=True) as raw:
        for name in (f"{mark}members", f"{mark}payers", bo, cy):
            raw.execute(f"CREATE ROLE {name} {'LOGIN' if name in (bo, cy) else 'NOLOGIN'} PASSWORD 'secret'")
        raw.execute(f"GRANT USAGE ON SCHEMA {schema} TO {mark}members")
        for table, rights in RIGHTS.items():
            raw.execute(f"GRANT {rights} ON {table} TO {mark}members")
        raw.execute(f"GRANT {mark}members TO {mark}payers, {bo}; GRANT {mark}payers TO {cy}")
        raw.execute("INSERT INTO ledger_team VALUES (true, %s, %s)", (f"{mark}members", f"{mark}payers"))
    yield bo, cy
    with psycopg.connect(postgres.url(), autocommit=True) as raw:
        for name in (f"{mark}members", f"{mark}payers", bo, cy):
            raw.execute(sql.SQL("DROP OWNED BY {0}; DROP ROLE {0}").format(sql.Identifier(name)))


def test_roles_are_those_of_the_database(team: tuple[str, str], opened: Open) -> None:
    bo, cy = team
    assert [(opened(user).role(), opened(user).person()) for user in (bo, cy, "ada")] == [
        (Role.MEMBER, bo), (Role.PAYER, cy), (Role.PAYER, "ada"),
    ]  # fmt: skip
    assert opened(bo).payers() == (cy,)


def test_a_ledger_without_a_team_is_used_alone(opened: Open) -> None:
    ledger = opened("ada")
    assert (ledger.role(), ledger.person(), ledger.payers()) == (Role.ALONE, "", ())
    (line,) = ledger.append([note(1)])
    assert (line.actor, ledger.role()) == ("whoever", Role.ALONE)


def test_each_line_names_the_database_user_who_wrote_it(team: tuple[str, str], opened: Open) -> None:
    for user in team:
        (line,) = opened(user).append([note(user.encode()[-1])])
        assert line.actor == user


def forged(raw: psycopg.Connection, actor: str, kind: str) -> None:
    """Write the next line by SQL, with the hash that belongs to it."""
    from cloudgpu.core.events import Event

    (seq, before), at = raw.execute("SELECT seq, hash FROM line ORDER BY seq DESC").fetchone() or (0, ""), "2026"
    line, body = Event(seq + 1, at, "own", at, actor, kind, "s", f"d{seq}", before, {}), canonical({})
    values = (seq + 1, at, "own", at, actor, kind, "s", f"d{seq}", before, body, line_hash(line, body))
    raw.execute("INSERT INTO line VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)", values)


@pytest.mark.parametrize("hide", ["", "CREATE TEMP TABLE ledger_team (members text, payers text)"])
def test_nobody_writes_a_line_by_anothers_name(team: tuple[str, str], opened: Open, url: str, hide: str) -> None:
    bo, cy = team
    with as_user(url, bo) as raw:
        raw.execute(hide.encode())
        for name in (cy, "ada", "", "whoever"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match="names the database user"):
                forged(raw, name, "scope_looked")
        forged(raw, bo, "scope_looked")
    assert opened(cy).verify().faults == ()


def test_only_payers_write_what_payers_decide(team: tuple[str, str], opened: Open, url: str) -> None:
    bo, cy = team
    with as_user(url, bo) as raw:
        for kind in PAYER_KINDS:
            assert [may_write(role, kind) for role in Role] == [True, False, True]
            with pytest.raises(
                psycopg.errors.InsufficientPrivilege, match=f"only payers write lines of the kind {kind}"
            ):
                forged(raw, bo, kind)
    assert len(opened(cy).append([Draft(kind, "s", {}, NOON, kind) for kind in PAYER_KINDS])) == len(PAYER_KINDS)


TAKEN_OFF = """
UPDATE line SET body = '{}'
DELETE FROM line
TRUNCATE line
DROP TABLE line
ALTER TABLE line DISABLE TRIGGER ALL
DROP TRIGGER line_is_by_its_writer ON line
CREATE OR REPLACE FUNCTION line_is_by_its_writer() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'
DELETE FROM ledger_team
UPDATE ledger_team SET payers = members
UPDATE ledger_schema SET version = 9
CREATE TABLE mine (a int)
SET session_replication_role = replica
SET SESSION AUTHORIZATION ada"""


def test_no_role_of_the_team_takes_the_guards_off(team: tuple[str, str], url: str) -> None:
    for user in team:
        with as_user(url, user) as raw:
            for statement in TAKEN_OFF.strip().splitlines():
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    raw.execute(statement.encode())


def test_a_member_folds_the_projections_anew(team: tuple[str, str], opened: Open, url: str) -> None:
    with psycopg.connect(url, autocommit=True) as raw:
        raw.execute("UPDATE machine SET row = %s", (json.dumps({"name": "other"}),))
    ledger = opened(team[0])
    assert ledger.verify().rebuildable
    ledger.rebuild()
    assert ledger.verify().faults == ()
