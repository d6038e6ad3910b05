"""The ledger has moved and its old server is gone: who is told what, what ends all the same, and how a home follows."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cloudgpu.testing import FAKE, write_plugin
from tests.cli.many import QuickProgram, shared
from tests.postgres import PASSWORD, Server

UP = ("up", "--provider", "fake", "--gpu", "v100", "--new", "--yes", "--no-wait", "--name")


@pytest.fixture
def lab(tmp_path: Path, postgres: Server) -> Iterator[Callable[..., QuickProgram]]:
    """Homes on one ledger in PostgreSQL, and one cloud; the server comes back at the end."""
    url, plugin = postgres.schema(), write_plugin(tmp_path / "plugin", {"fake": FAKE})

    def home(name: str, *machines: str) -> QuickProgram:
        environ = {"PYTHONPATH": os.pathsep.join([*sys.path, str(plugin)]), "LOGNAME": name}
        program = QuickProgram(tmp_path / name / "home", environ, shared())
        cloud = f'[accounts.lab]\nprovider = "fake"\nstate_file = "{tmp_path}/cloud.json"\n'
        program.config(f'ledger = "{url}"\n{cloud}')
        (program.home / "config.toml").chmod(0o600)
        for machine in machines:
            assert program(*UP, machine).code == 0
        return program

    yield home
    if postgres.is_down:
        postgres.start()


def running(home: QuickProgram) -> set[str]:
    """The machines that run at the cloud; the new ledger hears by this look what it was not told."""
    machines = home("ls", "--refresh", "-o", "json").json["machines"]
    return {one["name"] for one in machines if one["state"] == "running"}


def flat(text: str) -> str:
    return " ".join(text.split())


def test_homes_follow_a_ledger_whose_old_server_is_gone_and_end_what_they_must_meanwhile(
    lab: Callable[..., QuickProgram], postgres: Server, tmp_path: Path
) -> None:
    new = f"sqlite:///{tmp_path}/new.db"
    ada, bob, cy = lab("ada", "ant"), lab("bob", "bat", "bee"), lab("cy", "cat")
    assert ada("ledger", "move", new, "--yes").code == 0
    assert bob("ls").code == 0, "he has heard of it"
    postgres.kill()
    for words, code in (("ls", 8), ("reap", 2), ("watch", 2), ("stop bat --yes", 8), ("down bee --yes", 8)):
        said = bob(*words.split())
        assert said.code == code, words
        assert f"moved to {new} on " in flat(said.err), words
        assert "cloudgpu ledger move --follow" in flat(said.err), words
        assert PASSWORD not in said.out + said.err
        assert "ledger is back" not in said.err, "it does not come back"
    assert running(ada) == {"ant", "cat"}
    assert cy("down", "--all", "--yes").code == 8
    assert running(ada) == {"ant"}
    done = bob("ledger", "move", "--follow", "-o", "json")
    assert (done.code, done.json["followed"], done.json["to"]) == (0, True, new), done.err
    unheard = cy("ledger", "move", "--follow")
    assert (unheard.code, "cloudgpu ledger move URL --follow" in flat(unheard.err)) == (8, True)
    assert "URL --follow" in flat(cy("ledger", "move", new, "--yes").err)
    assert cy("ledger", "move", new, "--follow").code == 0
    for home in (bob, cy):
        rows = {one["name"]: one for one in home("ls", "--all", "-o", "json").json["machines"]}
        states = [rows[name]["state"] for name in ("bat", "bee", "cat")]
        assert states == ["stopped", "terminated", "terminated"]
        assert not list((home.home / "ledger").glob("*.outbox"))
    lines = ada("show", "bee", "--history", "-o", "json").json["history"]
    assert [one["kind"] for one in lines].count("terminate_requested") == 1
    assert ada("cost", "--verify").code == 0
    postgres.start()
    assert bob("reap").code == 0
