"""Periods begin at the zone's own midnights, and every moment lies in exactly one of each kind."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, strategies as st

from cloudgpu.core.values.times import PERIOD_KINDS, period, periods

ZONES = [
    "UTC", "Asia/Seoul", "Europe/Berlin", "America/New_York", "America/Sao_Paulo", "America/St_Johns",
    "Pacific/Apia", "Asia/Beirut", "Australia/Lord_Howe", "America/Havana",
]  # fmt: skip


def at(text):
    return datetime.fromisoformat(text).astimezone(UTC)


@pytest.mark.parametrize(
    ("kind", "zone", "now", "begin", "end"),
    [
        ("day", "UTC", "2026-11-21T15:00+00:00", "2026-11-21T00:00+00:00", "2026-11-22T00:00+00:00"),
        ("week", "UTC", "2026-11-21T15:00+00:00", "2026-11-16T00:00+00:00", "2026-11-23T00:00+00:00"),
        ("month", "UTC", "2026-11-30T23:59+00:00", "2026-11-01T00:00+00:00", "2026-12-01T00:00+00:00"),
        ("month", "Asia/Seoul", "2026-11-30T15:00+00:00", "2026-12-01T00:00+09:00", "2027-01-01T00:00+09:00"),
        ("day", "Europe/Berlin", "2026-03-29T12:00+00:00", "2026-03-29T00:00+01:00", "2026-03-30T00:00+02:00"),
        ("day", "Europe/Berlin", "2026-10-25T12:00+00:00", "2026-10-25T00:00+02:00", "2026-10-26T00:00+01:00"),
        ("month", "Europe/Berlin", "2026-03-31T21:59+00:00", "2026-03-01T00:00+01:00", "2026-04-01T00:00+02:00"),
        # the clock of Sao Paulo went from 24:00 to 01:00: this day began an hour "late"
        ("day", "America/Sao_Paulo", "2018-11-04T12:00+00:00", "2018-11-04T03:00+00:00", "2018-11-05T02:00+00:00"),
    ],
)
def test_a_period_begins_and_ends_at_midnights_of_its_zone(kind, zone, now, begin, end):
    found = period(kind, at(now), ZoneInfo(zone))
    assert (found.begin, found.end) == (at(begin), at(end))


def test_a_day_that_was_left_out_is_in_no_period():
    """Samoa went from the 29th to the 31st of December 2011."""
    zone = ZoneInfo("Pacific/Apia")
    days = list(periods("day", at("2011-12-29T12:00+00:00"), at("2012-01-01T12:00+00:00"), zone))
    assert [one.begin.astimezone(zone).day for one in days] == [29, 31, 1, 2]


moments = st.datetimes(datetime(1990, 1, 1), datetime(2040, 1, 1)).map(lambda naive: naive.replace(tzinfo=UTC))  # noqa: DTZ001


@given(moments, st.sampled_from(PERIOD_KINDS), st.sampled_from(ZONES))
def test_every_moment_lies_in_exactly_one_period(now, kind, zone):
    zone = ZoneInfo(zone)
    found = period(kind, now, zone)
    assert found.begin <= now < found.end
    assert period(kind, found.begin, zone) == found
    assert period(kind, found.end - timedelta(microseconds=1), zone) == found
    assert period(kind, found.end, zone).begin == found.end
    assert period(kind, found.begin - timedelta(microseconds=1), zone).end == found.begin


@given(moments, st.sampled_from(ZONES), st.floats(0, 40))
def test_periods_follow_each_other_without_a_gap(since, zone, days):
    until = since + timedelta(days=days)
    found = list(periods("day", since, until, ZoneInfo(zone)))
    assert found[0].begin <= since < found[0].end
    assert found[-1].end >= until
    assert all(one.end == other.begin for one, other in itertools.pairwise(found))
