"""Passes over machines that nobody reaches over SSH: what ends them is their times, their schedules, their state."""

from __future__ import annotations

import os
from datetime import timedelta

from cloudgpu.control.inventory.sync import sync_all
from cloudgpu.control.lifecycle.lease import set_lease
from cloudgpu.control.lifecycle.lifecycle import stop
from cloudgpu.control.lifecycle.parking import park
from cloudgpu.control.outage.opening import open_session
from cloudgpu.control.policies.resolve import policies_of
from cloudgpu.control.reaper.observe import split_by_current_record, view_without_report
from cloudgpu.control.reaper.reaper import ReapOptions, reap
from cloudgpu.control.resources.named import save_image
from cloudgpu.core.launch.plan import Lease
from cloudgpu.core.policies.policy import ReaperAction, Rule
from cloudgpu.core.reaper.decide import decide
from cloudgpu.core.reaper.result import OTHER_NODE_STAYS, EndItem, lock_of
from cloudgpu.errors import AuthFailed
from tests.control.conftest import Lab


def policy(lab: Lab, text: str) -> None:
    place = lab.session.home.policies / "default.yaml"
    place.parent.mkdir(exist_ok=True)
    place.write_text(text)


def passed(lab: Lab, *, sweep=False, max_stops=20, **span):
    lab.later(**span)
    return reap(lab.session, ReapOptions(sweep=sweep, max_stops=max_stops))


def warned(found):
    return [(one.name, one.rule) for one in found.warned]


def ends(found):
    return [(one.name, one.do, one.rule, one.now) for one in found.ended]


def machine(lab: Lab):
    return lab.session.ledger.machines()[0]


def test_at_most_so_many_are_stopped_in_a_pass_and_the_rest_wait(lab):
    for number in range(3):
        made = lab.up(name=f"fox-{number}", key=f"k{number}").machine
        lab.cloud.shut_down(made.provider_id)
    assert len(passed(lab, max_stops=2, minutes=5).ended) == 2
    assert len(passed(lab, minutes=5).ended) == 1
    assert lab.machines() == []


def test_a_stop_that_is_refused_is_named_and_is_exit_code_9(lab):
    lab.cloud.shut_down(lab.up(name="fox").machine.provider_id)
    lab.cloud.fail_next("stop_many", AuthFailed("no"), times=9)
    found = passed(lab, minutes=5)
    assert ([one.name for one in found.unconfirmed], found.exit_code) == (["fox"], 9)


def test_a_region_that_does_not_answer_is_named_and_is_exit_code_8(lab):
    lab.cloud.hide("south")
    found = passed(lab)
    assert ([one.scope for one in found.unanswered], found.exit_code) == (["south"], 8)


def test_a_warning_that_holds_no_more_is_taken_back(lab):
    lab.up(name="fox")
    assert warned(passed(lab, days=2, hours=23, minutes=50)) == [("fox", Rule.RENEW_UNTIL)]
    later = lab.clock() + timedelta(days=2)
    set_lease(lab.session, machine(lab), Lease(later, later), "a test")
    passed(lab)
    assert machine(lab).warnings == {}


def test_the_image_of_a_parked_machine_is_made_by_the_passes_that_follow(lab):
    lab.up(name="fox", spot=True)
    park(lab.session, machine(lab), why="a test", finish=False)
    assert (machine(lab).parked, [one.kind for one in machine(lab).retained if one.kind == "image"]) == (True, [])
    for _ in range(3):
        passed(lab, minutes=10)
    assert [(one.kind, one.ready) for one in machine(lab).retained] == [("image", True)]


def test_a_sweep_warns_of_an_image_that_is_kept_too_long_and_removes_it_a_day_after(lab):
    policy(lab, "lease: 8h\nrenew_until: 96h\nimages:\n  after: 1h\n  do: remove\n")
    lab.up(name="fox")
    save_image(lab.session, machine(lab), "kept")
    assert passed(lab, hours=2).warned == ()
    assert warned(passed(lab, sweep=True)) == [("kept", Rule.IMAGES)]
    assert ("kept", ReaperAction.REMOVE, Rule.IMAGES, "image") in ends(passed(lab, sweep=True, hours=25))
    assert [one.kind for one in lab.cloud.resources().items] == ["disk"]


def test_a_machine_that_is_stopped_for_long_is_kept_as_an_image(lab):
    policy(lab, "lease: 8h\nrenew_until: 99d\nstopped:\n  after: 7d\n  do: image\n")
    lab.up(name="fox")
    stop(lab.session, machine(lab), why="a test")
    assert warned(passed(lab, days=7)) == [("fox", Rule.STOPPED)]
    with lab.opened().lock(lock_of(machine(lab)), wait=0):  # another command is at work on it
        found = passed(lab, days=1)
    assert (found.ended, found.unconfirmed, [one.name for one in found.skipped]) == ((), (), ["fox"])
    assert ends(passed(lab)) == [("fox", ReaperAction.IMAGE, Rule.STOPPED, "terminated")]
    for _ in range(3):
        passed(lab, minutes=10)
    assert [(one.kind, one.ready) for one in machine(lab).retained] == [("image", True)]


def test_a_pass_from_another_account_leaves_the_warnings_and_the_end_of_a_machine_as_they_are(tmp_path, monkeypatch):
    monkeypatch.setenv("CLOUDGPU_LEDGER", f"sqlite:///{tmp_path / 'lab.db'}")
    lab = Lab(tmp_path, monkeypatch)
    lab.session = in_home(lab, lab.home)
    lab.up(name="fox")
    assert warned(passed(lab, days=2, hours=23, minutes=50)) == [("fox", Rule.RENEW_UNTIL)]
    desk = lab.home.with_name("desk")
    desk.mkdir()
    (desk / "config.toml").write_text((lab.home / "config.toml").read_text().replace("cloud.json", "other.json"))
    other, before = in_home(lab, desk), [line.kind for line in lab.session.ledger.events(machine(lab).id)]
    found = reap(other, ReapOptions())
    assert (found.decisions, [one.scope for one in found.unanswered]) == ((), ["fake account cloud"])
    assert [line.kind for line in lab.session.ledger.events(machine(lab).id)] == before
    other.ledger.close()
    lab.session.ledger.close()


def in_home(lab: Lab, home):
    """A session of a computer with this home; `CLOUDGPU_LEDGER` names the ledger that all of them share."""
    session = open_session(
        {**os.environ, "CLOUDGPU_HOME": str(home), "USER": "ada"}, clock=lab.clock, tell=lab.said.append
    )
    session.pause = lab.clock.advance
    return session


def test_a_receiver_that_takes_nothing_is_named_and_keeps_no_machine_running(tmp_path, monkeypatch, web):
    told = Lab(tmp_path, monkeypatch, f'timer = "moves"\n[alerts]\nto = ["json://{web.place}/owner"]\n')
    web.end()
    told.up(name="fox")
    assert passed(told, days=2, hours=23, minutes=50).undelivered
    passed(told, minutes=20)
    assert told.machines() == []


def test_of_a_cluster_that_would_be_ended_in_part_none_is_ended(lab):
    lab.up(name="train", nodes=3, engine="none")
    sync_all(lab.session)
    lab.later(days=4)  # past its renew-until
    rows = lab.session.ledger.machines()
    held = policies_of(lab.session, rows, None)
    seen = [view_without_report(row, held[row.id], answered=True) for row in rows]

    def judge(some, machines):
        return decide(some, (), lab.clock(), interval=timedelta(minutes=10), machines=machines)

    items = [EndItem(one, decision) for one, decision in zip(seen, judge(seen, rows), strict=True)]
    assert [one.decision.ends for one in items] == [True] * 3
    assert len(split_by_current_record(lab.session, items, judge)[0]) == 3
    ends_of_two, outcome = split_by_current_record(lab.session, items[:2], judge)
    assert (ends_of_two, {one.why for one in outcome.skipped}) == ([], {OTHER_NODE_STAYS})
