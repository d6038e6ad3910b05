"""A ledger whose lines have another format: every verb refuses it with one sentence, and nothing is launched."""

from __future__ import annotations

import json
import os
import sqlite3
import sys
from contextlib import closing

import pytest

from cloudgpu.testing import FAKE, write_plugin
from tests.cli.many import QuickProgram, shared
from tests.ledger.lines import OTHER_FORMATS

UP = "up --provider fake --gpu v100 --new --yes --no-wait --name".split()


@pytest.mark.parametrize(("body", "sentence", "way"), OTHER_FORMATS, ids=["without", "before", "newer"])
def test_a_ledger_of_another_format_is_refused_by_every_verb_and_nothing_is_launched(tmp_path, body, sentence, way):
    plugin = write_plugin(tmp_path / "plugin", {"fake": FAKE})
    environ = {"PYTHONPATH": os.pathsep.join([*sys.path, str(plugin)])}
    cloudgpu = QuickProgram(tmp_path / "home", environ, shared())
    cloudgpu.config(f'[accounts.lab]\nprovider = "fake"\nstate_file = "{tmp_path}/cloud.json"\n')
    assert cloudgpu(*UP, "fox").code == 0
    file = cloudgpu.home / "ledger" / "ledger.db"
    with closing(sqlite3.connect(file)) as raw, raw:
        raw.execute("DROP TRIGGER line_is_never_changed")
        (stood,) = raw.execute("SELECT body FROM line WHERE seq = 1").fetchone()
        raw.execute(
            "UPDATE line SET body = ? WHERE seq = 1", (body.replace("0123456789abcdef", json.loads(stood)["ledger"]),)
        )
    cloud, lines = (tmp_path / "cloud.json").read_bytes(), file.read_bytes()
    for args in ([*UP, "owl"], ["ls"], ["cost", "--verify"], ["down", "fox", "--yes"], ["reap"]):
        done = cloudgpu(*args, "-o", "json")
        error = json.loads(done.err or done.out)["error"]
        assert (done.code, error["kind"]) == (8, "ledger_unavailable"), args
        assert sentence in error["message"]
        assert str(file) in error["message"]
        assert error["next"].startswith(way)
    assert ((tmp_path / "cloud.json").read_bytes(), file.read_bytes()) == (cloud, lines)
