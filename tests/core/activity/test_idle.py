"""What counts as use of a machine: the rules, signal by signal, and what holds for any samples."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from cloudgpu.core.activity.idle import ACTIVE, BASE, IDLE, UNKNOWN, Thresholds, judge
from tests.examples import some

NOW = 1_800_000_000.0
DAY = 86_400.0
LIMITS = Thresholds()
QUIET = {"cpu": 0.02, "net": 500.0, "disk": 0.0, "in": None, "out": None, "busy": [], "jup": None, "fault": ""}


def _minutes(count=120, **last):
    """Samples of quiet minutes until now; the last one shows what is given."""
    found = [{"t": NOW - 60.0 * ago, "s": 60.0, **QUIET} for ago in reversed(range(count))]
    found[-1].update(last)
    return found


def _judge(samples, limits=LIMITS, now=NOW, up=DAY):
    return judge(samples, limits, now, NOW - up)


def test_a_quiet_hour_is_idle_and_the_start_is_the_last_sign():
    judged = _judge(_minutes())
    assert (judged.activity, judged.ago) == (IDLE, DAY)


def test_nothing_seen_at_all_is_said():
    judged = _judge(_minutes(), LIMITS._replace(uptime=0.0))
    assert (judged.activity, judged.ago, judged.why) == (IDLE, -1, "nothing runs")


@pytest.mark.parametrize(
    ("shown", "what"),
    [
        ({"gpu": 3}, "GPU"),
        ({"cpu": 0.27}, "CPU"),
        ({"net": 100e3}, "network"),
        ({"disk": 1e6}, "disk"),
        ({"in": 5.0}, "terminal input"),
        ({"in": 4000.0, "out": 5.0}, "terminal output"),
        ({"jup": 5.0}, "kernel"),
        ({"busy": ["k1"]}, "busy kernel"),
        ({"job": ["job-0123456789"]}, "running job"),
    ],
)
def test_each_signal_alone_makes_a_machine_active(shown, what):
    judged = _judge(_minutes(**shown))
    assert judged.activity == ACTIVE
    assert judged.why.startswith(what + ", ")
    assert [signal.what for signal in judged.signals if signal.counts] == [what]


@pytest.mark.parametrize("shown", [{"gpu": 2.9}, {"cpu": 0.26}, {"net": 99e3}, {"disk": 0.9e6}, {"mem": 70_000}])
def test_below_its_limit_nothing_counts(shown):
    assert _judge(_minutes(**shown)).activity == IDLE


@pytest.mark.parametrize(("typed", "said"), [(7100.0, ACTIVE), (7300.0, IDLE), (None, IDLE)])
def test_output_alone_counts_for_two_hours_after_the_last_input(typed, said):
    """A `top` left open, and a terminal in which nobody ever typed."""
    assert _judge(_minutes(**{"in": typed, "out": 1.0})).activity == said


def test_a_running_job_counts_whatever_the_gpu_does_and_is_no_row_where_there_is_none():
    judged = _judge(_minutes(job=["job-0123456789"], gpu=None))
    assert judged.activity == ACTIVE
    assert [one.value for one in judged.signals if one.what == "running job"] == [["job-0123456789"]]
    assert "running job" not in [one.what for one in _judge(_minutes()).signals]


def test_a_busy_kernel_counts_whatever_the_gpu_does():
    assert _judge(_minutes(busy=["k1"], gpu=None)).activity == ACTIVE


@pytest.mark.parametrize("key", ["gpu", "cpu", "net", "disk"])
def test_what_could_not_be_read_is_unknown_and_never_zero(key):
    judged = _judge([{**one, key: None} for one in _minutes()])
    assert judged.activity == UNKNOWN
    assert "not read" in judged.why


def test_a_machine_without_a_gpu_is_judged_without_one():
    judged = _judge(_minutes())
    assert judged.activity == IDLE
    assert "GPU" not in [signal.what for signal in judged.signals]


def test_a_fault_is_unknown_and_says_itself():
    judged = _judge([{**one, "fault": "JupyterLab: it died"} for one in _minutes()])
    assert (judged.activity, judged.why) == (UNKNOWN, "JupyterLab: it died: 0 of 60 min are known")


def test_what_lives_outweighs_what_is_not_known():
    assert _judge([{**one, "fault": "JupyterLab: it died"} for one in _minutes(**{"in": 2.0})]).activity == ACTIVE


@pytest.mark.parametrize(("missing", "said"), [(6, IDLE), (7, UNKNOWN)])
def test_nine_tenths_of_the_window_have_to_be_there(missing, said):
    samples = _minutes()
    assert _judge(samples[: -30 - missing] + samples[-30:]).activity == said


def test_silence_of_the_last_minutes_is_not_idleness():
    long = LIMITS._replace(after=8 * 3600.0)
    assert _judge(_minutes(600), long).activity == IDLE
    assert _judge(_minutes(600), long, NOW + 299).activity == IDLE
    assert _judge(_minutes(600), long, NOW + 301).activity == UNKNOWN


def test_samples_of_the_same_minutes_count_once():
    samples = _minutes()
    assert _judge(samples[:-20] * 3).activity == UNKNOWN


@pytest.mark.parametrize(("up", "uptime", "said"), [(3590, 1800, ACTIVE), (3610, 1800, IDLE), (3610, 7200, ACTIVE)])
def test_a_start_counts_as_activity(up, uptime, said):
    assert _judge(_minutes(60), LIMITS._replace(uptime=float(uptime)), up=up).activity == said


def test_where_a_start_is_no_sign_a_young_machine_is_judged_by_its_own_minutes():
    limits = LIMITS._replace(after=600.0, uptime=0.0)
    assert _judge(_minutes(2), limits, up=180).activity == IDLE
    assert _judge(_minutes(1), limits, up=300).activity == UNKNOWN
    assert _judge([], limits, up=30).activity == UNKNOWN


def test_a_machines_own_noise_is_no_activity():
    assert _judge([{**one, "cpu": 0.09} for one in _minutes(cpu=0.33)]).activity == IDLE
    assert _judge([{**one, "cpu": 0.33} for one in _minutes()], LIMITS._replace(cpu=0.24)).activity == IDLE


def test_a_job_that_runs_from_the_boot_on_is_no_noise():
    assert _judge([{**one, "cpu": BASE + LIMITS.cpu} for one in _minutes()]).activity == ACTIVE


def test_each_signal_tells_its_reading_its_limit_and_when_it_last_counted():
    samples = _minutes(**{"in": 30.0})
    samples[-100].update(gpu=80)
    signals = {signal.what: signal for signal in _judge([{"gpu": 1, **one} for one in samples]).signals}
    assert signals["GPU"] == ("GPU", 1, 3.0, 99 * 60, False)
    assert signals["CPU"][1:3] == (0.02, 0.27)
    assert signals["terminal input"] == ("terminal input", 30.0, 3600.0, 30.0, True)
    assert signals["kernel"] == ("kernel", None, 3600.0, -1, False)


readings = st.fixed_dictionaries(
    {
        "cpu": st.one_of(st.none(), st.floats(0, 4)),
        "net": st.one_of(st.none(), st.floats(0, 3e5)),
        "disk": st.one_of(st.none(), st.floats(0, 3e6)),
        "in": st.one_of(st.none(), st.floats(0, 20_000)),
        "out": st.one_of(st.none(), st.floats(0, 20_000)),
        "jup": st.one_of(st.none(), st.floats(0, 20_000)),
        "busy": st.sampled_from([[], ["k1"]]),
        "fault": st.sampled_from(["", "", "", "a fault"]),
    },
    optional={"gpu": st.one_of(st.none(), st.integers(0, 100))},
)
quiet_readings = st.fixed_dictionaries({"cpu": st.floats(0, 0.2), "net": st.floats(0, 9e4), "disk": st.floats(0, 9e5)})
histories = st.lists(st.one_of(readings, quiet_readings), max_size=70).map(
    lambda found: [{"t": NOW - 60.0 * ago, "s": 60.0, **one} for ago, one in enumerate(found)]
)
signs = st.sampled_from(
    [{"gpu": 50}, {"cpu": 8.0}, {"net": 1e7}, {"disk": 1e8}, {"in": 0.0}, {"jup": 0.0}, {"busy": ["k"]}]
)
common = settings(max_examples=some(80), deadline=None)


@common
@given(samples=histories, sign=signs, data=st.data())
def test_more_activity_never_makes_a_machine_idle(samples, sign, data):
    at = data.draw(st.integers(0, 58))
    more = [*samples, {"t": NOW - 60.0 * at, "s": 60.0, **sign}]
    assert _judge(more).activity == ACTIVE


@common
@given(samples=histories, data=st.data())
def test_less_that_is_known_never_makes_an_unknown_or_silent_machine_idle(samples, data):
    kept = data.draw(st.lists(st.sampled_from(samples), unique_by=id) if samples else st.just([]))
    if _judge(samples).activity == UNKNOWN:
        assert _judge(kept).activity == UNKNOWN
    if len(kept) < 54:
        assert _judge(kept).activity != IDLE


@common
@given(samples=histories, data=st.data())
def test_the_order_of_samples_means_nothing(samples, data):
    assert _judge(data.draw(st.permutations(samples))) == _judge(samples)


@common
@given(samples=histories, shift=st.floats(-1e8, 1e8))
def test_it_is_the_same_by_any_clock(samples, shift):
    """Ages count: a clock that is an hour, or three years, off makes nothing older."""
    moved = judge([{**one, "t": one["t"] + shift} for one in samples], LIMITS, NOW + shift, NOW + shift - DAY)
    assert moved.activity == _judge(samples).activity


@common
@given(samples=histories, up=st.floats(0, 3599), uptime=st.floats(1, 7200))
def test_a_machine_that_started_within_the_window_is_never_idle(samples, up, uptime):
    assert _judge(samples, LIMITS._replace(uptime=uptime), up=up).activity == ACTIVE


def test_a_look_of_a_moment_is_no_measure_of_the_processors_own_noise():
    """The agent's unfinished sample, and the one that a question adds, show next to no work of the processor."""
    steady = [{**one, "cpu": 0.3} for one in _minutes()]
    assert _judge(steady).activity == IDLE
    moment = {**QUIET, "t": NOW, "s": 1.0, "cpu": 0.0, "fault": "the agent is silent"}
    assert _judge([*steady, moment]).activity == IDLE


# Read by the agent on a computer with an H100 (driver 580): before, while and after a kernel of PyTorch ran there.
H100 = {
    IDLE: {"cpu": 0.011, "net": 42414.414, "disk": 102101.431},
    ACTIVE: {"cpu": 1.002, "net": 0.0, "disk": 136.379, "gpus": 1.0, "power": 405.995, "gpu": 100.0},
}


@pytest.mark.parametrize("activity", [IDLE, ACTIVE])
def test_minutes_of_a_real_gpu_are_judged_as_they_were(activity):
    minute = {**QUIET, **H100[activity]}
    judged = _judge([{"t": NOW - 60.0 * ago, "s": 60.06, **minute} for ago in range(60)])
    assert judged.activity == activity
    if activity == ACTIVE:
        assert ("GPU", 100.0, True) in [(one.what, one.value, one.counts) for one in judged.signals]
