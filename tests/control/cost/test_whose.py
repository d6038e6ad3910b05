"""Who sees whose machines: two homes on one ledger."""

from __future__ import annotations

import weakref
from decimal import Decimal

import pytest

from cloudgpu.cli.machines.listing import _text
from cloudgpu.control.cost.cost import cost_document
from cloudgpu.control.cost.report import report_document
from cloudgpu.control.inputs.periods import parse_cost
from cloudgpu.control.inventory.listing import list_machines
from cloudgpu.control.inventory.sync import sync_all
from cloudgpu.control.outage.opening import open_session
from cloudgpu.errors import InvalidRequest
from cloudgpu.views.report.html import to_html as html
from cloudgpu.views.report.markdown import to_markdown as markdown
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
    return _text(list_machines(session, mine=mine), session.clock(), lambda: True, mine=mine, me=session.settings.owner)


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
    assert {one["owner"] for one in list_machines(ada)["machines"]} == {ada.settings.owner, bob.settings.owner}


def test_ls_mine_leaves_the_others_out(lab, people, monkeypatch):
    ada, bob = people("ada"), people("bob")
    lab.session = ada
    lab.up(name="amber-fox")
    assert [one["name"] for one in list_machines(ada, mine=True)["machines"]] == ["amber-fox"]
    assert "OWNER" not in shown(ada, mine=True, monkeypatch=monkeypatch)
    assert list_machines(bob, mine=True)["machines"] == []
    assert shown(bob, mine=True, monkeypatch=monkeypatch).startswith("No machine of bob is running")


@pytest.fixture
def spent(lab):
    """A ledger on which Ada's two machines and Bob's one have run."""
    for name, owner, hours in (("amber-fox", "Ada@lab", 1), ("blue-owl", "Ada@lab", 2), ("calm-elk", "bob", 4)):
        lab.up(name=name, owner=owner)
        lab.later(hours=hours)
        sync_all(lab.session)
    return lab.session


def cost_of(session, **asked):
    return cost_document(session, parse_cost(session.settings, session.clock(), **asked))


@pytest.mark.parametrize("more", [{}, {"since": "3h"}, {"by": "day"}], ids=str)
def test_the_owners_parts_add_up_to_what_all_cost(spent, more):
    whole = cost_of(spent, **more)
    parts = [cost_of(spent, owner=owner, **more) for owner in ("ada-lab", "bob")]
    assert sum(Decimal(one["total_usd"]) for one in parts) == Decimal(whole["total_usd"])
    assert [len(one["budgets"]) for one in parts] == [0, 0]
    assert (whole["owner"], parts[1]["owner"]) == (None, "bob")


def test_an_owner_that_the_ledger_does_not_know_is_refused_with_those_that_it_knows(spent):
    with pytest.raises(InvalidRequest, match="No machine in this ledger belongs to 'eve'") as caught:
        cost_of(spent, owner="eve")
    assert caught.value.next == "Owners here: Ada@lab, bob"


@pytest.mark.soak
def test_the_report_says_what_each_person_cost_where_there_is_more_than_one(spent):
    document = report_document(spent)
    assert {one["name"] for one in document["owners"]} == {"Ada@lab", "bob"}
    total = sum(Decimal(one["usd"]) for one in document["owners"])
    assert total == Decimal(document["total"]["usd"])
    assert "| owner " in markdown(document)
    assert "List of owners" in html(document)
    document["owners"] = document["owners"][:1]
    assert "| owner " not in markdown(document)
    assert "List of owners" not in html(document)
