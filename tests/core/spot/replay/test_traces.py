"""Traces are read with clear sentences, and sampled without a look ahead."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, strategies as st

from cloudgpu.core.spot.replay.draws import Draws
from cloudgpu.core.spot.replay.traces import Trace, parse_trace, trace_of_changes
from cloudgpu.errors import InvalidRequest


def written(gap=600, data=(1, 0, 3)):
    return json.dumps({"metadata": {"gap_seconds": gap}, "data": list(data)})


def test_a_count_of_instances_above_zero_means_available():
    trace = parse_trace(written(data=[1, 0, 3, 0.0, 1.0]), "one")
    assert (trace.interval_s, trace.data) == (600, b"\1\0\1\0\1")
    assert (trace.seconds, trace.share) == (3000, 0.6)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is not JSON"),
        (b"\xff\xfe", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[1, 0]", "holds no JSON object"),
        ('{"data": [1]}', "has no metadata.gap_seconds"),
        ('{"metadata": 3, "data": [1]}', "has no metadata.gap_seconds"),
        (written(gap=0), "not a number of seconds from 1 to 86400"),
        (written(gap="600"), "not a number of seconds"),
        (written(gap=True), "not a number of seconds"),
        ('{"metadata": {"gap_seconds": NaN}, "data": [1]}', "not a number of seconds"),
        (written(data=[]), "has no samples"),
        ('{"metadata": {"gap_seconds": 600}, "data": {"a": 1}}', "has no samples"),
        ('{"metadata": {"gap_seconds": 600}}', "has no samples"),
        (written(data=[1, -1]), "data[1] that is not a number of instances"),
        (written(data=[1, "1"]), "data[1] that is not a number of instances"),
        (written(data=[1, True]), "data[1] that is not a number of instances"),
        (written(data=[1, None]), "data[1] that is not a number of instances"),
        ('{"metadata": {"gap_seconds": 600}, "data": [NaN]}', "data[0] that is not a number of instances"),
        (f'{{"metadata": {{"gap_seconds": {10**400}}}, "data": [1]}}', "not a number of seconds"),
        (f'{{"metadata": {{"gap_seconds": 600}}, "data": [{10**400}]}}', "data[0] that is not a number of instances"),
    ],
)
def test_what_is_no_trace_is_refused_with_its_file_and_its_fault(text, says):
    with pytest.raises(InvalidRequest) as refused:
        parse_trace(text, "one.json")
    assert "The trace one.json" in str(refused.value)
    assert says in str(refused.value)
    assert "gap_seconds" in refused.value.next


def test_a_tick_sees_the_last_sample_at_or_before_it():
    trace = Trace("one", 195, bytes([1, 0, 1, 0]))
    # at 0, 600, 1200: samples 0, 3 (585 s), and nothing any more
    assert trace.sampled(600, 0, 3) == bytes([1, 0, 0])
    assert trace.sampled(194.9, 0, 2) == bytes([1, 1])
    assert trace.sampled(195, 0, 4) == trace.data
    assert trace.sampled(60, 585, 5) == bytes([0, 0, 0, 0, 0])


@given(st.integers(1, 900), st.integers(1, 900), st.integers(0, 5000), st.integers(0, 2**32))
def test_no_tick_sees_a_later_sample(gap, tick, start, seed):
    draws = Draws(seed)
    data = bytes(draws.below(2) for _ in range(60))
    ticks = 1 + draws.below(30)
    at = start + (ticks - 1) * tick
    known = int(at // gap) + 1
    later = data[:known] + bytes(1 - one for one in data[known:])
    assert Trace("a", gap, data).sampled(tick, start, ticks) == Trace("b", gap, later).sampled(tick, start, ticks)


def test_a_window_fits_as_often_as_it_ends_within_the_trace():
    trace = Trace("one", 600, bytes(6))
    assert [trace.window_starts(seconds) for seconds in (600, 1800, 3600, 3601)] == [6, 4, 1, 0]
    assert trace.first(1800).data == bytes(3)
    assert trace.first(1e9).data == bytes(6)


def test_what_was_seen_holds_until_something_else_is_seen():
    changes = [(1000.0, True), (2300.0, False), (2350.0, True), (3000.0, False)]
    trace = trace_of_changes("here", changes, 3400.0, 600.0)
    assert trace.data == bytes([1, 1, 1, 1, 0])  # at 1000, 1600, 2200, 2800, 3400
    assert trace_of_changes("here", changes, 900.0, 600.0) is None
    assert trace_of_changes("here", [], 900.0, 600.0) is None


def test_the_same_seed_draws_the_same_and_every_number_is_drawn():
    one, other = Draws(7), Draws(7)
    assert [one.below(10) for _ in range(50)] == [other.below(10) for _ in range(50)]
    assert {one.below(10) for _ in range(500)} == set(range(10))
    assert 0.45 < sum(one.uniform() for _ in range(2000)) / 2000 < 0.55
    assert Draws(7).fork("a").bits() != Draws(7).fork("b").bits() != Draws(8).fork("b").bits()
    with pytest.raises(ValueError, match="below 0"):
        one.below(0)
