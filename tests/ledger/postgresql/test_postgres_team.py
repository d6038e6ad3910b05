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

from cloudgpu.core.events.log import LEDGER_ARRIVED, LEDGER_MOVED, LEDGER_MOVING, Draft
from cloudgpu.core.team.rights import PAYER_KINDS, Role
from cloudgpu.errors import InvalidRequest, LedgerDenied, RoleNeeded
from cloudgpu.ledger.log.base import Ledger
from cloudgpu.ledger.log.lines import canonical, line_hash
from cloudgpu.ledger.log.teams import TeamRequest
from cloudgpu.ledger.open import open_ledger
from cloudgpu.ledger.postgresql.address import address_of
from cloudgpu.ledger.postgresql.denied import not_connected_error
from cloudgpu.ledger.postgresql.rights import RIGHTS, role_name
from cloudgpu.ledger.postgresql.schema import TABLES
from tests.ledger.lines import NOON, Clock, intended, note
from tests.postgres import PASSWORD, Server

Open = Callable[[str], Ledger]


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
def people(postgres: Server, url: str, mark: str) -> Iterator[Callable[[str], str]]:
    """Make a database user whose password is "secret"; it and all roles of this test are dropped afterwards."""

    def make(name: str, how: str = "LOGIN PASSWORD 'secret'") -> str:
        with psycopg.connect(url, autocommit=True) as raw:
            raw.execute(sql.SQL("CREATE ROLE {} " + how).format(sql.Identifier(mark + name)))
        return mark + name

    yield make
    schema = url.rpartition("%3D")[2]
    with psycopg.connect(postgres.url(), autocommit=True) as raw:
        found = raw.execute("SELECT rolname FROM pg_roles WHERE starts_with(rolname, %s) OR rolname LIKE %s",
                            (mark, f"%{schema[:12]}%")).fetchall()  # fmt: skip
        for (name,) in found:
            raw.execute(sql.SQL("DROP OWNED BY {0} CASCADE; DROP ROLE {0}").format(sql.Identifier(name)))


@pytest.fixture
def team(opened: Open, people: Callable[[str], str]) -> tuple[str, str]:
    """A ledger with a team: the names of a member and of a payer. A client that was there before writes on."""
    bo, cy = people("bo"), people("cy")
    early, ledger = opened("ada"), opened("ada")
    assert {line.actor for line in early.append([intended()])} == {"whoever"}
    assert ledger.share(TeamRequest(new_members=(bo,), new_payers=(cy,))).missing == ()
    assert {line.actor for line in early.append([note(9)])} == {"ada"}
    return bo, cy


def test_roles_are_those_of_the_database(team: tuple[str, str], opened: Open) -> None:
    bo, cy = team
    assert [(opened(user).role(), opened(user).person()) for user in (bo, cy, "ada")] == [
        (Role.MEMBER, bo), (Role.PAYER, cy), (Role.PAYER, "ada"),
    ]  # fmt: skip
    assert (opened(bo).members(), opened(bo).payers()) == ((bo, cy), (cy,))


def test_a_ledger_without_a_team_is_used_alone(opened: Open) -> None:
    ledger = opened("ada")
    assert (ledger.role(), ledger.person(), ledger.payers()) == (Role.ALONE, "", ())
    (line,) = ledger.append([note(1)])
    assert (line.actor, ledger.role()) == ("whoever", Role.ALONE)


@pytest.mark.soak
def test_each_line_names_the_database_user_who_wrote_it(team: tuple[str, str], opened: Open) -> None:
    for user in team:
        (line,) = opened(user).append([note(user.encode()[-1])])
        assert line.actor == user


def forged(raw: psycopg.Connection, actor: str, kind: str) -> None:
    """Write the next line by SQL, with the hash that belongs to it."""
    from cloudgpu.core.events.log import Event

    (seq, before), at = raw.execute("SELECT seq, hash FROM line ORDER BY seq DESC").fetchone() or (0, ""), "2026"
    line, body = Event(seq + 1, at, "own", at, actor, kind, "s", f"d{seq}", before, {}), canonical({})
    values = (seq + 1, at, "own", at, actor, kind, "s", f"d{seq}", before, body, line_hash(line, body))
    raw.execute("INSERT INTO line VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)", values)


@pytest.mark.soak
@pytest.mark.parametrize("hide", ["", "CREATE TEMP TABLE ledger_team (members text, payers text)"])
def test_nobody_writes_a_line_by_anothers_name(team: tuple[str, str], opened: Open, url: str, hide: str) -> None:
    bo, cy = team
    with as_user(url, bo) as raw:
        raw.execute(hide.encode())
        for name in (cy, "ada", "", "whoever"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match="names the database user"):
                forged(raw, name, "account_synced")
        forged(raw, bo, "account_synced")
    assert opened(cy).verify().faults == ()


def test_only_payers_write_what_payers_decide(team: tuple[str, str], opened: Open, url: str) -> None:
    bo, cy = team
    last = [LEDGER_MOVING, LEDGER_ARRIVED, LEDGER_MOVED]  # in this order; nothing follows the third
    with as_user(url, bo) as raw:
        for kind in PAYER_KINDS | set(last):
            with pytest.raises(
                psycopg.errors.InsufficientPrivilege, match=f"only payers write lines of the kind {kind}"
            ):
                forged(raw, bo, kind)
    kinds = [*sorted(PAYER_KINDS - set(last)), *last]
    assert len(opened(cy).append([Draft(kind, "s", {}, NOON, kind) for kind in kinds])) == len(PAYER_KINDS)


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


@pytest.mark.soak
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


@pytest.mark.soak
def test_every_table_has_its_rights_and_no_more(team: tuple[str, str], url: str) -> None:
    assert set(RIGHTS) == set(TABLES)
    with as_user(url, team[0]) as raw:
        for table, rights in RIGHTS.items():
            for right in ("SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER"):
                has = raw.execute("SELECT has_table_privilege(%s, %s)", (table, right)).fetchone()
                assert has == (right in rights,), (table, right)


def test_a_team_is_made_once_and_the_ledger_says_so(team: tuple[str, str], opened: Open) -> None:
    bo, cy = team
    ledger = opened("ada")
    (line,) = ledger.events("team")
    again = ledger.share(TeamRequest(new_members=(bo,)))
    assert (again.is_recorded, again.missing, again.members, again.payers) == (True, (), (bo, cy), (cy,))
    assert list(opened(bo).events("team")) == [line]
    assert (line.actor, set(line.body)) == ("ada", {"members", "payers"})


@pytest.mark.parametrize("name", ['a"; DROP TABLE line; --', "Bo Ä", "select", "%s ?", "o'hara"])
def test_odd_names_are_only_names(opened: Open, people: Callable[[str], str], url: str, name: str) -> None:
    user, roles = people(name), (people("members" + name, "NOLOGIN"), people("payers" + name, "NOLOGIN"))
    found = opened("ada").share(TeamRequest(*roles, new_members=(user,)))
    assert (found.is_recorded, found.missing, found.members) == (True, (), (user,))
    assert (opened(user).role(), opened(user).person()) == (Role.MEMBER, user)
    (line,) = opened(user).append([note(1)])
    assert line.actor == user


def test_two_ledgers_of_a_server_never_share_a_role() -> None:
    places = [
        ("lab", "public"), ("lab", "x"), ("lab_x", "public"), ("lab", "x_y"), ("lab_x", "y"), ("Lab", "public"),
        ("lab.x", "public"), ("l" * 60, "public"), ("l" * 61, "public"), ("ü", "public"), ("ö", "public"),
    ]  # fmt: skip
    names = [role_name(what, *place) for place in places for what in ("members", "payers")]
    assert names[0] == "cloudgpu_members_lab"
    assert len(set(names)) == len(names)
    assert all(len(name.encode()) <= 63 for name in names)


@pytest.mark.soak
def test_what_the_owner_may_not_do_is_said_as_statements(
    postgres: Server, url: str, opened: Open, people: Callable[[str], str]
) -> None:
    schema, lab, bo = url.rpartition("%3D")[2], people("lab"), people("bo")
    with psycopg.connect(postgres.url(), autocommit=True) as raw:
        raw.execute(f"ALTER SCHEMA {schema} OWNER TO {lab}")
        wish = TeamRequest(new_members=(bo, f"{bo}new"))
        found = opened(lab).share(wish)
        assert (found.is_recorded, opened(lab).role()) == (False, Role.ALONE)
        assert {one.grantor for one in found.missing} == {"the administrator of the database server"}
        with pytest.raises(LedgerDenied, match=f"belongs to the database user {lab}"):
            opened(bo).machines()
        for one in found.missing:
            raw.execute(one.statement.encode())
    done = opened(lab).share(wish)
    assert (done.is_recorded, done.missing, done.members, done.owner) == (True, (), (bo, f"{bo}new"), lab)
    assert opened(bo).machines() == []
    with pytest.raises(RoleNeeded, match=f"belongs to the database user {lab}"):
        opened(bo).share(TeamRequest())


def test_a_name_that_no_role_can_have_is_refused(opened: Open) -> None:
    with pytest.raises(InvalidRequest, match="pg_"):
        opened("ada").share(TeamRequest("pg_members"))


def test_a_file_has_no_team(tmp_path: Path) -> None:
    ledger = open_ledger(None, tmp_path, actor="ada", clock=Clock())
    with pytest.raises(InvalidRequest, match="is a file"):
        ledger.share(TeamRequest())
    assert (ledger.role(), ledger.person(), ledger.payers(), ledger.sharing()) == (Role.ALONE, "", (), None)
    assert list(tmp_path.iterdir()) == []


MISSING = {
    "REVOKE {members} FROM {bo}": ("lacks the role {members}", "GRANT {members} TO {bo};"),
    "ALTER ROLE {bo} NOINHERIT": ("does not inherit its rights", "ALTER ROLE {bo} INHERIT"),
    "REVOKE USAGE ON SCHEMA {schema} FROM {members}": ("lacks USAGE on the schema", "cloudgpu ledger init --team"),
    "REVOKE INSERT ON line FROM {members}": ("lacks INSERT on line", "cloudgpu ledger init --team"),
    "REVOKE ALL ON machine, line FROM {members}": ("lacks SELECT on line", "cloudgpu ledger init --team"),
}


@pytest.mark.soak
@pytest.mark.parametrize("taken", MISSING)
def test_whoever_lacks_a_right_is_told_which_and_who_gives_it(
    team: tuple[str, str], opened: Open, url: str, taken: str
) -> None:
    said, way = MISSING[taken]
    found = opened("ada").sharing()
    assert found is not None
    assert found.team is not None
    names = {"bo": team[0], "members": found.team.members, "schema": url.rpartition("%3D")[2]}
    with psycopg.connect(url, autocommit=True) as raw:
        raw.execute(taken.format(**names).encode())
    with pytest.raises(LedgerDenied) as caught:
        opened(team[0]).append([note(1)])
    assert said.format(**names) in caught.value.message
    assert way.format(**names) in (caught.value.next or "")
    assert (caught.value.exit_code, "secret" in str(caught.value)) == (6, False)
    if way.startswith("cloudgpu"):
        assert opened("ada").share(TeamRequest()).missing == ()
        assert opened(team[0]).append([note(1)])


def test_a_user_whose_schema_is_closed_makes_no_ledger_elsewhere(
    team: tuple[str, str], opened: Open, url: str, postgres: Server, tmp_path: Path
) -> None:
    bo, _ = team
    schema, other = url.rpartition("%3D")[2], postgres.schema().rpartition("%3D")[2]
    with psycopg.connect(url, autocommit=True) as raw:
        (members,) = raw.execute("SELECT members FROM ledger_team").fetchone() or ("",)
        raw.execute(f"REVOKE ALL ON SCHEMA {schema} FROM PUBLIC, {members}".encode())
        raw.execute(f"GRANT ALL ON SCHEMA {other} TO {bo}")
    theirs = open_ledger(f"{url_of(url, bo)}%2C{other}", tmp_path / bo, actor="bo", clock=Clock())
    with pytest.raises(LedgerDenied, match="USAGE"):
        theirs.append([note(1)])


def test_a_ledger_that_the_search_path_misses_is_named(
    team: tuple[str, str], opened: Open, url: str, postgres: Server, tmp_path: Path
) -> None:
    bo, _ = team
    schema, other = url.rpartition("%3D")[2], postgres.schema().rpartition("%3D")[2]
    with psycopg.connect(url, autocommit=True) as raw:
        raw.execute(f"GRANT ALL ON SCHEMA {other} TO {bo}".encode())
    found = open_ledger(url_of(url, bo).replace(schema, other), tmp_path / bo, actor="bo", clock=Clock()).sharing()
    assert found is not None
    assert (found.person, found.owner, found.team) == (bo, "", None)
    (remark,) = found.remarks
    assert remark.startswith(f"The schema {other} has no ledger. Another one has: ")
    assert schema in remark or "(and more)" in remark


@pytest.mark.soak
def test_what_is_given_beyond_the_roles_is_taken_back(team: tuple[str, str], opened: Open, url: str) -> None:
    bo, _ = team
    with psycopg.connect(url, autocommit=True) as raw:
        raw.execute(f"GRANT ALL ON line TO {bo}; GRANT UPDATE (body) ON line TO PUBLIC; GRANT SELECT ON line TO PUBLIC")
        found = opened(bo).sharing()
        assert found is not None
        assert [one.message.split(" has ")[0] for one in found.missing] == ["Everybody (PUBLIC)", bo]
        assert opened("ada").share(TeamRequest()).missing == ()
        rights = raw.execute("SELECT has_table_privilege(%s, 'line', 'TRUNCATE')", (bo,)).fetchone()
    assert rights == (False,)


@pytest.mark.soak
def test_a_restore_keeps_the_team_and_the_names_of_the_lines(
    team: tuple[str, str], opened: Open, tmp_path: Path
) -> None:
    from cloudgpu.ledger.sqlite.backup import restore, write_backup

    bo, cy = team
    opened(bo).append([note(1)])
    before = [(line.seq, line.actor) for line in opened(cy).events()]
    write_backup(opened(bo), tmp_path / "copy")
    with pytest.raises(LedgerDenied, match="Only ada may do this"):
        restore(opened(bo), tmp_path / "copy")
    restore(opened("ada"), tmp_path / "copy")
    assert (opened(bo).role(), opened(cy).role()) == (Role.MEMBER, Role.PAYER)
    assert [(line.seq, line.actor) for line in opened(bo).events()] == before
    assert opened(bo).append([note(2)])


@pytest.mark.soak
def test_an_older_schema_is_brought_up_to_date_by_its_owner_alone(
    team: tuple[str, str], opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cloudgpu.ledger.postgresql import rights, schema

    bo, _ = team
    monkeypatch.setattr(schema, "MIGRATIONS", [*schema.MIGRATIONS, ("CREATE TABLE later (a int)",)])
    monkeypatch.setattr(rights, "RIGHTS", {**RIGHTS, "later": ("SELECT", "INSERT")})
    with pytest.raises(LedgerDenied, match="made by an older cloudgpu, and only ada may bring it up to date"):
        opened(bo).append([note(1)])
    assert opened("ada").machines()
    assert opened(bo).append([note(1)])
    found = opened(bo).sharing()
    assert found is not None
    assert found.missing == ()


def test_a_user_who_may_not_connect_is_told_the_role(
    people: Callable[[str], str], mark: str, url: str, tmp_path: Path
) -> None:
    dan = people("dan")
    with psycopg.connect(url, autocommit=True) as raw:
        raw.execute(f"CREATE DATABASE {mark} TEMPLATE template0".encode())
        raw.execute(f"REVOKE CONNECT ON DATABASE {mark} FROM PUBLIC".encode())
        try:
            with pytest.raises(LedgerDenied, match=f"{dan} may not connect") as caught:
                open_ledger(
                    url_of(url, dan).replace("/postgres?", f"/{mark}?").partition("&")[0],
                    tmp_path,
                    actor="dan",
                    clock=Clock(),
                ).machines()
        finally:
            raw.execute(f"DROP DATABASE {mark}".encode())
    assert f"GRANT cloudgpu_members_{mark} TO {dan};" in (caught.value.next or "")


@pytest.mark.parametrize(
    ("user", "options", "statement"),
    [
        ("ada", "-c search_path=lab", "GRANT cloudgpu_members_db_lab TO ada;"),
        ("ada", "-c search_path=lab -c statement_timeout=5", "GRANT cloudgpu_members_db_lab TO ada;"),
        ("Ada", "-c statement_timeout=5", 'GRANT cloudgpu_members_db TO "Ada";'),
        ("ada-lovelace", "-csearch_path=lab,public", 'GRANT cloudgpu_members_db_lab TO "ada-lovelace";'),
    ],
)
def test_the_statement_for_a_user_who_may_not_connect_can_be_run(user: str, options: str, statement: str) -> None:
    address = address_of(f"postgresql://{user}@127.0.0.1/db?options={quote(options)}")
    assert statement in (not_connected_error(address).next or "")


def test_the_password_comes_from_the_users_file(
    team: tuple[str, str], opened: Open, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bo, _ = team
    file = tmp_path / "pgpass"
    file.write_text(f"*:*:*:{bo}:secret\n")
    file.chmod(0o600)
    monkeypatch.setenv("PGPASSFILE", str(file))
    without = url_of(url, bo).replace(":secret", "")
    assert "secret" not in without
    ledger = open_ledger(without, tmp_path / bo, actor="bo", clock=Clock())
    assert (ledger.person(), ledger.role()) == (bo, Role.MEMBER)
    ledger.close()
