"""What a pass does where stops are refused, lost on the way, or cannot be proved; and what one may stop for a payer."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from cloudgpu.core.model.instances import TAG_RENEW_UNTIL, State
from cloudgpu.core.policies.policy import ReaperAction, Rule
from cloudgpu.core.values.times import from_iso
from cloudgpu.errors import InstanceNotFound, InvalidRequest, ProviderUnavailable
from tests.control.conftest import Lab


@pytest.fixture
def due(fleet):
    """Two machines, idle and warned; the grace is over."""
    for name in ("fox", "owl"):
        fleet.up(name=name, key=name)
    fleet.idle(hours=2)
    fleet.later(minutes=10)
    fleet.agents.says(fleet.clock())
    return fleet


def named(found):
    return sorted(one.name for one in found)


@pytest.mark.soak
def test_both_are_stopped_in_one_call_and_proved_in_one(due):
    before = due.cloud.calls
    found = due.pass_()
    made = due.cloud.calls - before
    assert named(found.ended) == ["fox", "owl"]
    assert (made["stop_many"], made["get_many"], made["stop"], made["get"]) == (1, 2, 0, 0)


def test_a_reply_that_is_lost_is_settled_by_the_look_that_follows(due):
    due.cloud.lose_reply("stop_many")
    before = due.cloud.calls["stop_many"]
    found = due.pass_()
    assert (named(found.ended), found.exit_code) == (["fox", "owl"], 0)
    assert due.cloud.calls["stop_many"] - before == 1, "what has stopped is not asked again"


@pytest.mark.soak
def test_a_stop_that_did_not_arrive_is_asked_again(due):
    due.cloud.fail_next("stop_many", ProviderUnavailable("the cloud is down"), times=3)
    found = due.pass_()
    assert (named(found.ended), found.unconfirmed, found.exit_code) == (["fox", "owl"], (), 0)


@pytest.mark.soak
def test_a_stop_that_is_not_permitted_is_said_and_is_exit_code_9(due):
    due.cloud.deny("stop_many")
    found = due.pass_()
    assert (found.ended, named(found.unconfirmed), found.exit_code) == ((), ["fox", "owl"], 9)
    assert "may not call fake:stop_many" in found.unconfirmed[0].why
    due.cloud.permit("stop_many")
    due.agents.says(due.clock())
    assert named(due.pass_().ended) == ["fox", "owl"]


@pytest.mark.soak
def test_a_stop_that_cannot_be_proved_is_exit_code_9_before_8_and_the_next_pass_proves_it(due):
    due.cloud.fail_next("stop_many", lambda: due.cloud.deny("get_many"))
    due.cloud.hide("south")
    found = due.pass_()
    assert (found.ended, named(found.unconfirmed), found.exit_code) == ((), ["fox", "owl"], 9)
    assert "not proved after 15 minutes" in found.unconfirmed[0].why
    (*_, line) = due.session.ledger.events("reaper")
    assert (line.body["ok"], line.body["unproved"]) == (False, 2)
    due.cloud.permit("get_many")
    due.cloud.show("south")
    found = due.idle(minutes=10)
    assert (found.unconfirmed, found.exit_code) == ((), 0)
    assert due.machine("fox").state == "stopped"


@pytest.mark.soak
def test_a_second_look_that_is_not_answered_stops_nothing(due):
    due.cloud.deny("get_many")
    found = due.pass_()
    assert (found.ended, sorted(gap.scope for gap in found.unanswered), found.exit_code) == ((), ["fox", "owl"], 8)
    assert len(due.machines()) == 2


def test_an_asked_stop_that_a_killed_pass_left_unproved_is_taken_up(due):
    due.cloud.fail_next("get_many", lambda: None)  # the second look
    due.cloud.fail_next("get_many", KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        due.pass_()
    assert due.machine("fox").pending_action == "stop"
    found = due.idle(minutes=10)
    assert (due.machine("fox").state, due.machine("fox").pending_action, found.exit_code) == ("stopped", None, 0)


@pytest.fixture
def theirs(fleet, tmp_path, monkeypatch):
    """A machine of somebody else's ledger in the same account, whose renew-until is two days away."""
    home = tmp_path / "eve"
    home.mkdir()
    (home / "config.toml").write_text((fleet.home / "config.toml").read_text())
    other = Elsewhere(fleet, home)
    row = other.up(name="hen").machine
    fleet.cloud.drop_timer(row.provider_id)
    return from_iso(row.renew_until)


class Elsewhere(Lab):
    """Another user's home at the same cloud, by the same clock."""

    def __init__(self, fleet, home):
        self.home, self.clock, self.said = home, fleet.clock, []
        self.session = self.opened()


def limits(fleet, *payers):
    fleet.policy("limits", f"payers: [{', '.join(payers)}]\n")


def until(fleet, moment):
    fleet.clock.advance((moment - fleet.clock()).total_seconds())


def running(fleet):
    return [one.id for one in fleet.cloud.list().instances if one.state is State.RUNNING]


@pytest.mark.parametrize("payers", [(), ("eve", "dan")])
def test_nobody_but_the_payer_stops_machines_of_another_ledger(fleet, theirs, payers):
    limits(fleet, *payers)
    until(fleet, theirs + timedelta(days=9))
    assert fleet.pass_().ended == ()
    assert len(running(fleet)) == 1


def test_the_payers_reaper_stops_what_is_a_day_past_its_renew_until_and_proves_it(fleet, theirs):
    limits(fleet, "ada")
    until(fleet, theirs + timedelta(hours=23, minutes=59))
    assert fleet.pass_().ended == ()
    fleet.later(minutes=1)
    (said,) = fleet.pass_(dry_run=True).sentences
    assert said.startswith("hen would be stopped: it is ada's, of the ledger ")
    assert len(running(fleet)) == 1
    (ended,) = fleet.pass_().ended
    assert (ended.name, ended.do, ended.rule, ended.now) == ("hen", ReaperAction.STOP, Rule.RENEW_UNTIL, "stopped")
    assert "1d past its renew-until" in ended.why
    assert running(fleet) == []
    assert [line.kind for line in fleet.session.ledger.events(ended.machine)] == ["decision_made"]
    assert fleet.session.ledger.machines() == [], "shown, and never adopted"


def test_a_foreign_machine_that_cannot_be_stopped_ends_while_its_disk_stays(fleet, theirs):
    limits(fleet, "ada")
    until(fleet, theirs + timedelta(days=2))
    fleet.cloud.fail_next("stop", InvalidRequest("a one-time spot machine cannot be stopped"))
    (ended,) = fleet.pass_().ended
    assert (ended.name, ended.now) == ("hen", "terminated")
    assert len(fleet.cloud.resources().items) == 1


def test_a_foreign_machine_whose_stop_is_not_proved_is_exit_code_9(fleet, theirs):
    limits(fleet, "ada")
    until(fleet, theirs + timedelta(days=2))
    fleet.cloud.deny("stop")
    found = fleet.pass_()
    assert (found.exit_code, [one.name for one in found.unconfirmed]) == (9, ["hen"])


def test_a_defect_at_a_foreign_machine_keeps_the_run_from_no_other_work(fleet, theirs):
    limits(fleet, "ada")
    until(fleet, theirs + timedelta(days=2))

    def defect():
        raise ZeroDivisionError("a defect of a plug-in")

    fleet.cloud.fail_next("stop", defect)
    found = fleet.pass_()
    assert (found.exit_code, [one.name for one in found.unconfirmed], found.faults) == (9, ["hen"], ())
    assert "ZeroDivisionError: a defect of a plug-in" in found.unconfirmed[0].why


def test_one_404_is_no_proof_that_a_foreign_machine_has_ended(fleet, theirs, monkeypatch):
    rule = replace(fleet.cloud.token_rule, listing_proves_after=timedelta(minutes=10), gone_proves_after=timedelta(0))
    monkeypatch.setattr(fleet.cloud, "token_rule", rule)
    limits(fleet, "ada")
    until(fleet, theirs + timedelta(days=2))
    fleet.cloud.fail_next("stop", InstanceNotFound("A read is behind."))
    (ended,) = fleet.pass_().ended
    assert (ended.now, running(fleet)) == ("stopped", [])

    fleet.cloud.start(fleet.cloud.list().instances[0].id)

    def behind():
        fleet.cloud.fail_next("get", InstanceNotFound("A read is behind."))

    fleet.cloud.fail_next("stop", behind)
    (ended,) = fleet.pass_().ended
    assert (ended.now, running(fleet)) == ("stopped", [])


def test_a_foreign_machine_that_is_pending_is_not_proved_to_be_stopped(fleet, theirs, monkeypatch):
    limits(fleet, "ada")
    until(fleet, theirs + timedelta(days=2))
    get, states = fleet.cloud.get, iter([State.RUNNING, State.PENDING])

    def seen(id):  # noqa: A002
        one = get(id)
        state = next(states, one.state)
        return replace(one, state=state, billed=state is State.RUNNING)

    monkeypatch.setattr(fleet.cloud, "get", seen)
    (ended,) = fleet.pass_().ended
    assert ended.now == "stopped"


def test_a_foreign_machine_without_a_renew_until_is_not_the_payers_to_stop(fleet, theirs):
    limits(fleet, "ada")
    (one,) = fleet.cloud.list().instances
    fleet.cloud.tag(one.id, {TAG_RENEW_UNTIL: "0"})
    until(fleet, theirs + timedelta(days=9))
    assert fleet.pass_().ended == ()
    assert len(running(fleet)) == 1
