"""Strands say what the billing engine says, and the dearest window of a stretch is the dearest there is."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given, strategies as st

from cloudgpu.core.billing.charges import charge
from cloudgpu.core.billing.rates import billed_intervals, from_us, most_expensive_window, rate_intervals
from cloudgpu.core.billing.rules import intervals_cost, rule_of, to_us
from cloudgpu.core.model.usage import Per, PriceInterval, Resource, Usage
from cloudgpu.core.values.times import iso

BEGIN = datetime(2026, 1, 20, tzinfo=UTC)
moments = st.integers(0, 60 * 24 * 90).map(lambda minutes: BEGIN + timedelta(minutes=minutes, seconds=minutes % 60))


@st.composite
def uses(draw):
    """Uses of every resource, with prices that change, doubts and interruptions."""
    resource = draw(st.sampled_from(list(Resource)))
    per = Per.GB if resource is Resource.TRAFFIC else draw(st.sampled_from([Per.HOUR, Per.MONTH]))
    if resource is Resource.INSTANCE:
        per = Per.HOUR
    first, last = sorted([draw(moments), draw(moments)])
    changes = sorted({draw(moments) for _ in range(draw(st.integers(1, 4)))})
    waited = draw(st.none() | st.integers(1, 4000))
    doubt = st.none() | st.integers(0, 600)
    segments = [
        PriceInterval(
            iso(at),
            draw(st.integers(0, 10**10)),
            "list",
            iso(at),
            "listed",
            maybe_from=None if (ago := draw(doubt)) is None else iso(at - timedelta(minutes=ago)),
        )
        for at in changes
    ]
    ended = draw(st.booleans()) or resource is Resource.TRAFFIC
    return Usage(
        resource=resource,
        id="i",
        what="it",
        provider=draw(st.sampled_from(["aws", "gcp", "azure", "local"])),
        market=draw(st.sampled_from(["spot", "on_demand"])) if resource is Resource.INSTANCE else "on_demand",
        kind="gp3",
        licence=draw(st.sampled_from(["", "rhel", "suse"])) if resource is Resource.INSTANCE else "",
        quantity=draw(st.integers(1, 10**9 if resource is Resource.TRAFFIC else 500)),
        per=per,
        begin=iso(first),
        end=iso(last) if ended else None,
        segments=tuple(segments),
        reason=draw(st.none() | st.just("interrupted")) if resource is Resource.INSTANCE and ended else None,
        maybe_since=None if waited is None else iso(first - timedelta(seconds=waited)),
        maybe_until=iso(last + timedelta(minutes=draw(st.integers(1, 90)))) if ended and draw(st.booleans()) else None,
    )


@given(uses(), moments)
def test_the_strands_of_a_use_are_what_it_costs_at_most(use, now):
    now = max(now, datetime.fromisoformat(use.end or use.begin))
    found = billed_intervals(use, to_us(now))
    assert intervals_cost(found, 0, 2**62) == charge(use, now).high


@given(uses(), moments, moments)
def test_the_strands_of_a_period_are_what_it_costs_in_it(use, now, until):
    now = max(now, datetime.fromisoformat(use.end or use.begin))
    found = billed_intervals(use, to_us(now))
    assert intervals_cost(found, 0, to_us(until)) == charge(use, now, until=until).high


def test_a_month_has_the_hours_that_it_has():
    found = rate_intervals(
        to_us(BEGIN), to_us(BEGIN + timedelta(days=30)), 10**9, "month", rule_of("aws", "on_demand", "disk")
    )
    assert [from_us(begin).month for begin, _, _ in found] == [1, 2]
    assert found[0][2] * 744 == found[1][2] * 672


few = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 30), st.integers(1, 9)), min_size=1, max_size=8)


@given(few, st.integers(1, 30), st.integers(0, 40), st.integers(0, 50))
def test_no_window_is_dearer_than_the_worst_one(lengths, length, begin, span):
    found = [(first, first + long, rate) for first, long, rate in lengths]
    at, worst = most_expensive_window(found, length, begin, begin + span)
    assert worst == intervals_cost(found, at - length, at)
    assert worst == max(intervals_cost(found, end - length, end) for end in range(begin, begin + span + 1))
