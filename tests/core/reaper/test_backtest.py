from __future__ import annotations

from dataclasses import replace
from datetime import time, timedelta

from hypothesis import given, settings, strategies as st

from cloudgpu.core.activity.idle import Thresholds, judge
from cloudgpu.core.billing.charges import charge
from cloudgpu.core.billing.rules import PARTS_PER_NANO
from cloudgpu.core.policies.policy import Idle, MachineBudget, Policy, ReaperAction, RuleAction
from cloudgpu.core.policies.schedule import Schedule
from cloudgpu.core.reaper.backtest import Amount, cut_usage, off_seconds
from cloudgpu.core.reaper.replay import _SampleHistory, seconds_covered
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.times import from_iso
from tests.core import bills
from tests.core.lives import line, running
from tests.core.past import bucket, busy, ended, life, minute, quiet, tried
from tests.examples import some

HOUR = timedelta(hours=1)
DEFAULT = Policy("default", 8 * HOUR, 72 * HOUR)
NEVER = replace(DEFAULT, name="never", idle=Idle(do=RuleAction.DISABLED))
MINUTE = 60_000_000 * PARTS_PER_NANO  # what a minute costs at a nano-dollar a microsecond


def after(minutes, **more):
    return replace(DEFAULT, idle=Idle(after=timedelta(minutes=minutes), **more))


def stops(found):
    return [((one.end.at - minute(0)) / timedelta(minutes=1), one.end.rule) for one in found.effects]


def test_a_machine_that_was_left_alone_would_have_been_stopped_after_the_warning():
    found = tried(DEFAULT, life(ended(300)), [*busy(0, 60), *quiet(60, 300)])
    assert stops(found) == [(130, "idle")]
    (one,) = found.effects
    assert (one.end.do, one.end.until, one.end.work) == (ReaperAction.STOP, minute(300), None)
    assert (found.cost.amount, found.saved.amount) == (300 * MINUTE, 170 * MINUTE)
    assert one.start_charge.amount == one.unsampled_s == 0


def test_one_that_runs_still_is_off_up_to_now():
    found = tried(DEFAULT, life(), [*busy(0, 60), *quiet(60, 300)])
    assert found.saved.amount == 170 * MINUTE


def test_under_never_nothing_is_stopped_and_nothing_is_saved():
    found = tried(NEVER, life(ended(300)), [*busy(0, 60), *quiet(60, 300)])
    assert (found.effects, found.saved.amount) == ((), 0)


def test_who_comes_back_starts_it_again_and_only_the_time_between_is_saved():
    samples = [*busy(0, 60), *quiet(60, 200), *busy(200, 215), *quiet(215, 300)]
    found = tried(DEFAULT, life(ended(300)), samples)
    first, second = found.effects
    assert first.end.until == first.end.work.begin == minute(200)
    assert (first.end.work.end, first.end.work.seconds, first.end.work.what) == (minute(215), 900, ("busy kernel",))
    assert not first.end.work.under_way
    assert first.saved.amount == 70 * MINUTE
    assert stops(found) == [(130, "idle"), (290, "idle")]  # its use counts from its end, its start from 200
    assert second.saved.amount == 10 * MINUTE


def test_work_under_way_that_a_schedule_would_have_killed_is_named_and_not_saved():
    nightly = replace(NEVER, schedules=(Schedule("UTC", time(13)),))  # START is 11:00, so minute 120
    found = tried(nightly, life(ended(300)), [*busy(0, 240), *quiet(240, 300)])
    (one,) = found.effects
    assert one.end.rule == "schedule"
    assert one.end.work.under_way
    assert one.end.work.seconds == 120 * 60
    assert found.saved.amount == 0


def test_a_limit_that_does_not_see_the_work_kills_it_and_the_usual_one_says_so():
    blind = after(60, gpu=50.0)
    found = tried(blind, life(ended(300)), [*quiet(0, 300, gpu=20.0)])
    assert stops(found)[0] == (70, "idle")
    assert found.effects[0].end.work.what == ("GPU",)
    assert found.effects[0].end.work.under_way
    assert found.saved.amount == 0


def test_without_samples_nothing_is_known_and_nothing_stopped():
    found = tried(DEFAULT, life(ended(300)), [])
    assert found.effects == ()
    assert (found.unsampled_s, found.seconds) == (300 * 60, 300 * 60)


def test_what_is_off_while_nobody_looked_is_said():
    found = tried(DEFAULT, life(ended(300)), [*busy(0, 60), *quiet(60, 200)])
    (one,) = found.effects
    assert one.unsampled_s == 100 * 60
    assert found.unsampled_s == 100 * 60


def test_samples_with_a_fault_or_a_gpu_that_was_not_read_say_nothing():
    assert (
        seconds_covered([bucket(1), bucket(2, fault="JupyterLab"), bucket(3, gpu=None), bucket(4)], *span(0, 4)) == 120
    )
    assert seconds_covered([bucket(1), bucket(1.5)], *span(0, 4)) == 90
    assert seconds_covered(quiet(0, 10), *span(2.5, 4.25)) == 105


def span(begin, end):
    return minute(begin).timestamp(), minute(end).timestamp()


def test_a_hold_keeps_it_on_and_its_end_lets_it_go():
    held = line(30, "hold_set", {"until": minute(200).isoformat().replace("+00:00", ".000000Z"), "why": "asked"})
    found = tried(DEFAULT, life(held, ended(300)), quiet(0, 300))
    assert stops(found) == [(210, "idle")]


def test_a_real_start_begins_anew():
    lines = life(ended(100), running(400 * 60, since=400 * 60), ended(600))
    found = tried(DEFAULT, lines, [*quiet(0, 100), *quiet(400, 600)], until=700)
    assert stops(found) == [(70, "idle"), (470, "idle")]
    assert found.saved.amount == (30 + 130) * MINUTE
    assert found.cost.amount == 300 * MINUTE


def test_a_lease_that_ends_ends_an_idle_machine_and_is_renewed_for_one_in_use():
    short = {"expires": iso_minute(120), "renew_until": iso_minute(240)}
    assert stops(tried(NEVER, life(ended(300), **short), quiet(0, 300))) == [(120, "lease")]
    assert stops(tried(NEVER, life(ended(300), **short), busy(0, 300))) == [(240, "renew-until")]


def iso_minute(number):
    return minute(number).isoformat().replace("+00:00", ".000000Z")


def test_a_machine_without_a_price_saves_an_amount_that_nobody_knows():
    found = tried(DEFAULT, life(ended(300), price=None), quiet(0, 300))
    assert found.saved.unpriced
    assert found.saved.amount == 0


def test_the_policys_budget_for_one_machine_is_replayed():
    poor = replace(NEVER, budget=MachineBudget(Money(100 * 60_000_000), RuleAction.STOP))
    assert stops(tried(poor, life(ended(300)), busy(0, 300)))[0] == (100, "budget")


def test_a_period_begins_and_ends_where_it_is_asked():
    found = tried(DEFAULT, life(ended(300)), quiet(0, 300), until=250, since=100)
    assert stops(found) == [(110, "idle")]
    assert (found.cost.amount, found.saved.amount) == (150 * MINUTE, 140 * MINUTE)


def test_one_that_was_up_before_the_period_is_judged_as_that():
    assert stops(tried(DEFAULT, life(ended(300)), quiet(0, 300), until=250, since=65)) == [(75, "idle")]


def test_each_start_is_billed_the_least_that_its_provider_bills():
    aws = {"provider": "aws", "market": "on_demand", "account": "lab"}
    found = tried(DEFAULT, life(ended(300), **aws), [*busy(0, 60), *quiet(60, 200), *busy(200, 201), *quiet(201, 300)])
    assert found.effects[0].start_charge.amount == MINUTE  # AWS bills 60 seconds of each start


def test_a_use_is_cut_into_parts_that_are_billed_each():
    use = bills.use("aws", "2026-11-20 11:00", "2026-11-20 12:00", "3.6")

    def at(text):
        return from_iso(bills.moment(f"2026-11-20 {text}"))

    parts = cut_usage(use, [(at("11:10"), at("11:20")), (at("11:50"), at("12:00"))], at("13:00"))
    assert [(one.begin[11:16], one.end[11:16], one.first) for one in parts] == [
        ("11:00", "11:10", True),
        ("11:20", "11:50", False),
    ]
    assert sum(charge(one, at("13:00")).amount for one in parts) == charge(use, at("13:00")).amount * 40 // 60
    assert cut_usage(use, [], at("13:00")) == [use]
    assert cut_usage(use, [(at("10:00"), at("10:30"))], at("13:00")) == [use]
    assert cut_usage(use, [(at("11:00"), at("12:00"))], at("13:00")) == []


pieces = st.lists(st.tuples(st.booleans(), st.integers(5, 150)), min_size=1, max_size=5)


def recorded(drawn):
    samples, at = [], 0
    for used, length in drawn:
        samples += busy(at, at + length) if used else quiet(at, at + length)
        at += length
    return samples, at


@settings(max_examples=some(25))
@given(pieces)
def test_never_saves_nothing_whatever_was_recorded(drawn):
    samples, end = recorded(drawn)
    assert tried(NEVER, life(ended(end)), samples, until=end).effects == ()


@settings(max_examples=some(25))
@given(pieces, st.integers(3, 9), st.integers(3, 9))  # below `uptime` a start keeps both on equally long
def test_a_stricter_policy_never_saves_less(drawn, one, other):
    samples, end = recorded(drawn)
    strict, lax = sorted((one * 10, other * 10))
    found = [
        tried(after(minutes, uptime=timedelta(0)), life(ended(end)), samples, until=end) for minutes in (strict, lax)
    ]
    assert found[0].saved.amount >= found[1].saved.amount
    assert off_seconds([found[0]]) >= off_seconds([found[1]])


@settings(max_examples=some(25))
@given(pieces, st.integers(11, 95))
def test_no_end_for_idleness_comes_before_the_last_use_and_the_policys_time(drawn, minutes):
    samples, end = recorded(drawn)
    found = tried(after(minutes), life(ended(end)), samples, until=end)
    for one in found.effects:
        used = [sample["t"] for sample in samples if sample.get("busy") and sample["t"] <= one.end.at.timestamp()]
        assert one.end.at.timestamp() >= max(used, default=minute(0).timestamp()) + minutes * 60
        assert one.end.until > one.end.at
    assert found.saved.amount == int(off_seconds([found])) * MINUTE // 60
    assert 0 <= found.saved.amount <= found.cost.amount


sample = st.builds(
    lambda cpu, net, fault: {"cpu": cpu, "net": net} | ({"fault": fault} if fault else {}),
    st.sampled_from([None, 0.0, 0.02, 0.05, 0.09, 0.3, 0.35, 0.5]),
    st.sampled_from([0, 0, 0, 5e4, 2e5]),
    st.sampled_from(["", "", "x"]),
)


@settings(max_examples=some(60))
@given(st.lists(sample, max_size=100), st.lists(st.integers(0, 110), min_size=1, max_size=4))
def test_what_a_replay_leaves_out_of_the_samples_changes_no_judgement(drawn, asked):
    samples = [bucket(20 * (number + 1)) | one for number, one in enumerate(drawn)]  # nearly two days of them
    limits, up_since = Thresholds(after=5400.0, share=0.01), minute(-6000).timestamp()
    watch = _SampleHistory(samples, limits)
    for number in sorted(asked):
        now = minute(20 * number + 3).timestamp()
        whole = judge([one for one in samples if now - 86400 < one["t"] <= now], limits, now, up_since)
        found = watch.judged(now, up_since)
        assert found.activity == whole.activity
        limit, every = ([one.limit for one in each.signals if one.what == "CPU"] for each in (found, whole))
        assert limit == every or not limit  # it is over the lowest of a day


def test_a_pass_that_comes_moments_before_the_end_of_a_warning_waits_for_it():
    often = timedelta(minutes=9.5)
    found = tried(DEFAULT, life(ended(300)), quiet(0, 300), interval=often)
    assert stops(found) == [(66.5 + 10, "idle")]
    assert stops(tried(DEFAULT, life(ended(76.3)), quiet(0, 76), interval=often)) == []


def test_work_that_pauses_for_minutes_is_one_piece_and_what_comes_later_another():
    nightly = replace(NEVER, schedules=(Schedule("UTC", time(13)),))
    pauses = [*busy(0, 130), *quiet(130, 138), *busy(138, 150), *quiet(150, 170), *busy(170, 300)]
    work = tried(nightly, life(ended(300)), pauses).effects[0].end.work
    assert (work.begin, work.end, work.seconds) == (minute(120), minute(150), 22 * 60)


def test_a_lease_that_was_renewed_for_use_ends_when_that_is_over():
    short = {"expires": iso_minute(120), "renew_until": iso_minute(600)}
    found = tried(NEVER, life(ended(400), **short), [*busy(0, 130), *quiet(130, 400)], until=400)
    assert stops(found) == [(240, "lease")]


def test_what_is_paid_only_while_it_runs_is_saved_too_and_its_disk_is_not():
    rate = {"nanos_per_month": None, "at_most": False, "per": "hour", "nanos": 3_600_000_000, "source": "x"}
    rate |= {
        "as_of": iso_minute(0),
        "basis": "setting",
        "running": True,
        "named": False,
        "quantity": 1,
        "stored_as": "it",
    }
    address = rate | {"what": "public address", "resource": "address", "kept": False}
    disk = rate | {"what": "30 GB of disk", "resource": "disk", "kept": True}
    found = tried(DEFAULT, life(ended(300), attached_costs=[address, disk]), quiet(0, 300))
    assert len(found.history.usages) == 2
    assert found.saved.amount == 2 * (300 - 70) * MINUTE


def test_a_part_of_a_use_is_sure_of_its_end_and_only_the_first_one_is_the_first():
    def at(text):
        return from_iso(bills.moment(f"2026-11-20 {text}"))

    use = bills.use(
        "aws", "2026-11-20 11:00", "2026-11-20 12:00", "3.6", maybe_until="2026-11-20 12:30", reason="taken"
    )
    first, last = cut_usage(use, [(at("11:10"), at("11:20"))], at("13:00"))
    assert (first.maybe_until, first.reason, first.first) == (None, None, True)
    assert (last.maybe_until, last.reason, last.first) == (use.maybe_until, "taken", False)


def test_a_difference_of_ranges_is_a_range():
    assert Amount(1, 5, 9) - Amount(1, 3, 4) == Amount(0, 2, 5)
    assert Amount(5, 5, 5) - Amount(5, 4, 1) == Amount(0, 1, 4)
    assert Amount(1, 2, 3, unpriced=True) + Amount(1, 1, 1) == Amount(2, 3, 4, unpriced=True)
