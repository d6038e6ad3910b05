"""`cloudgpu ledger` by its command line, and one ledger in PostgreSQL that two laptops share."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from tests.cli.many import QuickProgram, shared
from tests.cli.program import Program
from tests.postgres import PASSWORD, Server


@pytest.fixture
def used(tmp_path: Path) -> Program:
    """A home whose ledger has lines."""
    program = QuickProgram(tmp_path / "home", many=shared())
    program("ls", "--refresh")
    return program


def test_a_backup_and_its_return(used: Program, tmp_path: Path) -> None:
    file = tmp_path / "copy"
    made = used("ledger", "backup", str(file), "-o", "json")
    assert made.code == 0, made.err
    assert made.json.keys() == {"file", "bytes", "ledger", "lines", "recorded_at"}
    assert (made.json["bytes"], stat.S_IMODE(file.stat().st_mode)) == (file.stat().st_size, 0o600)
    used("ls", "--refresh")
    used("ls", "--refresh")
    asked = used("ledger", "restore", str(file))
    assert (asked.code, "--yes" in asked.err) == (2, True)
    older = used("ledger", "restore", str(file), "--yes", "-o", "json")
    assert (older.code, older.json["error"]["field"]) == (2, "FILE")
    done = used("ledger", "restore", str(file), "--yes", "--even-if-older")
    assert done.code == 0, done.err
    assert "cloudgpu cost --verify --yes" in done.out
    assert Path(done.out.split("set aside: ")[1].splitlines()[0]).stat().st_size > 0
    refused = used("up", "--yes", "-o", "json")
    assert (refused.code, refused.json["error"]["kind"]) == (8, "ledger_unavailable")
    assert used("cost", "--verify", "--yes").code == 0
    assert used("up", "--dry-run", "-o", "json").code == 0


def test_bad_input_is_told_and_changes_nothing(used: Program, tmp_path: Path) -> None:
    before = used("ls", "-o", "json").json
    (tmp_path / "text").write_text("hello")
    for words in (("backup", "text"), ("restore", "text"), ("restore", "nowhere"), ("backup", "no/where")):
        done = used("ledger", words[0], str(tmp_path / words[1]), "--yes", "-o", "json")
        assert (done.code, done.json["error"]["field"]) == (2, "FILE")
        assert done.json["error"]["next"]
    assert used("ledger", "mend", "x").code == 2
    assert used("ls", "-o", "json").json == before


def test_two_laptops_share_a_ledger_in_postgresql(postgres: Server, tmp_path: Path) -> None:
    environ = {"CLOUDGPU_LEDGER": postgres.schema()}
    ada, bob = (QuickProgram(tmp_path / name / "home", environ, shared()) for name in ("ada", "bob"))
    try:
        up = ada("up", "--yes", "--name", "shared", "--no-wait", "-o", "json")
        assert up.code == 0, up.err
        (seen,) = bob.machines()
        assert (seen["name"], seen["state"]) == ("shared", up.json["machine"]["state"])
        assert bob("cost", "--verify", "-o", "json").json["lines"] > 3
    finally:
        down = ada("down", "--all", "--yes", timeout=120)
    assert down.code == 0, down.err
    assert bob.machines() == []
    wrong = Program(tmp_path / "eve" / "home", {"CLOUDGPU_LEDGER": postgres.url(port=1)})("ls", "-o", "json")
    assert (wrong.code, wrong.json["error"]["kind"]) == (8, "ledger_unavailable")
    assert PASSWORD not in wrong.out + wrong.err
