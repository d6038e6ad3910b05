"""The ledger's server is down: what every verb says, and with which exit code."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloudgpu.testing import FAKE, write_plugin
from tests.cli.many import QuickProgram, shared
from tests.cli.program import until
from tests.postgres import Server

READING = (("ls",), ("show", "fox"), ("budget", "ls"))
MORE = (("ls", "--refresh"), ("cost",), ("orphans",), ("watch", "--status"), ("reap",), ("compare",), ("volume", "ls"))
SPENDING = (("start", "fox", "--yes"), ("up", "--provider", "fake", "--gpu", "v100", "--new", "--yes", "--no-wait"))


@pytest.fixture
def lab(tmp_path: Path, postgres: Server) -> Iterator[QuickProgram]:
    plugin = write_plugin(tmp_path / "plugin", {"fake": FAKE})
    environ = {"PYTHONPATH": os.pathsep.join([*sys.path, str(plugin)]), "LOGNAME": "ada"}
    program = QuickProgram(tmp_path / "home", environ, shared())
    cloud = tmp_path / "cloud.json"
    program.config(f'ledger = "{postgres.schema()}"\n[accounts.lab]\nprovider = "fake"\nstate_file = "{cloud}"\n')
    (program.home / "config.toml").chmod(0o600)
    up = ("up", "--provider", "fake", "--gpu", "v100", "--name", "fox", "--yes", "--no-wait")
    assert program(*up).code == 0
    program.cloud = lambda: json.loads(cloud.read_text())["machines"]
    postgres.kill()
    try:
        yield program
    finally:
        if postgres.is_down:
            postgres.start()


@pytest.mark.parametrize("verbs", [(*READING, *SPENDING), pytest.param(MORE, marks=pytest.mark.soak)])
def test_reading_verbs_say_that_nothing_is_known_and_spending_ones_refuse(
    lab: QuickProgram, verbs: tuple[tuple[str, ...], ...]
) -> None:
    for words in verbs:
        done = lab(*words)
        assert (done.code, done.out) == (8, ""), words
        assert "cannot be reached" in " ".join(done.err.split()), words
        assert "Free some space" not in done.err
    assert "What it holds is not known now" in " ".join(lab("ls").err.split())
    assert len(lab.cloud()) == 1
    cron_show(lab)
    doctor(lab)


def cron_show(lab: QuickProgram) -> None:
    """It says that the last pass is not known."""
    said = lab("cron", "show")
    assert said.code == 8
    assert "The time of the last run is not known." in said.out
    assert "The reaper has not run yet" not in said.out
    found = lab("cron", "show", "-o", "json")
    assert (found.code, found.json["last_run"]) == (8, None)
    assert found.json["unanswered"][0]["scope"] == "ledger"


def doctor(lab: QuickProgram) -> None:
    """It names the ledger and goes on with the rest."""
    done = lab("doctor", "-o", "json")
    assert done.code == 8
    checks = {one["name"]: one["verdict"] for one in done.json["checks"]}
    assert checks["ledger"] == "fail"
    assert checks["account lab"] == "ok"


def test_stop_and_down_end_it_and_the_next_command_tells_the_ledger(lab: QuickProgram, postgres: Server) -> None:
    stop = lab("stop", "fox", "--yes", "-o", "json")
    assert stop.code == 8
    assert stop.json["error"]["message"].startswith(
        "fox is stopped and not billed, but the ledger does not know it yet"
    )
    assert [one["requested"] for one in lab.cloud()] == ["stopped"]
    down = lab("down", "--all", "--yes", "-o", "json")
    assert down.code == 8
    assert "fox was ended and nothing of it is left" in down.out
    postgres.start()
    back = lab("ls", "-o", "json")
    assert (back.code, back.json["machines"]) == (0, [])
    assert "the ledger is back" in back.err
    history = lab("show", "fox", "--history", "-o", "json").json["history"]
    kinds = [line["kind"] for line in history]
    assert [kinds.count(one) for one in ("stop_requested", "terminate_requested")] == [1, 1]


@pytest.mark.soak
def test_watch_starts_without_the_ledger_says_so_once_and_goes_on_when_it_is_back(
    lab: QuickProgram, postgres: Server, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    with log.open("wb") as file:
        command = lab.argv("watch", "--every", "1s", "--prices", "never")
        watch = subprocess.Popen(command, env=lab.env(), stderr=file)
    try:
        until(lambda: "tried again" in log.read_text())
        assert log.read_text().count("cannot be reached") == 1, log.read_text()
        postgres.start()
        assert until(lambda: lab("cron", "show", "-o", "json").json["last_run"], within_s=40), log.read_text()
    finally:
        watch.send_signal(signal.SIGTERM)
        watch.wait(30)
