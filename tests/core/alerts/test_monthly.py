"""Which month's report is due: at every moment, in every zone, exactly one, and never one that is not over."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, strategies as st

from cloudgpu.core.alerts.findings import (
    MONTH_END_DELAY,
    SENT,
    SUBJECT,
    month_before,
    month_due,
    month_name,
    receivers_with_report,
    whole_month,
)
from cloudgpu.core.events.general_events import report_sent
from cloudgpu.core.events.log import Event
from cloudgpu.core.values.times import iso

ZONES = ["UTC", "Asia/Seoul", "America/Havana", "Pacific/Apia", "Pacific/Kiritimati", "Australia/Lord_Howe"]
START = datetime(2009, 1, 1, tzinfo=UTC)
MOMENTS = st.timedeltas(timedelta(0), timedelta(days=9500)).map(lambda span: START + span)


@given(MOMENTS, st.sampled_from(ZONES).map(ZoneInfo))
def test_a_month_is_due_from_six_hours_after_its_end_until_the_next_one_is(now, zone):
    month, following = month_due(now, zone)
    assert month.end + MONTH_END_DELAY <= now < following
    assert month_due(following, zone)[0].begin == month.end
    assert month_due(following - timedelta(microseconds=1), zone) == (month, following)
    assert timedelta(days=27) < month.end - month.begin < timedelta(days=32)
    assert whole_month(month.begin, month.end, zone) == month


@given(MOMENTS, st.sampled_from(ZONES).map(ZoneInfo))
def test_the_month_before_is_over(now, zone):
    month = month_before(now, zone)
    assert month.begin < month.end <= now
    assert now - month.end < timedelta(days=32)
    assert month_name(month, zone) != month_name(month_before(month.end - timedelta(days=1), zone), zone)


@pytest.mark.parametrize(
    ("since", "until"),
    [
        (None, datetime(2026, 11, 1, tzinfo=UTC)),
        (datetime(2026, 10, 1, tzinfo=UTC), None),
        (datetime(2026, 10, 1, tzinfo=UTC), datetime(2026, 12, 1, tzinfo=UTC)),
        (datetime(2026, 10, 1, 1, tzinfo=UTC), datetime(2026, 11, 1, tzinfo=UTC)),
        (datetime(2026, 10, 1, tzinfo=UTC), datetime(2026, 10, 31, tzinfo=UTC)),
    ],
)
def test_what_is_no_calendar_month_is_none(since, until):
    assert whole_month(since, until, ZoneInfo("UTC")) is None


def test_who_has_a_month_is_what_its_lines_say_whatever_was_sent_twice():
    now = datetime(2026, 11, 1, 6, tzinfo=UTC)
    drafts = [
        report_sent("2026-10", "mailto-1", now),
        report_sent("2026-09", "json-2", now),
        report_sent("2026-10", "json-3", now),
    ]
    lines = [
        Event(number, iso(now), "own", iso(now), "ada", one.kind, one.subject, one.dedupe, "", one.body)
        for number, one in enumerate([*drafts, drafts[0]], start=1)
    ]
    assert {(one.kind, one.subject) for one in drafts} == {(SENT, SUBJECT)}
    assert receivers_with_report(lines, "2026-10") == {"mailto-1", "json-3"}
    assert receivers_with_report(lines, "2026-08") == frozenset()
    assert (
        report_sent("2026-10", "mailto-1", now).dedupe
        == report_sent("2026-10", "mailto-1", now + MONTH_END_DELAY).dedupe
    )
