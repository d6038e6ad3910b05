"""The cloud beside a desktop: three cases of what is not known, points on the curve, paces, small histories."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings, strategies as st

from cloudgpu.core.activity.utilization import Hour
from cloudgpu.core.advice.compare import (
    Case,
    History,
    RentedMachine,
    UsedSeconds,
    by_day,
    comparisons,
    desktop_work,
    gpu_seconds_by_day,
)
from cloudgpu.core.advice.desktop import YEAR, Depreciation, Desktop, ownership_cost
from cloudgpu.core.billing.daily import CostRange
from cloudgpu.core.billing.rules import PARTS_PER_NANO
from cloudgpu.core.catalog.gpus import EQUAL_SPEED, RatioBasis, SpeedRatio
from cloudgpu.core.values.money import ZERO, Money
from cloudgpu.core.values.units import Power, Tariff
from tests.examples import some

BEGIN = datetime(2026, 11, 1, tzinfo=UTC)
DAY = timedelta(days=1)
HOUR = 3600.0
DOLLAR = 10**9 * PARTS_PER_NANO
# It takes 1 kW at work and nothing else, at $0.10 a kilowatt-hour: ten cents for an hour of work.
PLAIN = Desktop(
    name="plain",
    gpu="RTX 3090",
    gpus=1,
    purchase=Money.usd(1000),
    life=4 * YEAR,
    gpu_power=Power.of(1000),
    rest_power=Power.of(0),
    idle_power=Power.of(0),
    tariff=Tariff(Money.usd("0.1")),
    source="a test",
    as_of=date(2026, 11, 1),
)
TWICE = SpeedRatio(Fraction(2), Fraction(1), Fraction(4), RatioBasis.BANDWIDTH)  # once to four times as fast


def machine(*days, **more):
    """A machine with these (gpu, used, idle, unknown) hours from the first day on."""
    spent = {(BEGIN + n * DAY).date(): UsedSeconds(*(part * HOUR for part in one)) for n, one in enumerate(days)}
    usual = {"name": "fox", "gpu": "v100", "gpus": 1.0, "memory_gib": 16.0, "speed": EQUAL_SPEED, "is_measured": True}
    return RentedMachine(**(usual | more), days=spent)


def history(costs, machines=(), *, end=None, zone=UTC):
    """What the cloud cost on each day from the first on, in dollars: one figure, or (low, amount, high)."""
    sums = [CostRange(*(one if isinstance(one, tuple) else (one, one, one))) for one in costs]
    days = {(BEGIN + n * DAY).date(): CostRange(*(part * DOLLAR for part in one)) for n, one in enumerate(sums)}
    return History(BEGIN, end or BEGIN + len(costs) * DAY, zone, days, tuple(machines))


def hours_of(found):
    return {day.day: seconds / HOUR for day, seconds in found.items()}


def test_unknown_hours_are_work_for_the_cloud_and_none_for_the_desktop():
    one = machine((3, 1, 4, 2), (0, 0, 0, 6))
    # Of 3 + 1 + 4 known hours 3 were work: expected is that part, 3/8, of the unknown ones.
    assert hours_of(gpu_seconds_by_day(one, Case.LOW)) == {1: 5, 2: 6}
    assert hours_of(gpu_seconds_by_day(one, Case.EXPECTED)) == {1: 3 + 2 * 3 / 8, 2: 6 * 3 / 8}
    assert hours_of(gpu_seconds_by_day(one, Case.HIGH)) == {1: 3, 2: 0}


def test_of_a_machine_of_which_nothing_is_known_all_is_expected_to_be_work():
    one = machine((0, 0, 0, 10))
    assert [hours_of(gpu_seconds_by_day(one, case))[1] for case in Case] == [10, 10, 0]


def test_where_no_gpu_is_read_all_use_is_work_and_without_gpus_none_is():
    assert hours_of(gpu_seconds_by_day(machine((0, 5, 3, 0), is_measured=False), Case.HIGH)) == {1: 5}
    assert hours_of(gpu_seconds_by_day(machine((0, 5, 3, 0)), Case.HIGH)) == {1: 0}
    assert gpu_seconds_by_day(machine((0, 5, 3, 8), gpus=0.0), Case.LOW) == {}


def test_hours_are_scaled_by_speed_by_gpus_and_by_a_share_of_one():
    four, half = machine((6, 0, 0, 0), gpus=4.0, speed=TWICE), machine((6, 0, 0, 0), gpus=0.5)
    # 6 h x 4 GPUs at half the speed of the desktop's: 12 h of one; to a quarter and to the whole: 6 h and 24 h.
    assert [hours_of(desktop_work([four], case, 1))[1] for case in Case] == [24, 12, 6]
    assert [hours_of(desktop_work([four], case, 2))[1] for case in Case] == [12, 6, 3]
    assert hours_of(desktop_work([four, half], Case.EXPECTED, 1)) == {1: 12 + 3}


def test_an_hour_is_of_the_day_on_which_it_begins():
    at = datetime(2026, 11, 1, 14, tzinfo=UTC)
    hours = [Hour(at, 60, 0, 0, 3540), Hour(at + timedelta(hours=1), 0, 1, 2, 3)]
    seoul = {one.at: one.at.astimezone(ZoneInfo("Asia/Seoul")).date() for one in hours}
    assert by_day(hours, seoul) == {date(2026, 11, 1): (60, 0, 0, 3540), date(2026, 11, 2): (0, 1, 2, 3)}


def test_the_cloud_is_the_dearer_one_from_the_day_on_whose_evening_it_had_cost_as_much():
    # $300 a day and 10 h of work, $1 of electricity: 900 of 1003 after three days, 1200 of 1004 after four.
    four = history([300] * 4, [machine(*[(10, 0, 14, 0)] * 4)])
    found = comparisons(four, PLAIN, goes_on=True)[Case.EXPECTED]
    assert (found.cloud, found.worked, found.owned.total) == (
        Money.usd(1200), timedelta(hours=40), Money.usd(1004),
    )  # fmt: skip
    assert (found.first_break_even, found.costlier_since, found.projected_break_even) == (
        BEGIN + 4 * DAY,
        BEGIN + 4 * DAY,
        None,
    )
    assert found.busiest == (date(2026, 11, 1), timedelta(hours=10))


def test_what_goes_on_at_its_pace_meets_when_both_have_cost_the_same():
    # $20 a day and 10 h of work: after 10 days 200 of 1010, and each day 19 nearer: 810/19 days on.
    ten = history([20] * 10, [machine(*[(10, 0, 14, 0)] * 10)])
    found = comparisons(ten, PLAIN, goes_on=True)
    after = (found[Case.EXPECTED].projected_break_even - ten.end) / DAY
    assert abs(after - 810 / 19) < 1e-9
    assert {case: side.projected_break_even for case, side in found.items()} == dict.fromkeys(
        Case, found[Case.EXPECTED].projected_break_even
    )
    assert comparisons(ten, PLAIN, goes_on=False)[Case.EXPECTED].projected_break_even is None


def test_bought_anew_the_desktop_is_the_dearer_one_again():
    # $1 a day beside $1000 for 4 years of 365 days: met on day 1000. On day 1460 it is bought anew: 1460 of 2000, which
    # is met on day 2000.
    side = comparisons(history([1] * 10), PLAIN, goes_on=True)[Case.EXPECTED]
    times = (side.projected_break_even, *side.desktop_costlier)
    assert [round((at - BEGIN) / DAY, 6) for at in times] == [1000, 1460, 2000]


def test_the_pace_is_of_the_last_thirty_days_and_its_bounds_are_their_weeks():
    # 60 days, $100 on each of the first 30, then $10, but for 70 on the last.
    sixty = history([100] * 30 + [10] * 29 + [70], [])
    paces = {case: side.pace.cloud for case, side in comparisons(sixty, PLAIN, goes_on=True).items()}
    # (29 x 10 + 70) / 30 = 12; the cheapest week has 10 a day. The dearest whole week before the last day has 10, too,
    # which is less than expected.
    assert paces == {Case.LOW: Money.usd(10), Case.EXPECTED: Money.usd(12), Case.HIGH: Money.usd(12)}
    spiked = history([10] * 20 + [80] + [10] * 9, [])
    paces = {case: side.pace.cloud for case, side in comparisons(spiked, PLAIN, goes_on=True).items()}
    # (29 x 10 + 80) / 30; a week with the spike: (6 x 10 + 80) / 7 = 20.
    assert paces[Case.HIGH] == Money.usd(20)
    assert paces[Case.LOW] == Money.usd(10)


def test_less_than_a_day_has_no_pace():
    short = history([3], [machine((1, 0, 0, 0))], end=BEGIN + timedelta(hours=1))
    side = comparisons(short, PLAIN, goes_on=True)[Case.EXPECTED]
    assert (side.pace, side.projected_break_even) == (None, None)
    assert side.owned.number == 1


def test_work_for_more_than_all_the_time_takes_more_desktops():
    # 8 GPUs for 10 h on one day: 80 h within 24 take four; they use 80 kWh, $8.
    side = comparisons(history([100], [machine((10, 0, 0, 0), gpus=8.0)]), PLAIN, goes_on=True)[Case.EXPECTED]
    assert (side.owned.number, side.owned.total) == (4, Money.usd(4008))
    assert side.busiest == (date(2026, 11, 1), timedelta(hours=80))


def test_what_an_hour_asked_of_many_machines_need_not_be_done_within_it():
    # An hour of 8 GPUs is 8 h of one desktop, not eight desktops: 8 kWh, and a third of a day in use.
    hour = history([40], [machine((1, 0, 0, 0), gpus=8.0)], end=BEGIN + timedelta(hours=1))
    side = comparisons(hour, PLAIN, goes_on=True)[Case.EXPECTED]
    assert (side.owned.number, side.owned.worked, side.owned.total) == (1, timedelta(hours=8), Money.usd("1000.8"))


def test_a_machine_at_work_all_the_time_takes_one_desktop_whatever_fractions_add_up_to():
    end = BEGIN + timedelta(hours=24 * 3)
    busy = RentedMachine("fox", "v100", 1.0, 16.0, EQUAL_SPEED, True, {
        (BEGIN + n * DAY).date(): UsedSeconds(gpu=sum([0.1] * 864_000)) for n in range(3)
    })  # fmt: skip
    assert comparisons(history([9] * 3, [busy], end=end), PLAIN, goes_on=True)[Case.EXPECTED].owned.number == 1


def test_what_is_billed_ahead_is_in_the_last_point():
    ahead = history([5, 7], [], end=BEGIN + timedelta(hours=3))
    side = comparisons(ahead, PLAIN, goes_on=True)[Case.EXPECTED]
    assert [(point.at, point.cloud) for point in side.points] == [(ahead.end, Money.usd(12))]


def test_use_and_price_at_which_both_cost_the_same_over_the_desktops_life():
    # $1.10 came an hour of work to, of which $1 is not electricity: 1,000 h pay the desktop, of 35,040 in four years.
    side = comparisons(history([11], [machine((10, 0, 0, 0))]), PLAIN, goes_on=True)[Case.EXPECTED]
    assert side.break_even_use == Fraction(1000, 35_040)
    # At 10 h of 24, 14,600 h in four years: 1000 / 14600 and ten cents of electricity each.
    assert side.break_even_price == Money(round(Fraction(10**12, 14_600)) + 10**8)
    idle = comparisons(history([11], [machine((0, 0, 10, 0))]), PLAIN, goes_on=True)[Case.EXPECTED]
    assert (idle.break_even_use, idle.break_even_price, idle.worked) == (None, None, timedelta(0))


def test_it_is_the_dearer_one_since_it_last_became_that():
    # By a straight line the desktop loses $1000 / 1460 a day. One dollar on the first day is dearer for a day; then
    # nothing, and $500 on the tenth.
    from dataclasses import replace

    straight = replace(PLAIN, depreciation=Depreciation.STRAIGHT)
    side = comparisons(history([1] + [0] * 8 + [500]), straight, goes_on=True)[Case.EXPECTED]
    assert side.first_break_even == BEGIN + DAY
    assert side.costlier_since == BEGIN + 10 * DAY


hours = st.floats(0, 24, allow_nan=False)
speeds = st.sampled_from(
    [EQUAL_SPEED, TWICE, SpeedRatio(Fraction(1, 3), Fraction(1, 9), Fraction(1, 2), RatioBasis.TENSOR)]
)
machines = st.builds(
    lambda days, gpus, speed, read: machine(*days, gpus=gpus, speed=speed, is_measured=read),
    st.lists(st.tuples(hours, hours, hours, hours).map(lambda one: tuple(part / 4 for part in one)), max_size=9),
    st.sampled_from([0.0, 0.5, 1.0, 8.0]),
    speeds,
    st.booleans(),
)
dollars = st.tuples(st.integers(0, 99), st.integers(0, 99), st.integers(0, 99)).map(lambda one: tuple(sorted(one)))
histories = st.builds(
    lambda costs, ran, late, zone: history(
        costs, ran, end=BEGIN + len(costs) * DAY + timedelta(seconds=late), zone=ZoneInfo(zone)
    ),
    st.lists(dollars, max_size=12),
    st.lists(machines, max_size=3),
    st.sampled_from([0, 1, 3600, 40 * 86_400]),
    st.sampled_from(["UTC", "Asia/Kathmandu", "America/New_York"]),
)


@settings(max_examples=some(60))
@given(histories, st.sampled_from([Depreciation.NONE, Depreciation.STRAIGHT]), st.booleans())
def test_any_history_has_three_cases_in_their_order_and_points_that_are_on_the_curve(past, depreciation, goes_on):
    from dataclasses import replace

    desktop = replace(PLAIN, depreciation=depreciation, idle_power=Power.of(50))
    found = comparisons(past, desktop, goes_on=goes_on)
    low, usual, high = (found[case] for case in Case)
    assert low.cloud <= usual.cloud <= high.cloud
    assert low.worked >= usual.worked >= high.worked
    for number, side in enumerate((low, usual, high)):
        assert side.cloud == Money(sum(one[number] for one in past.cloud.values()) // PARTS_PER_NANO)
        assert side.points[-1].at == max(past.begin, past.end)
        assert [point.at for point in side.points] == sorted({point.at for point in side.points})
        dearer = [point.at for point in side.points if is_dearer(past, side, point, desktop)]
        assert side.first_break_even == (dearer[0] if dearer else None)
        assert (side.costlier_since is not None) == (side.points[-1].at in dearer)
        assert side.projected_break_even is None or (
            goes_on and side.costlier_since is None and side.projected_break_even >= past.end
        )


def is_dearer(past, side, point, desktop):
    """Computed anew from the costs of owning, not by the code that looks for the first such time."""
    elapsed = point.at - past.begin
    done = min(point.worked, elapsed * side.owned.number)
    return point.cloud != ZERO and point.cloud >= ownership_cost(desktop, elapsed, done, side.owned.number).total


@pytest.mark.parametrize("zone", ["UTC", "Asia/Seoul"])
def test_nothing_at_all_is_no_fault(zone):
    side = comparisons(history([], zone=ZoneInfo(zone)), PLAIN, goes_on=True)[Case.EXPECTED]
    assert (side.cloud, side.worked, side.first_break_even, side.projected_break_even) == (
        ZERO,
        timedelta(0),
        None,
        None,
    )
    assert (side.break_even_use, side.busiest) == (None, None)
