from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from cloudgpu.core.activity.idle import Thresholds
from cloudgpu.core.activity.utilization import (
    GPU,
    IDLE,
    KINDS,
    UNKNOWN,
    USED,
    ActivityReport,
    Hour,
    UsageSpan,
    hours,
    join_days,
    kind_of,
    usage_intervals,
)
from cloudgpu.core.reaper.replay import signs_of

H = int(datetime(2026, 11, 21, 10, tzinfo=UTC).timestamp())
AT = datetime(2026, 11, 21, 10, tzinfo=UTC)
QUIET = {"cpu": 0.02, "net": 400, "disk": 0}


def sample(minute, **more):
    """Return the sample of a quiet minute that ends then, by minutes since 10:00."""
    return {"t": H + 60 * minute, "s": 60, **QUIET, **more}


def minutes(begin, end, **more):
    return [sample(minute, **more) for minute in range(begin + 1, end + 1)]


def one_hour(samples, begin=H, end=H + 3600, word=None):
    (found,) = hours(usage_intervals(samples), [(begin, end)], word)
    return found


# -- what one sample shows

near = st.sampled_from([0, 0.05, 0.09, 0.1, 0.25, 0.3, 0.349, 0.35, 2.9, 3, 3.0, 59.5, 60, 60.9, 61, 61.5, 99e3, 1e5])
readings = st.none() | near | st.floats(0, 2e6)
ages = st.none() | st.sampled_from([0, 0.0, 59, 60.5, 61, 62, 7200, 7199, 7261, 7262]) | st.floats(0, 9000)
generated = st.fixed_dictionaries(
    {"t": st.just(float(H)), "s": st.sampled_from([60, 60.0, 61.5, 59.9, 1.0, 30.0, 120.0])},
    optional={
        **dict.fromkeys(("gpu", "cpu", "net", "disk"), readings),
        **dict.fromkeys(("in", "out", "jup"), ages),
        "busy": st.just([]) | st.just(["kernel 1"]),
        "fault": st.sampled_from(["", "JupyterLab: it hangs"]),
        "power": readings,
    },
)


@given(generated)
def test_the_fast_rule_finds_use_where_the_rule_of_idleness_does(one):
    signs, kind = signs_of(one, Thresholds()), kind_of(one)
    assert (kind in (GPU, USED)) == bool(signs)
    assert (kind == GPU) == ("GPU" in signs)
    if kind == IDLE:
        assert not one.get("fault")
        assert None not in [one.get(name, 0) for name in ("gpu", "cpu", "net", "disk")]


@pytest.mark.parametrize(
    ("shown", "kind"),
    [
        ({}, IDLE),
        ({"gpu": 0.0}, IDLE),
        ({"gpu": 3.0}, GPU),
        ({"gpu": 2.9}, IDLE),
        ({"gpu": 97.0, "fault": "JupyterLab: it hangs"}, GPU),
        ({"gpu": None}, UNKNOWN),
        ({"gpu": None, "busy": ["k"]}, USED),
        ({"gpu": None, "job": ["j"]}, USED),
        ({"fault": "it hangs"}, UNKNOWN),
        ({"fault": "it hangs", "net": 1e6}, USED),
        ({"in": 20.0}, USED),
        ({"out": 20.0}, IDLE),
        ({"out": 20.0, "in": 9000.0}, IDLE),
        ({"out": 20.0, "in": 300.0}, USED),
        ({"power": None}, IDLE),
    ],
)
def test_what_a_sample_shows(shown, kind):
    assert kind_of(sample(0, **shown)) == kind


# -- hours


def test_an_hour_is_split_by_what_its_minutes_show():
    shown = [*minutes(0, 20, gpu=90), *minutes(20, 30, gpu=0, busy=["k"]), *minutes(30, 50, gpu=0)]
    assert one_hour(shown) == Hour(AT, gpu_s=1200, used_s=600, idle_s=1200, unknown_s=600)


def test_a_machine_without_a_gpu_is_used_and_not_unknown():
    assert one_hour([*minutes(0, 30, cpu=3.0), *minutes(30, 60)]) == Hour(AT, 0, 1800, 1800, 0)


def test_only_billed_time_counts_and_each_second_once():
    shown = minutes(-60, 120, gpu=90)
    runs = [(H + 600, H + 1200.5), (H + 1000, H + 4200)]
    assert hours(usage_intervals(shown), runs) == (
        Hour(AT, gpu_s=3000, used_s=0, idle_s=0, unknown_s=0),
        Hour(datetime(2026, 11, 21, 11, tzinfo=UTC), gpu_s=600, used_s=0, idle_s=0, unknown_s=0),
    )


def test_without_samples_billed_time_is_unknown():
    assert hours((), [(H + 3000.25, H + 4000)]) == (
        Hour(AT, 0, 0, 0, 599.75),
        Hour(datetime(2026, 11, 21, 11, tzinfo=UTC), 0, 0, 0, 400),
    )
    assert hours((), []) == hours((), [(H, H)]) == hours(usage_intervals(minutes(0, 60)), []) == ()


def test_samples_that_overlap_count_once_and_moments_between_them_are_no_gap():
    shown = [{**sample(n, gpu=90), "t": H + 60 * n + shift} for n, shift in ((1, 0.0), (2, 0.7), (3, -0.4), (4, 30.0))]
    assert usage_intervals(shown) == (UsageSpan(H, H + 180, GPU), UsageSpan(H + 210, H + 270, GPU))
    late = [sample(1), {**sample(1.5, gpu=90), "s": 60}]
    assert usage_intervals(late) == (UsageSpan(H, H + 60, IDLE), UsageSpan(H + 60, H + 90, GPU))


def test_gpus_that_worked_are_counted_one_at_least_and_only_while_any_did():
    shown = [*minutes(0, 10, gpu=90, gpus=2.0), *minutes(10, 20, gpu=90, gpus=0.2), *minutes(20, 30, gpu=0, gpus=0.0)]
    shown += [*minutes(30, 40, gpu=90), *minutes(40, 60, gpu=90, gpus=None)]
    assert one_hour(shown) == Hour(
        AT, gpu_s=3000, used_s=0, idle_s=600, unknown_s=0, gpu_seconds=1800.0, counted_s=1200
    )
    halves = join_days(
        [usage_intervals(minutes(0, 10, gpu=90, gpus=3.0)), usage_intervals([sample(12, gpu=90, gpus=3.0)])]
    )
    assert sum(one.gpu_seconds for one in halves) == 11 * 180


# -- the machine's own word


def test_what_a_machine_said_itself_is_idle_where_nobody_sampled_it():
    word = ActivityReport(H + 600, H + 3600)
    assert one_hour([], word=word) == Hour(AT, 0, 0, idle_s=3600 - 600 - 660, unknown_s=600 + 660)


def test_samples_count_before_a_word_and_a_fault_is_no_gap():
    shown = [*minutes(0, 20, gpu=90), *minutes(25, 30, fault="it hangs")]
    word = ActivityReport(H + 900, H + 3600)
    assert one_hour(shown, word=word) == Hour(AT, gpu_s=1200, used_s=0, idle_s=300 + 19 * 60, unknown_s=300 + 660)


def test_a_word_is_of_the_last_run_alone_and_of_no_time_after_it():
    runs = [(H, H + 1200), (H + 1800, H + 3600)]
    (found,) = hours((), runs, ActivityReport(H + 100, H + 90_000))
    assert found == Hour(AT, 0, 0, idle_s=1800, unknown_s=1200)
    assert one_hour([], word=ActivityReport(H + 3000, H + 3100)).unknown_s == 3600


# -- power


def test_joules_are_summed_where_they_were_measured():
    shown = [*minutes(0, 10, gpu=90, power=300.0), *minutes(10, 20, power=0), *minutes(20, 30, gpu=90, power=None)]
    found = one_hour(shown)
    assert (found.joules, found.drawing_s) == (300.0 * 600, 600)
    assert one_hour(minutes(0, 30, gpu=90)).joules is None
    assert one_hour(minutes(0, 30, power=0.0)).joules == 0


def test_joules_of_a_part_are_that_part_of_them():
    shown = minutes(0, 120, gpu=90, power=100.0)
    first, second = hours(usage_intervals(shown), [(H + 1800, H + 4200)])
    assert (first.joules, second.joules) == (180_000, 60_000)


# -- laws

worn = st.lists(st.tuples(st.integers(1, 90), st.sampled_from([1, 5, 60, 61.3]), generated), max_size=40)


@given(worn, st.lists(st.tuples(st.integers(-9, 60), st.integers(0, 90)), min_size=1, max_size=4), st.booleans())
def test_an_hours_parts_add_up_to_what_was_billed_of_it(steps, lengths, spoke):
    now, shown = float(H), []
    for gap, length, one in steps:
        now += gap
        shown.append({**one, "t": now, "s": length})
    runs = [(H + 60 * begin, H + 60 * (begin + length)) for begin, length in lengths]
    found = hours(usage_intervals(shown), runs, ActivityReport(H + 100, H + 5000) if spoke else None)
    billed = {minute for begin, length in lengths for minute in range(begin, begin + length)}
    for one in found:
        first = (one.at.timestamp() - H) / 60
        assert one.gpu_s + one.used_s + one.idle_s + one.unknown_s == 60 * len(
            [n for n in billed if 0 <= n - first < 60]
        )
        assert min(one.gpu_s, one.used_s, one.idle_s, one.unknown_s) >= 0
    assert sum(one.gpu_s + one.used_s + one.idle_s + one.unknown_s for one in found) == 60 * len(billed)


@given(worn, st.integers(0, 40))
def test_days_that_are_summed_up_apart_say_what_they_say_together(steps, cut):
    now, shown = float(H), []
    for gap, length, one in steps:
        now += gap
        shown.append({**one, "t": now, "s": length})
    whole, parts = (
        join_days([usage_intervals(shown)]),
        join_days([usage_intervals(shown[:cut]), usage_intervals(shown[cut:])]),
    )
    runs = [(H - 600, H + 7200)]
    known = hours(whole, runs), hours(parts, runs)
    assert [(one.gpu_s, one.used_s, one.idle_s) for one in known[0]] == [
        (one.gpu_s, one.used_s, one.idle_s) for one in known[1]
    ]
    assert all(one.end > one.begin and one.kind in KINDS for one in parts)
    assert all(one.end <= other.begin for one, other in pairwise(parts))
