"""What `down --all` ends with where not all of it went well: on the fake cloud, in this process."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from cloudgpu.cli.app import run
from cloudgpu.errors import AuthFailed
from tests.control.conftest import Lab


@pytest.fixture
def lab(tmp_path, monkeypatch):
    made = Lab(tmp_path, monkeypatch)
    monkeypatch.setenv("CLOUDGPU_HOME", str(made.home))
    made.clock.now = datetime.now(UTC) - timedelta(hours=1)
    for name in ("fox", "owl"):
        made.up(name=name, key=name)
    made.session.ledger.close()
    return made


def down(capsys, *words):
    capsys.readouterr()
    code = run(["down", "--all", *words, "-o", "json"])
    return code, json.loads(capsys.readouterr().out)


def test_one_whose_end_is_refused_keeps_no_other_one_on_and_is_the_exit_code(lab, capsys):
    lab.cloud.fail_next("terminate", AuthFailed("no"), times=1)
    code, said = down(capsys, "--yes")
    assert (code, len(said["terminated"]), len(said["failed"])) == (AuthFailed.exit_code, 1, 1)


def test_a_region_that_does_not_answer_is_a_fault_though_all_that_is_known_has_ended(lab, capsys):
    lab.cloud.hide("south")
    code, said = down(capsys, "--yes")
    assert (code, len(said["terminated"])) == (8, 2)
    assert "south did not answer" in said["failed"][0]["message"]


def test_nobody_who_says_no_word_ends_anything(lab, capsys):
    code, said = down(capsys)
    assert (code, said["error"]["field"], len(lab.cloud.list().instances)) == (2, "--yes", 2)
