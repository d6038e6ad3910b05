"""Offs by the clocks of real zones: each fires once, whatever the clock does and whichever run was missed."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings, strategies as st

from cloudgpu.core.policies.schedule import (
    EVERY_DAY,
    Schedule,
    last_off,
    missed_off,
    next_scheduled_end,
    off_until,
    offs_between,
)
from tests.examples import some

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
PARIS = "Europe/Paris"
# Days on which the clocks of a zone change, and what is odd about it.
CHANGES = [
    (PARIS, date(2026, 3, 29)),
    (PARIS, date(2026, 10, 25)),
    ("America/New_York", date(2026, 3, 8)),
    ("America/New_York", date(2026, 11, 1)),
    ("Australia/Lord_Howe", date(2026, 4, 5)),  # by half an hour
    ("Australia/Lord_Howe", date(2026, 10, 4)),
    ("Pacific/Apia", date(2011, 12, 30)),  # a day that was left out
    ("Africa/Casablanca", date(2026, 2, 15)),  # for Ramadan, by the moon
    ("Africa/Casablanca", date(2026, 3, 22)),
    ("America/Havana", date(2026, 3, 8)),  # from midnight on: the day begins at one
    ("America/Havana", date(2026, 11, 1)),
    ("America/Scoresbysund", date(2024, 3, 31)),  # over midnight, and another zone from then on
    ("America/St_Johns", date(2006, 10, 29)),  # one minute past midnight, back into the day before
    ("Asia/Kathmandu", date(2026, 6, 1)),  # never, and at a quarter of an hour
    ("UTC", date(2026, 1, 1)),
]
clocks = st.builds(time, st.integers(0, 23), st.integers(0, 59))
some_days = st.frozensets(st.integers(0, 6), min_size=1)


def utc(text):
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def offs(schedule, begin, end):
    return [f"{off:%m-%d %H:%M}" for off in offs_between((schedule,), utc(begin), utc(end))]


def first_reached(schedule, day):
    """Return the first minute at which the zone's clock shows the off of `day` or more: no rule, only looking."""
    wanted, zone = datetime.combine(day, schedule.off), ZoneInfo(schedule.tz)
    at = wanted.replace(tzinfo=UTC) - timedelta(hours=27)
    while at.astimezone(zone).replace(tzinfo=None) < wanted:
        at += MINUTE
    return at


@pytest.mark.parametrize(("tz", "day"), CHANGES)
@settings(max_examples=some(12))
@given(off=clocks, days=some_days)
def test_each_off_fires_when_the_clock_first_shows_it(tz, day, off, days):
    schedule = Schedule(tz, off, days)
    meant = [day + timedelta(days=count) for count in range(-1, 3)]
    expected = {first_reached(schedule, one) for one in meant if one.weekday() in days}
    begin, end = first_reached(schedule, meant[0]) - MINUTE, first_reached(schedule, meant[-1])
    assert list(offs_between((schedule,), begin, end)) == sorted(expected)


@pytest.mark.parametrize(("tz", "day"), CHANGES)
@settings(max_examples=some(25))
@given(
    off=clocks,
    days=some_days,
    excepted_dates=st.frozensets(st.integers(-9, 9), max_size=6),
    minutes=st.integers(-6000, 6000),
)
def test_now_lies_between_the_last_off_and_the_next(tz, day, off, days, excepted_dates, minutes):
    schedule = Schedule(tz, off, days, frozenset(day + timedelta(days=one) for one in excepted_dates))
    now = datetime.combine(day, time(), UTC) + minutes * MINUTE
    before, after = last_off((schedule,), now), next_scheduled_end((schedule,), now)
    assert before <= now < after
    assert next_scheduled_end((schedule,), before) == after
    assert last_off((schedule,), after) == after
    assert last_off((schedule,), after - MINUTE / 60) == before


def test_an_hour_that_does_not_exist_is_the_first_moment_after_the_gap():
    schedule = Schedule(PARIS, time(2, 30))
    assert offs(schedule, "2026-03-28", "2026-03-31") == ["03-28 01:30", "03-29 01:00", "03-30 00:30"]


def test_an_hour_that_comes_twice_fires_the_first_time_only():
    schedule = Schedule(PARIS, time(2, 30))
    assert offs(schedule, "2026-10-24", "2026-10-27") == ["10-24 00:30", "10-25 00:30", "10-26 01:30"]


def test_half_an_hour_is_a_gap_too():
    schedule = Schedule("Australia/Lord_Howe", time(2, 15))
    assert offs(schedule, "2026-10-02T20:00", "2026-10-05") == ["10-03 15:30", "10-04 15:15"]


def test_a_day_that_a_zone_left_out_is_the_first_moment_of_the_next():
    schedule = Schedule("Pacific/Apia", time(19))
    assert offs(schedule, "2011-12-30", "2011-12-31T06:00") == ["12-30 05:00", "12-30 10:00", "12-31 05:00"]


def test_a_clock_set_back_over_midnight_fires_the_off_of_tomorrow_first():
    schedules = (Schedule("America/St_Johns", time(0)),)
    midnight, again = utc("2006-10-29T02:30"), utc("2006-10-29T03:15")  # at 00:01 it was 23:01 again
    assert again.astimezone(ZoneInfo("America/St_Johns")).day == 28
    assert last_off(schedules, again) == midnight
    assert next_scheduled_end(schedules, again) == utc("2006-10-30T03:30")


def test_weekdays_and_exceptions_are_those_of_the_local_date():
    schedule = Schedule("Asia/Seoul", time(7), frozenset(range(5)), frozenset({date(2026, 11, 24)}))
    # Monday 07:00 in Seoul is Sunday evening in UTC
    assert offs(schedule, "2026-11-20T00:00", "2026-11-25T23:00") == ["11-22 22:00", "11-24 22:00", "11-25 22:00"]


def test_a_long_break_is_looked_past():
    break_ = frozenset(date(2026, 7, 1) + timedelta(days=count) for count in range(70))
    schedule = Schedule(PARIS, time(19), frozenset({0}), break_)
    assert next_scheduled_end((schedule,), utc("2026-07-01")) == utc("2026-09-14T17:00")
    assert last_off((schedule,), utc("2026-09-10")) == utc("2026-06-29T17:00")


def test_of_several_schedules_the_nearest_off_counts():
    evening, noon = Schedule(PARIS, time(19), frozenset(range(5))), Schedule("UTC", time(12), frozenset({5}))
    assert next_scheduled_end((evening, noon), utc("2026-11-21T11:00")) == utc("2026-11-21T12:00")
    assert last_off((evening, noon), utc("2026-11-21T11:00")) == utc("2026-11-20T18:00")
    assert next_scheduled_end((), utc("2026-11-21")) is last_off((), utc("2026-11-21")) is None


def test_the_ends_of_time_are_no_fault():
    schedule = Schedule(PARIS, time(19), EVERY_DAY)
    assert next_scheduled_end((schedule,), datetime(9999, 12, 31, 20, tzinfo=UTC)) is None
    assert last_off((schedule,), datetime(1, 1, 1, 12, tzinfo=UTC)) is None


def test_a_missed_run_catches_up_and_a_start_after_an_off_lives_until_the_next():
    schedules = (Schedule(PARIS, time(19)),)
    off = utc("2026-11-20T18:00")
    assert missed_off(schedules, off - 3 * HOUR, off - MINUTE) is None
    assert missed_off(schedules, off - 3 * HOUR, off) == off
    assert missed_off(schedules, off - 3 * HOUR, off + 13 * HOUR) == off  # the laptop slept over seven o'clock
    assert missed_off(schedules, off + MINUTE, off + 23 * HOUR) is None  # somebody started it again
    assert missed_off(schedules, off + MINUTE, off + 24 * HOUR) == off + 24 * HOUR


@pytest.mark.parametrize(("tz", "day"), CHANGES)
@settings(max_examples=some(10))
@given(
    off=clocks,
    gaps=st.lists(st.integers(1, 900), min_size=5, max_size=60),
    back=st.lists(st.integers(1, 700), min_size=1, max_size=8),
)
def test_each_off_ends_a_machine_once_at_the_first_run_after_it(tz, day, off, gaps, back):
    """Passes come whenever they come; somebody starts the machine again some minutes after each stop."""
    schedules = (Schedule(tz, off),)
    begin = now = datetime.combine(day, time(), UTC) - 30 * HOUR
    started, starts, fired = begin, iter(back * len(gaps)), []
    for gap in gaps:
        ran_at, now = now, now + gap * MINUTE
        if started > now:
            continue  # it is stopped still
        due = missed_off(schedules, started, now)
        expected = [one for one in offs_between(schedules, begin, now) if one > started]
        assert due == (expected[-1] if expected else None)
        if due is not None:
            assert all(one > max(ran_at, started - MINUTE) for one in expected)  # the run before had none to fire
            fired.append(due)
            started = now + next(starts) * MINUTE
    assert len(set(fired)) == len(fired)


def at(zone: str, year: int, month: int, day: int, hour: int) -> datetime:
    return datetime(year, month, day, hour, tzinfo=ZoneInfo(zone)).astimezone(UTC)


def test_until_is_by_the_clock_of_the_zone_and_no_exception_keeps_machines_off() -> None:
    friday = Schedule("Europe/Paris", time(19), frozenset({4}), frozenset({date(2026, 4, 4)}), (0, time(7)))
    off = at("Europe/Paris", 2026, 3, 27, 19)  # the clocks go forward on this Sunday
    back = at("Europe/Paris", 2026, 3, 30, 7)
    assert back - off == timedelta(hours=59)
    assert off_until([friday], off - timedelta(seconds=1)) is None
    assert off_until([friday], off) == off_until([friday], back - timedelta(seconds=1)) == back
    assert off_until([friday], back) is None
    assert off_until([friday], at("Europe/Paris", 2026, 4, 4, 12)) is None, "on this Saturday nothing is ended"
    assert off_until([friday], at("Europe/Paris", 2026, 4, 5, 12)) == at("Europe/Paris", 2026, 4, 6, 7)
    assert off_until([Schedule("UTC", time(19))], off) is None


def test_until_the_weekday_of_the_off_is_a_later_time_or_a_week_later() -> None:
    short = Schedule("UTC", time(12), frozenset({5}), until=(5, time(14)))
    assert off_until([short], datetime(2026, 11, 21, 13, tzinfo=UTC)) == datetime(2026, 11, 21, 14, tzinfo=UTC)
    week = Schedule("UTC", time(12), frozenset({5}), until=(5, time(11)))
    assert off_until([week], datetime(2026, 11, 21, 13, tzinfo=UTC)) == datetime(2026, 11, 28, 11, tzinfo=UTC)
