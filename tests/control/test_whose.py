"""Who sees whose machines: two homes on one ledger."""

from __future__ import annotations

import weakref

import pytest

from cloudgpu.cli.ls import _text
from cloudgpu.control.session import open_session
from cloudgpu.control.view import listed
from tests.control.conftest import OPENED


@pytest.fixture
def people(lab, tmp_path):
    """Sessions of people on the lab's ledger and cloud, each in a home of their own."""

    def session(name):
        home = tmp_path / name
        home.mkdir(exist_ok=True)
        (home / "config.toml").write_text((lab.home / "config.toml").read_text())
        url = f"sqlite:///{tmp_path}/lab.db"
        one = open_session({"CLOUDGPU_HOME": str(home), "USER": name, "CLOUDGPU_LEDGER": url}, clock=lab.clock)
        one.tell, one.pause = lab.said.append, lab.clock.advance
        OPENED.append(weakref.ref(one))
        return one

    return session


def shown(session, *, mine=False, columns="80", monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    return _text(listed(session, mine=mine), session.clock(), lambda: True, mine=mine, me=session.settings.owner)


def test_ls_says_whose_machines_are_where_one_is_somebody_elses(lab, people, monkeypatch):
    ada, bob = people("ada"), people("bob.with.a.very.long.name@physics.example.org")
    lab.session = ada
    lab.up(name="amber-fox")
    assert "OWNER" not in shown(ada, monkeypatch=monkeypatch), "one person alone sees what is theirs"
    assert "OWNER" in shown(bob, monkeypatch=monkeypatch), "another one's, though all are of one"
    lab.session = bob
    lab.up(name="blue-owl")
    for columns, width in (("60", 82), ("80", 82), ("120", 120)):
        text = shown(ada, columns=columns, monkeypatch=monkeypatch)
        lines = text.splitlines()
        assert lines[0].split()[:2] == ["NAME", "OWNER"]
        assert max(map(len, lines)) <= width, text
        assert "bob.with" in text
    assert {one["owner"] for one in listed(ada)["machines"]} == {ada.settings.owner, bob.settings.owner}


def test_ls_mine_leaves_the_others_out(lab, people, monkeypatch):
    ada, bob = people("ada"), people("bob")
    lab.session = ada
    lab.up(name="amber-fox")
    assert [one["name"] for one in listed(ada, mine=True)["machines"]] == ["amber-fox"]
    assert "OWNER" not in shown(ada, mine=True, monkeypatch=monkeypatch)
    assert listed(bob, mine=True)["machines"] == []
    assert shown(bob, mine=True, monkeypatch=monkeypatch).startswith("No machine of bob is running")
