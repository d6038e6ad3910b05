"""Passes over a cloud that remembers: what is over ends, who is in use goes on, what is silent is left alone."""

from __future__ import annotations

import pytest

from cloudgpu.control.lifecycle.lease import set_hold
from cloudgpu.control.lifecycle.lifecycle import stop
from cloudgpu.control.resources.named import save_image
from cloudgpu.core.events.log import Draft
from cloudgpu.core.model.instances import TAG_LEDGER
from cloudgpu.core.model.resources import Kind
from cloudgpu.core.policies.policy import ReaperAction, Rule
from cloudgpu.core.values.times import from_iso
from cloudgpu.errors import InvalidRequest, ProviderUnavailable
from cloudgpu.ledger.log import files
from cloudgpu.testing.helpers import START


def ends(found):
    return [(one.name, one.do, one.rule, one.now) for one in found.ended]


def warned(found):
    return [(one.name, one.rule) for one in found.warned]


def test_nothing_is_done_and_nothing_said_where_nothing_happens(fleet, agents):
    fleet.up(name="fox")
    found = fleet.idle(minutes=5)
    assert found.is_quiet
    assert found.exit_code == 0
    assert [(one.name, one.do) for one in found.decisions] == [("fox", ReaperAction.KEEP)]
    assert agents.asked == 0, "what runs for five minutes cannot be idle"


@pytest.mark.soak
def test_an_idle_machine_is_warned_and_after_the_grace_stopped_and_proved(fleet):
    fleet.up(name="fox")
    assert warned(fleet.idle(hours=2)) == [("fox", Rule.IDLE)]
    assert len(fleet.machines()) == 1
    assert ends(fleet.idle(minutes=10)) == [("fox", ReaperAction.STOP, Rule.IDLE, "stopped")]
    assert fleet.machines() == []
    row = fleet.machine()
    assert (row.state, row.billed) == ("stopped", False)
    kinds = fleet.kinds()
    assert kinds.index("warning_sent") < kinds.index("stop_requested") < kinds.index("instance_observed", 3)


@pytest.mark.soak
def test_every_line_of_an_end_says_who_when_why_and_from_where(fleet):
    fleet.up(name="fox")
    fleet.idle(hours=2)
    fleet.idle(minutes=10)
    lines = {line.kind: line for line in fleet.session.ledger.events(fleet.machine().id)}
    for kind in ("decision_made", "warning_sent"):
        assert lines[kind].body["host"]
        assert "idle for" in lines[kind].body["why"]
    assert "idle for" in lines["stop_requested"].body["why"]
    assert {line.actor for line in lines.values()} == {"ada"}
    (*_, ended) = fleet.session.ledger.events("reaper")
    assert ended.body["ok"]
    assert (ended.body["machines"], ended.body["stopped"], ended.body["decided"]) == (1, 1, {"stop": 1})


@pytest.mark.soak
def test_a_warning_within_the_grace_ends_nothing(fleet):
    fleet.up(name="fox")
    fleet.idle(hours=2)
    assert fleet.idle(minutes=8).ended == ()
    assert len(fleet.machines()) == 1


@pytest.mark.soak
def test_activity_within_the_grace_takes_the_warning_back(fleet, agents):
    fleet.up(name="fox")
    fleet.idle(hours=2)
    fleet.later(minutes=10)
    agents.says(fleet.clock(), gpu=80)
    found = fleet.pass_()
    assert (found.ended, found.decisions[0].activity) == ((), "ACTIVE")
    assert "warning_cleared" in fleet.kinds()
    assert warned(fleet.idle(hours=2)) == [("fox", Rule.IDLE)], "the next time it is warned anew"
    assert len(fleet.machines()) == 1


@pytest.mark.soak
def test_an_agent_that_dies_during_the_grace_stops_nothing(fleet, agents):
    fleet.up(name="fox")
    fleet.idle(hours=2)
    fleet.later(minutes=10)
    agents.end()
    found = fleet.pass_()
    assert found.ended == ()
    assert len(fleet.machines()) == 1


def test_a_held_machine_is_not_asked_and_not_ended(fleet, agents):
    fleet.up(name="fox")
    set_hold(fleet.session, fleet.machine(), fleet.clock.now.replace(hour=20))
    found = fleet.idle(hours=2)
    assert (found.decisions[0].rule, agents.asked, found.ended, found.warned) == (Rule.HOLD, 0, (), ())


@pytest.mark.soak
def test_a_hold_set_after_the_warning_counts(fleet):
    fleet.up(name="fox")
    fleet.idle(hours=2)
    set_hold(fleet.session, fleet.machine(), fleet.clock.now.replace(hour=20))
    assert fleet.idle(minutes=10).ended == ()
    assert "warning_cleared" in fleet.kinds()


def test_a_machine_that_says_by_itself_that_it_is_in_use_is_not_asked(fleet, agents):
    fleet.up(name="fox")
    fleet.later(hours=3)
    fleet.cloud.report_activity(fleet.machine().provider_id, fleet.clock())
    found = fleet.idle(minutes=10)
    assert (found.decisions[0].activity, agents.asked) == ("ACTIVE", 0)


@pytest.mark.soak
def test_a_lease_of_a_machine_in_use_is_renewed_by_the_hour_up_to_renew_until(fleet, agents):
    fleet.policy("short", "lease: 2h\nrenew_until: 5h\n")
    fleet.up(name="fox", policy="short")
    ends = []
    for _ in range(10):
        fleet.later(minutes=30)
        agents.says(fleet.clock(), gpu=80)
        fleet.pass_()
        ends.append((from_iso(fleet.machine().expires) - START).total_seconds() / 3600)
    assert sorted(set(ends)) == [2, 3, 4, 5]
    assert len(fleet.machines()) == 0


def test_renew_until_ends_a_machine_in_use(fleet, agents):
    fleet.up(name="fox")
    fleet.cloud.drop_timer(fleet.machine().provider_id)
    fleet.clock.advance((from_iso(fleet.machine().renew_until) - fleet.clock()).total_seconds())
    agents.says(fleet.clock(), gpu=80)
    assert ends(fleet.pass_()) == [("fox", ReaperAction.STOP, Rule.RENEW_UNTIL, "stopped")]


@pytest.mark.soak
def test_a_lease_that_is_over_ends_an_idle_machine_and_one_that_is_silent_goes_on(fleet, agents):
    fleet.policy("strict", "lease: 2h\nrenew_until: 9h\nidle:\n  do: off\n")
    fleet.up(name="fox", policy="strict")
    fleet.later(hours=1, minutes=55)
    agents.runs("exit 127")
    assert [(one.name, one.do) for one in fleet.pass_().renewed] == [("fox", ReaperAction.RENEW)]
    agents.runs("cat ~/.cloudgpu/answer")
    assert fleet.idle(minutes=30).warned != ()
    assert ends(fleet.idle(minutes=35)) == [("fox", ReaperAction.STOP, Rule.LEASE, "stopped")]


@pytest.mark.soak
def test_a_machine_that_its_user_stopped_meanwhile_is_not_asked_again(fleet, agents):
    fleet.up(name="fox")
    fleet.idle(hours=2)
    fleet.later(minutes=10)
    agents.says(fleet.clock())
    fleet.cloud.fail_next("get_many", lambda: fleet.cloud.stop(fleet.machine().provider_id))
    found = fleet.pass_()
    assert (found.ended, found.unconfirmed) == ((), ())
    assert fleet.kinds().count("stop_requested") == 0


@pytest.mark.soak
def test_a_machine_that_somebody_is_at_work_on_is_left_to_the_next_pass(fleet, agents):
    fleet.up(name="fox")
    fleet.idle(hours=2)
    fleet.later(minutes=10)
    agents.says(fleet.clock())
    from cloudgpu.core.reaper.result import lock_of

    with files.lock(fleet.session.home.locks, lock_of(fleet.machine()), wait=False):
        found = fleet.pass_()
    assert [(one.name, one.why) for one in found.skipped] == [
        ("fox", "another command is working on it; the next run checks again")
    ]
    assert ends(fleet.pass_()) == [("fox", ReaperAction.STOP, Rule.IDLE, "stopped")]


def test_of_two_passes_at_once_the_second_does_nothing(fleet):
    fleet.up(name="fox")
    with files.lock(fleet.session.home.locks, "reaper", wait=False):
        found = fleet.pass_()
    assert "at work on 'reaper'" in found.busy
    assert (found.exit_code, found.is_quiet, list(fleet.session.ledger.events("reaper"))) == (0, True, [])


def test_a_pass_that_has_lost_its_lock_stops_nothing(fleet, agents):
    fleet.up(name="fox")
    fleet.idle(hours=2)
    fleet.later(minutes=10)
    agents.says(fleet.clock())

    def lose():
        (fleet.session.home.locks / "reaper.lock").unlink()

    fleet.cloud.fail_next("get_many", lose)
    with pytest.raises(ProviderUnavailable, match="not ours any more"):
        fleet.pass_()
    assert len(fleet.machines()) == 1
    assert "stop_requested" not in fleet.kinds()


@pytest.mark.soak
def test_at_most_so_many_are_stopped_for_idle_time_and_the_rest_wait(fleet):
    for number in range(3):
        fleet.up(name=f"fox-{number}", key=f"k{number}")
    fleet.idle(hours=2)
    fleet.later(minutes=10)
    fleet.agents.says(fleet.clock())
    assert len(fleet.pass_(max_stops=2).ended) == 2
    assert len(fleet.idle(minutes=10).ended) == 1
    assert fleet.machines() == []


@pytest.mark.soak
def test_a_policy_may_be_named_for_all_machines(fleet):
    fleet.up(name="fox")
    fleet.idle(hours=2)
    fleet.later(minutes=10)
    fleet.agents.says(fleet.clock())
    assert fleet.pass_(policy="never").ended == ()


@pytest.mark.soak
def test_a_spot_machine_is_parked_and_its_image_is_made_by_the_looks_that_follow(fleet):
    fleet.up(name="fox", spot=True)
    fleet.idle(hours=2)
    assert [(one.do, one.now) for one in fleet.idle(minutes=10).ended] == [(ReaperAction.PARK, "terminated")]
    row = fleet.machine()
    assert (row.parked, [one["kind"] for one in row.retained]) == (True, [])
    for _ in range(3):
        fleet.idle(minutes=10)
    assert [(one.kind, one.ready) for one in fleet.machine().retained] == [("image", True)]


@pytest.mark.soak
@pytest.mark.parametrize(
    "rule", ["idle:\n  after: 30m\n", "idle:\n  do: off\nschedule:\n  - off: '12:00'\n    tz: UTC\n"]
)
def test_unpausable_warn_only_warns_a_spot_machine(fleet, rule):
    fleet.policy("careful", f"lease: 8h\nrenew_until: 72h\nspot:\n  unpausable: warn\n{rule}")
    fleet.up(name="fox", spot=True, policy="careful")
    given = []
    for _ in range(8):
        found = fleet.idle(minutes=20)
        assert found.ended == ()
        given += warned(found)
    assert len(given) == 1, "told once, and not at every pass"
    assert len(fleet.machines()) == 1


@pytest.mark.soak
def test_a_schedule_is_told_before_and_ends_a_machine_in_use(fleet, agents):
    fleet.policy("evening", "lease: 20h\nrenew_until: 72h\nschedule:\n  - off: '19:00'\n    tz: UTC\n")
    fleet.up(name="fox", policy="evening")
    fleet.clock.advance((fleet.clock.now.replace(hour=18, minute=40) - fleet.clock.now).total_seconds())
    agents.says(fleet.clock(), gpu=90)
    assert warned(fleet.pass_()) == [("fox", Rule.SCHEDULE)]
    fleet.later(minutes=20)
    agents.says(fleet.clock(), gpu=90)
    assert ends(fleet.pass_()) == [("fox", ReaperAction.STOP, Rule.SCHEDULE, "stopped")]


@pytest.mark.soak
def test_scratch_disks_that_are_not_empty_make_an_idle_stop_a_warning(fleet, agents):
    fleet.up(name="fox")
    for hours in (2, 1):
        fleet.later(hours=hours)
        agents.says(fleet.clock(), scratch=[["/scratch", 5_000_000_000]])
        found = fleet.pass_()
        assert found.ended == ()
    assert "/scratch (5.0 GB)" in found.decisions[0].why


@pytest.mark.soak
def test_an_unanswered_region_is_named_its_machines_unknown_and_the_others_served(fleet):
    fleet.up(name="fox", region="north", key="a")
    fleet.up(name="owl", region="south", key="b")
    fleet.idle(hours=2)
    fleet.cloud.hide("south")
    found = fleet.idle(minutes=10)
    assert [gap.scope for gap in found.unanswered] == ["south"]
    assert found.exit_code == 8
    assert [one.name for one in found.ended] == ["fox"]
    assert {one.name: one.activity for one in found.decisions}["owl"] == "UNKNOWN"
    (*_, line) = fleet.session.ledger.events("reaper")
    assert (line.body["ok"], line.body["unanswered"]) == (False, ["south"])
    fleet.cloud.show("south")
    assert [one.name for one in fleet.idle(minutes=10).ended] == ["owl"]


@pytest.mark.soak
def test_a_policy_that_cannot_be_read_means_lease_only_and_is_said(fleet):
    fleet.policy("mine", "lease: 4h\nrenew_until: 9h\n")
    fleet.up(name="fox", policy="mine")
    policy = {"place": "", "text": "x: 1", "tz": "UTC"}
    body = {"terms": {"home": "elsewhere", "policy": policy, "limits": [], "price_jump": "1.5"}}
    fleet.session.ledger.append([Draft("terms_set", fleet.machine().id, body, fleet.clock(), "of another version")])
    found = fleet.idle(hours=2)
    assert (found.exit_code, found.warned) == (8, ())
    (fault,) = found.faults
    assert fault.endswith("x is not a known key: only the lease counts for fox")
    fleet.idle(hours=1, minutes=30)
    assert ends(fleet.idle(minutes=31)) == [("fox", ReaperAction.STOP, Rule.LEASE, "stopped")]


def test_the_reaper_does_not_run_with_half_a_policy(fleet):
    fleet.policy("mine", "lease: 1h\nrenew_until: 9h\n")
    fleet.up(name="fox", policy="mine")
    fleet.policy("mine", "lease: 1h\nrenew_until: 9h\nidel:\n  after: 1m\n")
    fleet.later(hours=3)
    asked = fleet.cloud.calls
    with pytest.raises(InvalidRequest, match=r"mine\.yaml:3: idel is not a known key"):
        fleet.pass_()
    assert len(fleet.machines()) == 1
    assert fleet.cloud.calls["list"] - asked["list"] == 1, "the test's own look at what runs"
    (line,) = fleet.session.ledger.events("reaper")
    assert not line.body["ok"]


@pytest.mark.parametrize("wish", [{"policy": "nosuch"}, {"max_stops": -1}])
def test_a_wish_that_cannot_be_is_refused(fleet, wish):
    fleet.up(name="fox")
    with pytest.raises(InvalidRequest):
        fleet.pass_(**wish)


@pytest.mark.soak
def test_a_sweep_warns_of_an_image_that_is_kept_too_long_and_removes_it_a_day_after(fleet):
    fleet.policy("default", "lease: 8h\nrenew_until: 96h\nimages:\n  after: 1h\n  do: remove\n")
    fleet.up(name="fox")
    save_image(fleet.session, fleet.machine(), "kept")

    def used(**span):
        fleet.later(**span)
        fleet.cloud.report_activity(fleet.machine().provider_id, fleet.clock())

    used(hours=2)
    assert fleet.pass_().warned == ()
    assert warned(fleet.pass_(sweep=True)) == [("kept", Rule.IMAGES)]
    used(hours=25)
    assert ends(fleet.pass_(sweep=True)) == [("kept", ReaperAction.REMOVE, Rule.IMAGES, "image")]
    assert [one.kind for one in fleet.cloud.resources().items] == ["disk"]


@pytest.mark.soak
def test_a_machine_that_is_stopped_for_long_is_kept_as_an_image_and_brought_back_by_start(fleet):
    fleet.policy("default", "lease: 8h\nrenew_until: 99d\nstopped:\n  after: 7d\n  do: image\n")
    fleet.up(name="fox")
    stop(fleet.session, fleet.machine(), why="a test")
    assert warned(fleet.idle(days=7)) == [("fox", Rule.STOPPED)]
    assert ends(fleet.idle(days=1)) == [("fox", ReaperAction.IMAGE, Rule.STOPPED, "terminated")]
    for _ in range(3):
        fleet.idle(minutes=10)
    assert [(one.kind, one.ready) for one in fleet.machine().retained] == [("image", True)]


@pytest.mark.soak
def test_the_nights_summary_says_what_is_left_over_and_what_it_costs(fleet):
    assert fleet.pass_(sweep=True).sentences == ()
    for region in ("north", "south"):
        fleet.cloud.leave(Kind.ADDRESS, region, {TAG_LEDGER: fleet.session.ledger.id})
    fleet.later(days=2)
    assert fleet.pass_().sentences == ()
    (said,) = fleet.pass_(sweep=True).sentences
    assert said.startswith("2 things are orphaned, $0.00 a month, and 2 without a known price")
    assert len(fleet.cloud.orphans().items) == 2, "they are told, and not removed"
