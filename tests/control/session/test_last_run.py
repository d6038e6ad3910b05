"""Every verb says in one line that nothing looks after the machines any more: no sooner than 26 hours, and cheaply."""

from __future__ import annotations

import platform

from cloudgpu.control.lifecycle.lifecycle import terminate_one
from cloudgpu.control.outage.opening import open_session
from cloudgpu.control.reaper.reaper import ReapOptions, reap
from cloudgpu.control.session.last_run import are_runs_current, overdue_sentence, read_last_run, totals_after_run
from cloudgpu.control.setup.guards import guard_checks
from cloudgpu.core.events.log import Draft


def passed(lab, *, ok=True, sweep=False):
    """A pass ends now, as the reaper writes it."""
    now = lab.clock()
    body = {"verb": "reap", "ok": ok, "sweep": sweep}
    body["ok_at"], body["sweep_at"] = totals_after_run(lab.session, ok=ok, sweep=sweep, now=now)[:2]
    lab.session.ledger.append([Draft("reap_finished", "reaper", body, now, f"pass:{lab.session.ledger.head()[0]}")])


def test_nothing_is_said_where_no_machine_was_ever_launched(lab):
    lab.later(hours=1000)
    assert overdue_sentence(lab.session) is None


def test_nothing_is_said_within_26_hours_of_the_first_launch(lab):
    lab.up()
    lab.later(hours=25, minutes=59)
    assert overdue_sentence(lab.session) is None
    lab.later(minutes=1)
    said = overdue_sentence(lab.session)
    assert said is not None
    assert said.startswith("No run of the reaper has succeeded yet, and a machine runs")
    assert "cloudgpu cron install" in said


def test_nothing_is_said_where_nothing_runs(lab):
    lab.up()
    lab.later(hours=30)
    assert overdue_sentence(lab.session)
    terminate_one(lab.session, lab.session.find(None), why="test")
    assert overdue_sentence(lab.session) is None


def test_a_pass_that_succeeded_is_good_for_26_hours(lab):
    lab.up()
    lab.later(hours=30)
    passed(lab)
    lab.later(hours=25, minutes=59)
    assert overdue_sentence(lab.session) is None
    lab.later(minutes=1)
    assert "No run of the reaper has succeeded for 1d 2h, and a machine runs" in str(overdue_sentence(lab.session))


def test_a_computer_that_fell_silent_is_named_though_another_one_makes_its_passes(lab, tmp_path):
    """Of two computers with accounts of their own, the passes of one hid that the other had made none for days."""
    row = lab.up().machine
    tower = tmp_path / "tower"
    tower.mkdir()
    table = f'provider = "fake"\n[accounts.tower]\nprovider = "fake"\nstate_file = "{tmp_path / "tower.json"}"\n'
    (tower / "config.toml").write_text(table)
    url = f"sqlite:///{lab.session.ledger.location}"
    other = {"CLOUDGPU_HOME": str(tower), "CLOUDGPU_LEDGER": url, "USER": "bob"}
    reap(lab.opened(), ReapOptions(cron=True))
    for _ in range(2):
        lab.later(hours=12)
        assert overdue_sentence(lab.session) is None
        reap(open_session(other, clock=lab.clock), ReapOptions(cron=True))
    lab.later(hours=6)
    assert str(overdue_sentence(lab.session)).startswith(
        f"{platform.node()} has made no run of the reaper for 1d 6h, and no other computer checks {row.name}"
    )
    (check,) = guard_checks(lab.session, ["lab"], {"PATH": ""})
    assert f"{platform.node()} has made no run of the reaper for 1d 6h" in check.message
    assert "a run succeeded" not in check.message
    reap(lab.opened(), ReapOptions(cron=True))
    assert overdue_sentence(lab.session) is None


def test_a_pass_by_a_clock_that_is_far_ahead_is_not_one_of_now(lab):
    lab.up()
    lab.later(days=300)
    passed(lab)
    assert are_runs_current(lab.session.ledger, lab.clock())
    lab.later(days=-290)
    assert not are_runs_current(lab.session.ledger, lab.clock())
    assert overdue_sentence(lab.session)


def test_passes_that_fail_do_not_count_and_the_way_out_is_another(lab):
    lab.up()
    passed(lab)
    for _ in range(30):
        lab.later(hours=1)
        passed(lab, ok=False)
    said = str(overdue_sentence(lab.session))
    assert "No run of the reaper has succeeded for 1d 6h" in said
    assert "the last one failed 0s ago" in said
    assert "cloudgpu reap --dry-run" in said


def test_the_last_line_alone_says_what_those_before_it_said(lab):
    lab.up()
    passed(lab, sweep=True)
    swept = lab.clock()
    lab.later(hours=1)
    passed(lab)
    succeeded = lab.clock()
    lab.later(hours=1)
    passed(lab, ok=False, sweep=True)
    found = read_last_run(lab.session.ledger)
    assert (found.ok, found.at, found.ok_at, found.sweep_at) == (False, lab.clock(), succeeded, swept)


def test_one_line_is_read_however_many_passes_there_were(lab, monkeypatch):
    for _ in range(50):
        passed(lab)
    ledger = lab.session.ledger
    read = []
    monkeypatch.setattr(type(ledger), "events", lambda *_: read.append(1) or iter(()))
    assert read_last_run(ledger).ok
    assert read == []


def test_a_pass_of_a_clock_that_was_far_ahead_is_good_for_nothing(lab):
    lab.up()
    lab.later(days=400)
    passed(lab)
    lab.later(days=-398)
    said = overdue_sentence(lab.session)
    assert said is not None
    assert said.startswith("No run of the reaper has succeeded since the clock was set back, and a machine runs")
    assert "cloudgpu cron install" in said  # and not that the last one failed just now
