"""A lab on one ledger in PostgreSQL by its command line: made, used by each role, and refused to everybody else."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest

from tests.cli.many import QuickProgram, shared
from tests.postgres import PASSWORD, Server

Home = Callable[[str], QuickProgram]


@pytest.fixture
def mark() -> str:
    return f"c{uuid.uuid4().hex[:10]}"


@pytest.fixture
def url(postgres: Server) -> str:
    return postgres.schema()


@pytest.fixture
def admin(postgres: Server, url: str, mark: str) -> Iterator[psycopg.Connection]:
    """The administrator's own connection, as in psql: makes the owner of the ledger, and dan, who is in no role."""
    schema = url.rpartition("%3D")[2]
    with psycopg.connect(url, autocommit=True) as raw:
        for name in ("lab", "dan"):
            raw.execute(f"CREATE ROLE {mark}{name} LOGIN PASSWORD 'secret'".encode())
        raw.execute(f"ALTER SCHEMA {schema} OWNER TO {mark}lab".encode())
        yield raw
        raw.execute(f"DROP SCHEMA {schema} CASCADE".encode())
        found = raw.execute("SELECT rolname FROM pg_roles WHERE strpos(rolname, %s) > 0", (mark,)).fetchall()
        for (name,) in found:
            raw.execute(f"DROP OWNED BY {name}; DROP ROLE {name}".encode())


@pytest.fixture
def home(url: str, mark: str, tmp_path: Path) -> Home:
    """The home of the database user of this name, with a password file, as each has it on a computer of their own."""

    def make(name: str) -> QuickProgram:
        place = tmp_path / name
        place.mkdir(exist_ok=True)
        file = place / "pgpass"
        file.write_text(f"*:*:*:{mark}{name}:secret\n")
        file.chmod(0o600)
        theirs = url.replace(f"ada:{quote(PASSWORD, safe='')}", f"{mark}{name}")
        return QuickProgram(place / "home", {"CLOUDGPU_LEDGER": theirs, "PGPASSFILE": str(file)}, shared())

    return make


@pytest.mark.soak
def test_a_lab_from_zero(admin: psycopg.Connection, home: Home, mark: str) -> None:
    words = ["ledger", "init", "--team", "--member", f"{mark}bo", "--payer", f"{mark}eve"]
    words += ["--members-role", f"{mark}members", "--payers-role", f"{mark}payers"]
    first = home("lab")(*words, "-o", "json")
    assert (first.code, first.json["ready"]) == (6, False)
    assert f"  GRANT {mark}members TO {mark}bo;\n" in home("lab")(*words).out
    for one in first.json["missing"]:
        admin.execute(one["statement"].encode())
    admin.execute(f"ALTER ROLE {mark}bo PASSWORD 'secret'; ALTER ROLE {mark}eve PASSWORD 'secret'".encode())
    done = home("lab")(*words, "-o", "json")
    assert (done.code, done.json["ready"], done.json["missing"]) == (0, True, [])
    assert (done.json["members"], done.json["payers"]) == ([f"{mark}bo", f"{mark}eve"], [f"{mark}eve"])

    bo, eve = home("bo"), home("eve")
    assert eve("budget", "set", "all", "--amount", "100", "--period", "month").code == 0
    refused = bo("budget", "rm", "all", "--yes", "-o", "json")
    assert (refused.code, refused.json["error"]["kind"]) == (6, "role_needed")
    assert refused.json["error"]["next"] == f"Ask a payer: {mark}eve."
    checks = {check["name"]: check for check in bo("doctor", "-o", "json").json["checks"]}
    assert checks["team"]["message"] == f"{mark}bo is a member; payers: {mark}eve"
    assert bo("cost", "--verify", "-o", "json").code == 0


@pytest.mark.soak
def test_a_stranger_is_told_the_role_by_every_verb_and_launches_nothing(
    admin: psycopg.Connection, home: Home, mark: str
) -> None:
    roles = ("--members-role", f"{mark}members", "--payers-role", f"{mark}payers")
    for one in home("lab")("ledger", "init", "--team", *roles, "-o", "json").json["missing"]:
        admin.execute(one["statement"].encode())
    assert home("lab")("ledger", "init", "--team", *roles).code == 0
    before = admin.execute("SELECT count(*) FROM line").fetchone()
    dan = home("dan")
    for verb in ("ls", "up --yes --name x", "down x --yes", "cost", "reap", "budget ls", "ledger init --team"):
        said = dan(*verb.split(), "-o", "json")
        assert (verb, said.code, said.json["error"]["kind"]) == (verb, 6, "ledger_denied")
        assert f"{mark}dan lacks the role {mark}members" in said.json["error"]["message"]
        assert f"GRANT {mark}members TO {mark}dan;" in said.json["error"]["next"]
    doctor = dan("doctor", "-o", "json")
    assert doctor.code == 6
    checks = {check["name"]: check["verdict"] for check in doctor.json["checks"]}
    assert (checks["ledger"], checks["account local"]) == ("fail", "ok")
    assert admin.execute("SELECT count(*) FROM line").fetchone() == before


def test_doctor_names_each_thing_that_is_missing(admin: psycopg.Connection, home: Home, mark: str) -> None:
    roles = ("--members-role", f"{mark}members", "--payers-role", f"{mark}payers", "--member", f"{mark}dan")
    for one in home("lab")("ledger", "init", "--team", *roles, "-o", "json").json["missing"]:
        admin.execute(one["statement"].encode())
    assert home("lab")("ledger", "init", "--team", *roles).code == 0
    assert home("lab")("ledger", "init", "--team").code == 0
    admin.execute("ALTER TABLE line DISABLE TRIGGER line_is_by_its_writer")
    admin.execute(f"REVOKE DELETE ON ended_usage FROM {mark}members; DROP ROLE {mark}payers".encode())
    admin.execute(f"ALTER TABLE line OWNER TO {mark}dan".encode())
    doctor = home("dan")("doctor", "-o", "json")
    said = [check["message"] for check in doctor.json["checks"] if check["name"] == "team"]
    assert (doctor.code, said) == (8, [
        f"The role {mark}payers does not exist.",
        f"The role {mark}payers lacks the role {mark}members.",
        f"The role {mark}members lacks DELETE on the table ended_usage.",
        "The guard line_is_by_its_writer was taken off the lines.",
        f"The tables belong to {mark}dan: no rule of the database binds that user, who counts as a payer.",
    ])  # fmt: skip
