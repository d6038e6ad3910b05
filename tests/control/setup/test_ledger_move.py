"""A ledger that moves takes along what this home did while the old place was away."""

from __future__ import annotations

import fcntl
from contextlib import closing

import pytest

from cloudgpu.control.outage.opening import open_session
from cloudgpu.control.setup import ledger_move as moving
from cloudgpu.control.setup.ledger_move import execute, plan
from cloudgpu.core.events.log import Draft
from cloudgpu.errors import InvalidRequest, LedgerMoved, LedgerUnavailable, ProviderUnavailable
from cloudgpu.ledger.book import Book
from cloudgpu.ledger.log.outbox import Outbox


def test_a_move_does_not_leave_behind_what_another_command_has_at_hand(tmp_path):
    environ = {"CLOUDGPU_HOME": str(tmp_path / "home")}
    session = open_session(environ)
    ledger, config = session.ledger, session.home.config_file
    ledger.settle("It begins.")
    ledger.outbox.add(ledger.id, [Draft("account_synced", "scope:x", {}, session.clock(), "x")])
    url = f"sqlite://{tmp_path}/new.db"
    with ledger.outbox.path.open("rb") as other, closing(plan(session, url)) as wanted:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(ProviderUnavailable, match="another command is recording what was done"):
            execute(session, wanted, environ)
        assert not config.exists()
    with closing(plan(session, url)) as wanted:
        execute(session, wanted, environ)
    assert not ledger.outbox.path.exists()
    now = open_session(environ).ledger
    assert now.location == str(tmp_path / "new.db")
    assert [line.dedupe for line in now.events("scope:x")] == ["x"]


def test_what_the_new_place_refuses_is_reported(tmp_path):
    environ, said = {"CLOUDGPU_HOME": str(tmp_path / "home")}, []
    session = open_session(environ, tell=said.append)
    session.ledger.settle("It begins.")
    nonsense = Draft("instance_observed", "cg-1", {}, session.clock(), "nonsense")
    session.ledger.outbox.add(session.ledger.id, [nonsense])
    with closing(plan(session, f"sqlite://{tmp_path}/new.db")) as wanted:
        execute(session, wanted, environ)
    ((file, _),) = session.ledger.outbox.refused()
    (sentence,) = said
    assert "The ledger refuses 1 line about cg-1: KeyError" in sentence
    assert f"What was refused is kept in {file}." in sentence


class Killed(BaseException):
    """The process ends here."""


STEPS = {
    "the head record": (Book, "record_new_place"),
    "the new place": (Book, "open_here"),
    "what was done": (moving, "_deliver_outbox"),
    "the outbox": (Outbox, "_remove_written"),
    "the settings": (moving, "replace_config"),
}


@pytest.mark.parametrize("first", [True, False], ids=["before", "behind"])
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("has_heard", [True, False], ids=["heard", "unheard"])
def test_whoever_follows_without_the_old_place_and_is_killed_at_any_step_loses_and_doubles_nothing(
    tmp_path, monkeypatch, first, step, has_heard
):
    old, new = (f"sqlite://{tmp_path}/{name}.db" for name in ("old", "new"))
    ada, bob = ({"CLOUDGPU_HOME": str(tmp_path / name)} for name in ("ada", "bob"))
    for home in (ada, bob):
        (tmp_path / home["CLOUDGPU_HOME"]).mkdir()
        (tmp_path / home["CLOUDGPU_HOME"] / "config.toml").write_text(f'ledger = "{old}"\n')
        open_session(home).ledger.append(
            [Draft("account_synced", "scope:x", {}, open_session(home).clock(), home["CLOUDGPU_HOME"])]
        )
    session = open_session(ada)
    with closing(plan(session, new)) as wanted:
        execute(session, wanted, ada)
    if has_heard:
        assert open_session(bob).moved_sentence() is not None
    session.ledger.close()
    for path in tmp_path.glob("old.db*"):
        path.unlink()

    def follow():
        mine = open_session(bob)
        with closing(plan(mine, None if has_heard else new, follow=True)) as wanted:
            execute(mine, wanted, bob)

    mine = open_session(bob)
    mine.ledger.outbox.add(mine.ledger.remembered_id(), [Draft("account_synced", "scope:x", {}, mine.clock(), "waits")])
    where, name = STEPS[step]
    real = getattr(where, name)

    def dies(*args):
        monkeypatch.setattr(where, name, real)
        if not first:
            real(*args)
        raise Killed

    monkeypatch.setattr(where, name, dies)
    with pytest.raises(Killed):
        follow()
    if step != "the settings" or first:
        with pytest.raises((LedgerMoved, LedgerUnavailable)):
            mine.ledger.append([Draft("account_synced", "scope:x", {}, mine.clock(), "never")])
        follow()
    again = open_session(bob)
    with pytest.raises(InvalidRequest, match=r"is at .*new.db already"):
        plan(again, new, follow=True)
    there = again.ledger
    assert there.location == str(tmp_path / "new.db")
    assert [line.dedupe for line in there.events("scope:x")] == [ada["CLOUDGPU_HOME"], bob["CLOUDGPU_HOME"], "waits"]
    assert (there.verify().faults, there.integrity_problem(), there.has_outbox) == ((), None, False)
    assert not (tmp_path / "old.db").exists()


def test_what_is_done_as_this_home_follows_is_told_to_the_new_place_too(tmp_path):
    environ = {"CLOUDGPU_HOME": str(tmp_path / "home")}
    session = open_session(environ)
    session.ledger.settle("It begins.")
    with closing(plan(session, f"sqlite://{tmp_path}/new.db")) as wanted:
        execute(session, wanted, environ)
    late = Draft("account_synced", "scope:x", {}, session.clock(), "late")
    session.ledger.outbox.add(session.ledger.remembered_id(), [late])
    now = open_session(environ).ledger
    assert [line.dedupe for line in now.events("scope:x")] == ["late"]
    assert not now.has_outbox
