"""`cloudgpu ledger` by its command line, and one ledger in PostgreSQL that two laptops share."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from cloudgpu.control.outage.opening import open_session
from cloudgpu.core.values.naming import lock_name
from tests.cli.many import QuickProgram, shared
from tests.cli.program import Program
from tests.postgres import PASSWORD, Server


@pytest.fixture
def used(tmp_path: Path) -> Program:
    """A home whose ledger has lines."""
    program = QuickProgram(tmp_path / "home", many=shared())
    program("ls", "--refresh")
    return program


@pytest.mark.soak
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


@pytest.mark.soak
def test_bad_input_is_told_and_changes_nothing(used: Program, tmp_path: Path) -> None:
    before = used("ls", "-o", "json").json
    (tmp_path / "text").write_text("hello")
    for words in (("backup", "text"), ("restore", "text"), ("restore", "nowhere"), ("backup", "no/where")):
        done = used("ledger", words[0], str(tmp_path / words[1]), "--yes", "-o", "json")
        assert (done.code, done.json["error"]["field"]) == (2, "FILE")
        assert done.json["error"]["next"]
    assert used("ledger", "mend", "x").code == 2
    assert used("ls", "-o", "json").json == before


@pytest.mark.soak
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


@pytest.mark.soak
def test_a_ledger_moves_to_postgresql_and_a_second_home_follows(
    used: Program, postgres: Server, tmp_path: Path
) -> None:
    url, old = postgres.schema(), f"sqlite://{used.home}/ledger/ledger.db"
    bob = QuickProgram(tmp_path / "bob" / "home", many=shared())
    bob.config(f'owner = "bob"  # me\nledger = "{old}"\n')
    lines = used("cost", "--verify", "-o", "json").json["lines"]
    assert used("ledger", "move", url).code == 2
    done = used("ledger", "move", url, "--yes", "-o", "json")
    assert done.code == 0, done.err
    assert (done.json["lines"], done.json["followed"], done.json["notes"]) == (lines + 2, False, [])
    assert PASSWORD not in done.out + done.err
    assert stat.S_IMODE((used.home / "config.toml").stat().st_mode) == 0o600
    assert used("ls", "--refresh").code == 0
    assert used("cost", "--verify", "-o", "json").json["lines"] > lines + 2
    for words in (
        "reap",
        "down --all --yes",
        "up --yes",
        "ls --refresh",
        "watch",
        "reap --dry-run",
        "budget set x --amount 1 --period day",
    ):
        said = bob(*words.split())
        assert (said.code, "Nothing is written here any more" in said.err) == (2, True), words
        assert "cloudgpu ledger move --follow" in said.err
    assert PASSWORD not in said.err
    seen = bob("ls")
    assert (seen.code, "moved to postgresql://127.0.0.1" in seen.err) == (0, True)
    unknown = bob("ledger", "move", "--follow", "-o", "json")
    assert (unknown.code, unknown.json["error"]["kind"]) == (6, "ledger_denied"), "he has no password yet"
    followed = bob("ledger", "move", url, "-o", "json")
    assert (followed.code, followed.json["followed"]) == (0, True), followed.err
    assert (bob.home / "config.toml").read_text() == f'owner = "bob"  # me\nledger = "{url}"\n'
    assert bob("ls", "--refresh").code == 0
    assert bob("cost", "--verify").code == 0


@pytest.mark.soak
def test_a_ledger_is_not_moved_under_a_command_that_is_at_work(used: Program, tmp_path: Path) -> None:
    assert used("up", "--yes", "--name", "otter", "--no-wait").code == 0
    session = open_session({"CLOUDGPU_HOME": str(used.home)})
    row = session.find("otter")
    url = f"sqlite://{tmp_path}/new/ledger.db"
    with session.lock(lock_name(row.key), wait=1):
        busy = used("ledger", "move", url, "--yes")
        assert (busy.code, "at work on otter" in busy.err) == (8, True)
        assert session.ledger.moved() is None
    session.ledger.close()
    assert used("ledger", "move", url, "--yes").code == 0
    assert used("down", "otter", "--yes").code == 0


def test_a_move_says_what_still_names_the_old_place(used: Program, tmp_path: Path) -> None:
    old, new = f"sqlite://{used.home}/ledger/ledger.db", f"sqlite:///{tmp_path}/new.db"
    used.config(f'ledger = "{old}"\n')
    programs = tmp_path / "bin"
    programs.mkdir()
    line = f"0 * * * * CLOUDGPU_HOME={used.home} CLOUDGPU_LEDGER={old} /bin/cloudgpu reap"
    (programs / "crontab").write_text(f"#!/bin/sh\necho '{line}'\n")
    (programs / "crontab").chmod(0o755)
    used.environ |= {"CLOUDGPU_LEDGER": old, "PATH": f"{programs}:/usr/bin:/bin"}
    done = used("ledger", "move", new, "--yes", "-o", "json").json
    assert (done["to"], done["config"]) == (new, str(used.home / "config.toml"))
    in_shell, in_crontab = done["notes"]
    assert "CLOUDGPU_LEDGER is set in this shell" in in_shell
    assert "unset it" in in_shell
    assert in_crontab.endswith(line.replace(old, f"{used.home}/ledger/ledger.db"))
    (stale,) = used("cron", "show", "-o", "json").json["stale"]
    assert stale["why"].endswith("/bin/cloudgpu is not there") or "has moved to" in stale["why"]


@pytest.mark.soak
def test_a_home_that_has_a_ledger_takes_no_empty_one_for_it(used: Program, postgres: Server, tmp_path: Path) -> None:
    config = (used.home / "config.toml").read_text() if (used.home / "config.toml").exists() else ""
    used.environ["CLOUDGPU_LEDGER"] = postgres.schema()
    used.config(config)
    for words in ("reap", "down --all --yes"):
        said = used(*words.split())
        assert (said.code, "Check CLOUDGPU_LEDGER" in said.err) == (2, True), words
    del used.environ["CLOUDGPU_LEDGER"]
    used.config(f"ledger = 'sqlite://{tmp_path}/typo.db'\n{config}")
    said = used("reap")
    assert (said.code, "Check ledger in config.toml" in said.err) == (2, True)
    used.config(config)
    assert used("reap").code == 0


@pytest.mark.soak
def test_where_there_never_was_a_ledger_no_answer_says_that_all_is_well(tmp_path: Path) -> None:
    program = QuickProgram(tmp_path / "typo", many=shared())
    elsewhere = QuickProgram(tmp_path / "new", {"CLOUDGPU_LEDGER": f"sqlite://{tmp_path}/typo.db"}, shared())
    elsewhere.config("")
    for words in ("reap", "reap --dry-run", "watch", "down --all --yes", "cost --verify"):
        said = program(*words.split())
        assert (said.code, "never was one" in said.err, "Check CLOUDGPU_HOME" in said.err) == (2, True, True), words
        said = elsewhere(*words.split())
        assert (said.code, "Check CLOUDGPU_LEDGER" in said.err) == (2, True), words
    assert not program.home.exists()
    assert program("ls").code == 0
    assert program("up", "--dry-run").code == 0
    assert program("ls", "--refresh").code == 0
    for words in ("reap", "down --all --yes"):  # looking has begun a ledger, and nothing is kept there all the same
        said = program(*words.split())
        assert (said.code, "Nothing was ever launched from" in said.err) == (2, True), words
    program.config("")
    assert program("reap").code == 0, "who has a config.toml has begun here"
