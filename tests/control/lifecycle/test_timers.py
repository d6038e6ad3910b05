"""The timer in the cloud, from here: it fires while everything of ours is dead, and never on a machine's next life."""

from __future__ import annotations

from datetime import timedelta

import pytest

from cloudgpu.control.inputs.launch_request import UpRequest
from cloudgpu.control.inventory.sync import sync_all
from cloudgpu.control.launch.launch import launch
from cloudgpu.control.launch.plan import prepare
from cloudgpu.control.launch.restore import start_machine
from cloudgpu.control.lifecycle.lease import extend, plan_extension
from cloudgpu.control.lifecycle.lifecycle import stop, terminate_one
from cloudgpu.control.lifecycle.start import new_lease, start
from cloudgpu.control.lifecycle.timers import repair_timers
from cloudgpu.control.outage.opening import open_session
from cloudgpu.control.scheduler.jobs import reap_once
from cloudgpu.control.setup.guards import guard_checks
from cloudgpu.core.events.log import Draft
from cloudgpu.core.model.instances import State
from cloudgpu.core.model.launch import Setup
from cloudgpu.core.model.offers import Requirements
from cloudgpu.core.values.times import from_iso, iso
from cloudgpu.errors import InvalidRequest, ProviderUnavailable, StopUnproved
from cloudgpu.ledger.samples.store import SampleStore
from cloudgpu.views.machines import guards_document

HOUR = timedelta(hours=1)


@pytest.fixture(params=["moves", "fixed"])
def either(request, make_lab):
    """A cloud whose timers can be moved, and one that fixes them at launch."""
    return make_lab(f'timer = "{request.param}"')


@pytest.fixture
def moves(make_lab):
    return make_lab('timer = "moves"')


@pytest.fixture
def fixed(make_lab):
    return make_lab('timer = "fixed"')


def up(lab, **more):
    row = lab.up(lease=2 * HOUR, renew_until=5 * HOUR, **more).machine
    lab.later(seconds=1)
    return row


def latest(lab, row):
    return lab.session.ledger.machine(row.id)


def fires(lab, row):
    return lab.cloud.timer(latest(lab, row).provider_id)


def state(lab, row):
    return lab.cloud.get(row.provider_id).state


def lines(lab, row):
    return [line.body["at"] for line in lab.session.ledger.events(row.id) if line.kind == "timer_set"]


def sample(at):
    return {"t": at, "s": 60.0, "cpu": 0.0, "net": 0.0, "disk": 0.0, "fault": ""}


def calls(lab, name):
    return lab.cloud.calls[name]


def test_a_launched_machine_is_ended_at_renew_until_by_the_cloud_alone(either):
    row = up(either)
    assert fires(either, row) == from_iso(row.renew_until)
    assert row.timer == row.renew_until
    either.later(hours=5, minutes=1)  # nobody looks, no pass, no agent
    assert state(either, row) is State.STOPPED
    sync_all(either.session)
    assert not latest(either, row).billed


def test_what_cannot_be_stopped_is_ended(moves):
    row = up(moves, spot=True)
    moves.later(hours=5, minutes=1)
    assert state(moves, row) is State.TERMINATED


def test_a_persistent_spot_machine_is_stopped_each_time_the_cloud_starts_it_again(moves):
    wish = UpRequest(
        Requirements(gpu="v100"), setup=Setup(persistent=True), spot=True, lease=2 * HOUR, renew_until=5 * HOUR
    )
    row = launch(moves.session, prepare(moves.session, wish), wait=False).machine
    moves.later(hours=5, minutes=1)
    assert state(moves, row) is State.STOPPED
    moves.cloud.start(row.provider_id)  # as a cloud does that has capacity again
    moves.later(seconds=1)
    assert state(moves, row) is State.STOPPED


def test_a_launch_goes_on_without_its_timer_and_the_next_pass_sets_it(moves):
    moves.cloud.fail_next("set_timer", ProviderUnavailable("the scheduler does not answer"))
    row = up(moves)
    assert row.timer is None
    assert [said for said in moves.said if "its timer in the cloud is not set" in said] != []
    assert repair_timers(moves.session, moves.rows()).set == [row.name]
    assert fires(moves, row) == from_iso(row.renew_until)


def test_a_crash_between_the_launch_and_its_timer_is_put_right_by_the_next_pass(moves):
    def dies():
        raise KeyboardInterrupt

    moves.cloud.fail_next("set_timer", dies)
    with pytest.raises(KeyboardInterrupt):
        moves.up()
    again = moves.opened()
    sync_all(again)
    (row,) = again.ledger.machines()
    assert fires(moves, row) is None
    repair_timers(again, again.ledger.machines())
    assert fires(moves, row) == from_iso(row.renew_until)


def test_a_pass_over_machines_that_have_their_timers_asks_nothing(moves):
    up(moves)
    before = moves.cloud.calls
    assert repair_timers(moves.session, moves.session.ledger.machines()).set == []
    assert moves.cloud.calls == before


def test_an_extension_moves_the_timer(moves):
    row = up(moves)
    row = extend(moves.session, plan_extension(moves.session, row, 10 * HOUR))
    assert fires(moves, row) == from_iso(row.renew_until)
    moves.later(hours=6)
    assert state(moves, row) is State.RUNNING
    moves.later(hours=7)
    assert state(moves, row) is State.STOPPED


def test_a_lease_that_is_renewed_within_renew_until_moves_no_timer(moves):
    row = up(moves)
    before = calls(moves, "set_timer")
    extend(moves.session, plan_extension(moves.session, row, HOUR))
    assert calls(moves, "set_timer") == before


def test_an_extension_past_a_timer_that_was_fixed_at_launch_is_refused_with_the_date(fixed):
    row = up(fixed)
    lines_before, limit = fixed.session.ledger.head()[0], from_iso(row.renew_until)
    with pytest.raises(InvalidRequest) as refused:
        extend(fixed.session, plan_extension(fixed.session, row, 10 * HOUR))
    assert f"ends at {limit:%Y-%m-%d %H:%M} UTC" in refused.value.message
    assert refused.value.exit_code == 2
    assert fixed.session.ledger.head()[0] == lines_before
    assert latest(fixed, row).renew_until == row.renew_until
    assert fixed.cloud.get(row.provider_id).tags["cloudgpu-renew-until"] == f"{limit.timestamp():.0f}"


def test_an_extension_within_a_fixed_timer_is_taken(fixed):
    row = up(fixed)
    assert extend(fixed.session, plan_extension(fixed.session, row, HOUR)).expires > row.expires


def test_a_timer_of_the_life_before_does_not_fire_on_a_machine_that_was_started(either):
    row = up(either)
    either.later(hours=4)
    stop(either.session, row, why="test")
    either.later(minutes=10)
    row = start(either.session, latest(either, row), new_lease(either.session, latest(either, row), None))
    either.later(hours=2)  # long after the first renew-until
    assert state(either, row) is State.RUNNING
    either.later(hours=4)
    assert state(either, row) is State.STOPPED


def test_the_old_timer_is_moved_before_the_machine_starts(moves):
    row = up(moves)
    stop(moves.session, row, why="test")
    order = []
    for call in ("set_timer", "start"):
        moves.cloud.fail_next(call, lambda call=call: order.append(call))
    start(moves.session, latest(moves, row), new_lease(moves.session, latest(moves, row), None))
    assert order == ["set_timer", "start"]


def test_a_machine_whose_old_timer_cannot_be_moved_is_not_started(moves):
    row = up(moves)
    stop(moves.session, row, why="test")
    moves.cloud.fail_next("set_timer", ProviderUnavailable("the scheduler does not answer."))
    with pytest.raises(ProviderUnavailable) as failed:
        start(moves.session, latest(moves, row), new_lease(moves.session, latest(moves, row), None))
    assert "would stop it at" in failed.value.message
    assert state(moves, row) is State.STOPPED
    assert latest(moves, row).pending_action is None


def test_a_machine_whose_old_timer_has_fired_starts_though_no_new_one_can_be_set(moves):
    row = up(moves)
    moves.later(hours=6)
    sync_all(moves.session)
    moves.cloud.fail_next("set_timer", ProviderUnavailable("the scheduler does not answer."), times=2)
    row = start(moves.session, latest(moves, row), new_lease(moves.session, latest(moves, row), None))
    assert state(moves, row) is State.RUNNING
    assert repair_timers(moves.session, moves.rows()).set == [row.name]
    assert fires(moves, row) == from_iso(row.renew_until)


def test_an_ended_machine_has_no_timer_any_more(moves):
    row = terminate_one(moves.session, up(moves), why="test")
    assert moves.cloud.timers() == {}
    assert lines(moves, row)[-1] is None
    assert row.timer is None


def test_an_end_that_is_not_proved_keeps_its_timer(moves):
    row = up(moves)
    moves.cloud.fail_next("get", ProviderUnavailable("no answer"), times=100)
    moves.session.pause = lambda _seconds: moves.clock.advance(300)
    with pytest.raises(StopUnproved):
        terminate_one(moves.session, row, why="test")
    assert calls(moves, "drop_timer") == 0
    assert moves.cloud.timers() == {row.provider_id: from_iso(row.renew_until)}


def test_an_end_goes_on_where_the_timer_cannot_be_dropped_and_the_next_pass_drops_it(moves):
    row = up(moves)
    moves.cloud.fail_next("drop_timer", ProviderUnavailable("no answer"))
    assert terminate_one(moves.session, row, why="test").terminated_at
    assert moves.cloud.timers() != {}
    assert repair_timers(moves.session, moves.session.ledger.machines()).dropped == [row.name]
    assert moves.cloud.timers() == {}


def test_a_parked_machine_has_none_and_its_comeback_has_one_of_its_own(moves):
    row = up(moves, spot=True)
    stop(moves.session, row, why="test")
    assert moves.cloud.timers() == {}
    moves.later(minutes=1)
    back = start_machine(moves.session, latest(moves, row), None, wait=False)
    assert back.provider_id != row.provider_id
    assert moves.cloud.timers() == {back.provider_id: from_iso(back.renew_until)}


def test_a_sweep_sets_what_somebody_took_away_and_moves_what_is_elsewhere(moves):
    rows = [up(moves, new=number > 0) for number in range(3)]
    missing, moved, right = rows
    moves.cloud.drop_timer(missing.provider_id)
    moves.cloud.set_timer(moved.provider_id, from_iso(moved.renew_until) + HOUR)
    assert repair_timers(moves.session, moves.rows()).set == []  # the ledger knows of nothing
    known = [row for row in moves.session.ledger.machines() if row.id != right.id]
    done = repair_timers(moves.session, known, sweep=True)
    assert (done.set, done.moved) == ([missing.name], [moved.name])
    assert {moves.cloud.timer(row.provider_id) for row in rows} == {from_iso(row.renew_until) for row in rows}
    again = repair_timers(moves.session, moves.session.ledger.machines(), sweep=True)
    assert (again.set + again.moved, again.dropped, again.errors) == ([], [], [])


def test_a_timer_that_is_there_already_is_written_down_and_nothing_is_done_or_said(moves):
    moves.cloud.fail_next("timer_limit", ProviderUnavailable("no answer"))
    row = up(moves)
    body = {"at": None, "why": "a ledger that was lost"}
    moves.session.ledger.append([Draft("timer_set", row.id, body, moves.clock(), "lost")])
    before = moves.cloud.calls
    done = repair_timers(moves.session, moves.rows())
    made = moves.cloud.calls - before
    assert (done.set, done.moved, made["set_timer"], made["timers"]) == ([], [], 0, 1)
    assert latest(moves, row).timer == row.renew_until


def test_a_region_that_does_not_say_which_timers_it_has_is_a_fault_and_changes_nothing(moves):
    row = up(moves)
    moves.cloud.hide(row.region)
    done = repair_timers(moves.session, moves.session.ledger.machines(), sweep=True)
    assert [row.region in fault.message for fault in done.errors] == [True]
    assert (done.set, done.dropped) == ([], [])


def test_a_cloud_whose_timers_follow_the_tag_is_asked_for_nothing(lab):
    row = up(lab)
    terminate_one(lab.session, row, why="test")
    assert not {"set_timer", "drop_timer", "timers", "timer_limit"} & set(lab.cloud.calls)
    assert lines(lab, row) == []


def test_a_stopped_machine_past_its_time_gets_no_timer(moves):
    moves.cloud.fail_next("set_timer", ProviderUnavailable("no answer"))
    row = up(moves)
    stop(moves.session, row, why="test")
    moves.later(hours=6)
    assert repair_timers(moves.session, moves.session.ledger.machines()).set == []


def test_of_a_silence_one_fault_is_said_and_a_machine_that_is_gone_is_none(moves):
    moves.cloud.fail_next("set_timer", ProviderUnavailable("no answer"), times=3)
    rows = [up(moves, new=number > 0) for number in range(3)]
    moves.cloud.fail_next("set_timer", ProviderUnavailable("no answer"), times=3)
    assert [fault.message for fault in repair_timers(moves.session, moves.rows()).errors] == ["no answer"]
    moves.cloud.terminate(rows[0].provider_id)
    done = repair_timers(moves.session, moves.rows())
    assert sorted(done.set) == sorted(row.name for row in rows[1:])
    assert done.errors == []


def guards(lab):
    (check,) = guard_checks(lab.session, ["lab"], {"PATH": ""})
    return check


def test_doctor_says_when_the_agent_was_last_heard_and_by_what(moves):
    row = up(moves)
    assert "(it has never reported here)" in guards(moves).message
    moves.cloud.report_activity(row.provider_id, moves.clock())
    sync_all(moves.session)
    moves.later(minutes=30)
    assert "(last heard 30m ago)" in guards(moves).message
    now = moves.clock().timestamp()
    SampleStore(moves.session.home.samples, row.id).keep([sample(now - 120)], now, moves.clock())
    assert "(last heard 2m ago)" in guards(moves).message


def test_a_timer_that_cannot_be_asked_for_is_a_fault_and_no_all_clear(lab):
    lab.cloud.deny("timer")
    up(lab)
    assert guards(lab).verdict == "fail"  # nobody knows
    lab.cloud.permit("timer")
    assert guards(lab).verdict == "ok"  # this cloud's timer follows the tag


def test_a_machine_that_has_stopped_needs_no_guard(moves):
    stop(moves.session, up(moves), why="test")
    assert list(guard_checks(moves.session, ["lab"], {"PATH": ""})) == []


@pytest.mark.parametrize(("hours", "verdict"), [(1, "ok"), (30, "warn")])
def test_passes_guard_a_machine_as_long_as_they_are_made(moves, hours, verdict):
    moves.cloud.fail_next("set_timer", ProviderUnavailable("no answer"))
    moves.up(lease=100 * HOUR, renew_until=100 * HOUR)
    now = moves.clock()
    body = {"verb": "reap", "ok": True, "ok_at": iso(now), "sweep_at": None, "cron": True, "sweep": False}
    moves.session.ledger.append([Draft("reap_finished", "reaper", body, now, "a pass")])
    moves.later(hours=hours)
    found = guards(moves)
    assert (found.verdict, "no timer in the cloud is set" in found.message) == (verdict, True)
    assert f"a run succeeded {hours}h ago" in found.message or "1d 6h ago" in found.message


def without_the_role(lab):
    """A colleague's settings for the same account and ledger, which name no timers."""
    config = lab.home / "config.toml"
    config.write_text(config.read_text().replace('timer = "moves"', ""))
    return lab.opened()


def test_a_lease_does_not_grow_over_a_timer_that_these_settings_cannot_move(moves):
    row, other = up(moves), without_the_role(moves)
    with pytest.raises(InvalidRequest, match="from here it cannot be moved: the fake cloud's timers follow"):
        extend(other, plan_extension(other, latest(moves, row), 9 * HOUR))
    assert latest(moves, row).renew_until == row.renew_until
    assert extend(other, plan_extension(other, latest(moves, row), HOUR)).renew_until == row.renew_until


def test_a_machine_does_not_start_under_a_timer_that_these_settings_cannot_move(moves):
    row = up(moves)
    stop(moves.session, row, why="a test")
    moves.later(hours=3)
    other = without_the_role(moves)
    with pytest.raises(InvalidRequest, match="from here it cannot be moved"):
        start(other, latest(moves, row), new_lease(other, latest(moves, row), None))
    assert (latest(moves, row).pending_action, moves.machines()) == (None, [])


def test_who_extends_hears_that_the_old_timer_fires_until_the_new_one_is_set(moves):
    row = up(moves)
    moves.cloud.fail_next("set_timer", ProviderUnavailable("the scheduler does not answer."))
    extend(moves.session, plan_extension(moves.session, row, 9 * HOUR))
    (said,) = [one for one in moves.said if "is not set" in one]
    assert said.endswith("not answer). cloudgpu reap sets it. Until then it ends the machine at 2026-11-20 16:00 UTC.")


def test_a_timer_is_repaired_by_the_computer_that_has_its_account_whoever_else_has_swept(moves, tmp_path):
    """The ledger had one time for all full runs: the first computer of the night kept all others from theirs."""
    row = moves.up(lease=90 * HOUR, renew_until=90 * HOUR).machine
    desk = tmp_path / "desk"
    desk.mkdir()
    table = f'provider = "fake"\n[accounts.desk]\nprovider = "fake"\nstate_file = "{tmp_path / "desk.json"}"\n'
    (desk / "config.toml").write_text(table)
    url = f"sqlite:///{moves.session.ledger.location}"
    environ = {"CLOUDGPU_HOME": str(desk), "CLOUDGPU_LEDGER": url, "USER": "bob"}
    reap_once(moves.opened(), timedelta(minutes=10))
    moves.later(days=1)
    moves.cloud.drop_timer(row.provider_id)
    reap_once(open_session(environ, clock=moves.clock, tell=moves.said.append), timedelta(minutes=10))
    moves.later(minutes=10)
    reap_once(moves.opened(), timedelta(minutes=10))
    assert fires(moves, row) is not None


def test_a_start_after_the_timer_fired_says_that_these_settings_set_no_other(moves):
    row = up(moves)
    stop(moves.session, row, why="a test")
    moves.later(hours=6)
    other = without_the_role(moves)
    sync_all(other)
    lease = new_lease(other, other.ledger.machine(row.id), HOUR)
    started = start(other, other.ledger.machine(row.id), lease)
    assert guards_document(started)["timer"] is None
    assert moves.said[-1].endswith("the fake cloud's timers follow the renew-until tag")


def test_a_start_that_ends_before_the_timer_leaves_it_known(moves):
    row = up(moves)
    stop(moves.session, row, why="a test")
    other = without_the_role(moves)
    lease = new_lease(other, other.ledger.machine(row.id), HOUR, HOUR)
    started = start(other, other.ledger.machine(row.id), lease)
    assert from_iso(started.timer) == fires(moves, row)
    assert not moves.said[-1].endswith("the renew-until tag")
