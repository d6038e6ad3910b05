from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, strategies as st

from cloudgpu.core.values.times import (
    duration_text,
    earliest_moment,
    epoch_text,
    from_epoch,
    from_iso,
    iso,
    parse_duration,
)

zones = st.integers(-23 * 60, 23 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
moments = st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 29), timezones=zones)  # noqa: DTZ001  (bounds are naive)
since_1970 = st.datetimes(datetime(1970, 1, 1), datetime(5000, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001


@given(moments)
def test_a_time_comes_back_as_it_went_in(moment: datetime) -> None:
    back = from_iso(iso(moment))
    assert back == moment
    assert back.utcoffset() == timedelta(0)


@given(moments, moments)
def test_texts_sort_as_their_times(one: datetime, other: datetime) -> None:
    assert (iso(one) < iso(other)) == (one < other)
    assert len(iso(one)) == len(iso(other)) == 27


@given(since_1970)
def test_epoch_keeps_the_whole_second(moment: datetime) -> None:
    assert from_epoch(epoch_text(moment)) == moment.replace(microsecond=0)


@given(st.text(max_size=30))
def test_any_text_is_a_time_or_a_value_error(text: str) -> None:
    for read in (from_iso, from_epoch):
        try:
            assert read(text).utcoffset() == timedelta(0)
        except ValueError:
            continue


@pytest.mark.parametrize(
    "text",
    [
        "",
        "today",
        "2026-11-20",
        "2026-11-20T11:00:00",
        "2026-13-01T00:00:00Z",
        "0001-01-01T00:00:00+01:00",
        "1700000000",
    ],
)
def test_what_names_no_aware_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        from_iso(text)


@pytest.mark.parametrize("text", ["", "-1", "1.5", "1e9", " 1", "1 ", "1\n", "123456789012", "\u0661\u0667", "0x10"])
def test_what_is_no_epoch_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time in epoch seconds"):
        from_epoch(text)


def test_a_time_without_a_zone_is_never_written() -> None:
    with pytest.raises(ValueError, match="has no time zone"):
        iso(datetime(2026, 11, 20))  # noqa: DTZ001  (that is the fault)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90m", 5400), ("1h30m", 5400), ("8h", 28800), ("3d", 259200), ("45s", 45), ("1.5h", 5400), (" 2W ", 1209600)],
)
def test_a_duration_reads_as_people_write_it(text: str, seconds: int) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "5",
        "h",
        "-5m",
        "1h-5m",
        "1 h",
        "0s",
        "0h0m",
        "0.0000001s",
        "3661d",
        "9" * 400 + "d",
        "1y",
        "1h 5m",
        "\u0663h",
        "1e3s",
        "nan",
    ],
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(text)


@given(st.text(alphabet="0123456789.smhdwx- ", max_size=12))
def test_any_text_is_a_duration_above_zero_or_a_value_error(text: str) -> None:
    try:
        span = parse_duration(text)
    except ValueError:
        span = None
    assert span is None or timedelta(0) < span <= timedelta(days=3660)


@given(st.integers(0, 86400 * 3000))
def test_a_shown_duration_is_near(seconds: int) -> None:
    text = duration_text(seconds)
    assert len(text.split()) <= 2
    shown = 0 if text == "0s" else parse_duration(text.replace(" ", "")).total_seconds()
    assert 0 <= seconds - shown < max(1, seconds / 24)


@given(st.integers(1, 86400 * 3000))
def test_a_negative_duration_is_shown_with_its_sign(seconds: int) -> None:
    assert duration_text(timedelta(seconds=-seconds)) == "-" + duration_text(seconds)


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("2026-07-20", "2026-07-20"),
        ("~2024 (undated)", "2024-01-01"),
        ("2026-08/09", "2026-08-01"),
        ("2024-07 (golden)", "2024-07-01"),
        ("2026-13", None),
        ("none", None),
        ("", None),
    ],
)
def test_a_vague_date_counts_as_its_first_day(text, first):
    found = earliest_moment(text)
    assert (found and f"{found:%Y-%m-%d}") == first
