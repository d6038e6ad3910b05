"""Lines that the ledger refuses when it is back: they are kept, and keep no other back."""

from __future__ import annotations

import stat
from dataclasses import replace

import psycopg
import pytest
from psycopg import sql

from cloudgpu.control.setup.doctor import examine
from cloudgpu.core.events.log import Draft
from cloudgpu.core.events.machine_events import requested
from cloudgpu.core.events.observations import instance_observed
from cloudgpu.core.model.instances import State
from cloudgpu.ledger.log.outbox import Outbox, _hash
from tests.control.team.test_authorization_postgres import team  # noqa: F401  (a fixture)


def stopped(lab, name):
    """The lines of a stop that was carried out without the ledger."""
    row = lab.session.find(name)
    lab.cloud.stop(row.provider_id)
    lab.later(minutes=5)
    ask = requested("stop", row.id, "over", lab.clock(), host="here", who={})
    return [ask, instance_observed(lab.cloud.get(row.provider_id), lab.clock())]


def nonsense(lab, name):
    """A line of which no ledger can make sense: it says nothing of the machine that it is about."""
    return Draft("instance_observed", lab.session.find(name).id, {}, lab.clock(), f"nonsense:{name}")


def box(lab):
    return lab.session.ledger.outbox


def kept(lab):
    ((path, lines),) = box(lab).refused()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    return [(one.kind, one.subject, why) for one, why in lines]


@pytest.fixture
def two(lab):
    """Two machines that were stopped without the ledger, and a line about the first that it cannot take."""
    fox, owl = (lab.up(name=name, new=True).machine.id for name in ("fox", "owl"))
    bad, first, second = nonsense(lab, "fox"), stopped(lab, "fox"), stopped(lab, "owl")
    box(lab).add(lab.session.ledger.id, [first[0], second[0], bad, first[1], second[1]])
    return fox, owl


def test_a_line_that_is_refused_is_set_aside_with_the_later_ones_of_its_machine_alone(lab, two):
    fox, owl = two
    session = lab.opened()
    (said,) = (one for one in lab.said if "refuses" in one)
    assert "The ledger refuses 2 lines about fox: KeyError" in said
    assert "the ledger is back: 3 lines about what was done meanwhile were written" in lab.said
    assert (session.find("owl").state, session.find("fox").pending_action) == ("stopped", "stop")
    assert not session.ledger.has_outbox
    assert [(kind, one) for kind, one, _ in kept(lab)] == [("instance_observed", fox)] * 2
    assert "after a line of the kind instance_observed" in kept(lab)[1][2]
    lab.said.clear()
    session = lab.opened()
    assert lab.said == [], "it is said once"
    environ = {"CLOUDGPU_HOME": str(lab.home), "USER": "ada"}
    (check,) = (one for one in examine(environ, clock=lab.clock) if one.name == "ledger")
    assert (check.verdict.value, "2 lines about fox" in check.message) == ("warn", True)
    assert "ls --refresh" in check.next
    assert [line.kind for line in session.ledger.events(owl)][-2:] == ["stop_requested", "instance_observed"]


def test_a_file_that_cannot_be_read_keeps_no_other_outbox_back_and_doctor_goes_on(lab):
    """Somebody else's files may be among ours, after a command by root for example."""
    lab.up(name="fox")
    box(lab).add(lab.session.ledger.id, stopped(lab, "fox"))
    for name in ("another.outbox", "another.refused"):
        box(lab).path.with_name(name).mkdir()
    session = lab.opened()
    assert session.find("fox").state == State.STOPPED
    (said,) = (one for one in lab.said if "still waits" in one)
    assert f"still waits in {box(lab).path.with_name('another.outbox')}" in said
    environ = {"CLOUDGPU_HOME": str(lab.home), "USER": "ada"}
    box(lab).path.with_name("another.outbox").rmdir()
    (check,) = (one for one in examine(environ, clock=lab.clock) if one.name == "ledger")
    assert (check.verdict.value, "another.refused cannot be read" in check.message) == ("warn", True)


def test_a_crash_before_the_outbox_is_emptied_writes_and_keeps_nothing_twice(lab, two, monkeypatch):
    _, owl = two

    def dies(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Outbox, "_remove_written", dies)
        with pytest.raises(KeyboardInterrupt):
            lab.opened()
    session = lab.opened()
    assert len(kept(lab)) == 2
    kinds = [line.kind for line in session.ledger.events(owl)]
    assert (kinds.count("stop_requested"), session.find("owl").state) == (1, "stopped")
    assert not session.ledger.has_outbox


def test_a_line_of_a_newer_version_waits_for_one_that_can_read_it(lab):
    lab.up(name="fox")
    first, second = stopped(lab, "fox")
    box(lab).add(lab.session.ledger.id, [first])
    newer = Outbox(box(lab).path.with_suffix(".newer"))
    newer.add(lab.session.ledger.id, [replace(second, subject="?")])
    text = newer.path.read_text().partition(" ")[2].replace('"subject":"?"', '"whom":"?"').strip()
    newer.path.unlink()
    with box(lab).path.open("a") as file:
        file.write(f"{_hash(text)} {text}\n")
    session = lab.opened()
    assert session.find("fox").pending_action == "stop"
    assert text in box(lab).path.read_text()
    environ = {"CLOUDGPU_HOME": str(lab.home), "USER": "ada"}
    (check,) = (one for one in examine(environ, clock=lab.clock) if one.name == "ledger")
    assert "a newer cloudgpu has written them" in check.message


def own(bo, latest):
    """Have bo's next command ask the database as bo, not as whoever joined last."""
    bo.url = bo.url.replace(f"{latest.user}:", f"{bo.user}:")
    return bo


@pytest.mark.soak
def test_what_the_database_refuses_a_member_keeps_no_stop_back(team):  # noqa: F811
    bo = own(team["bo"], team["pia"])
    lines = stopped(bo, "bos")
    payers = Draft("budget_set", "budgets", {"name": "mine"}, bo.clock(), "budget_set:mine")
    unwritable = replace(lines[0], dedupe="stop\0asked")
    box(bo).add(bo.session.ledger.id, [payers, *lines, unwritable])
    session = bo.opened()
    assert session.find("bos").state == State.STOPPED
    assert [kind for kind, _, _ in kept(bo)] == ["budget_set", "stop_requested"]
    assert "needs the payer's role" in kept(bo)[0][2]


def test_whoever_may_write_no_line_at_all_has_all_of_them_wait(team, postgres):  # noqa: F811
    bo = own(team["bo"], team["pia"])
    box(bo).add(bo.session.ledger.id, stopped(bo, "bos"))
    user, members = sql.Identifier(bo.user), sql.Identifier(f"{bo.user.removesuffix('bo')}members")
    with psycopg.connect(postgres.url(), autocommit=True) as raw:
        raw.execute(sql.SQL("REVOKE {} FROM {}").format(members, user))
        bo.opened()
        assert any("still waits" in one for one in bo.said)
        assert len(box(bo).waiting(bo.session.ledger.remembered_id())) == 2
        raw.execute(sql.SQL("GRANT {} TO {}").format(members, user))
    session = bo.opened()
    assert (session.find("bos").state, box(bo).refused()) == (State.STOPPED, [])
