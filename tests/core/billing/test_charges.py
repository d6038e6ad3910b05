"""What holds for every bill: cut anywhere it adds up, it is never negative, and a slow reference agrees."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from itertools import pairwise

from hypothesis import assume, given, strategies as st

from cloudgpu.core.billing.charges import (
    billed_span,
    billed_units,
    billed_until,
    charge,
    max_cost_intervals,
    money,
)
from cloudgpu.core.billing.rules import PARTS_PER_NANO, to_us
from cloudgpu.core.model.facts import record_of
from cloudgpu.core.model.usage import Per, PriceInterval, Resource, Usage, usage_of_record
from cloudgpu.core.values.times import from_iso, iso
from tests.core.bills import use as made

BEGIN = datetime(2026, 1, 31, 21, 0, tzinfo=UTC)  # three hours before February
seconds = st.integers(0, 6 * 3600)
# The rules once more, by hand: seconds that are started and billed whole, the least of a start, hours of a month.
BY_HAND = {
    ("aws", Resource.INSTANCE): (1, 60, None),
    ("aws", Resource.DISK): (1, 60, None),
    ("aws", Resource.SNAPSHOT): (3600, 3600, None),
    ("aws", Resource.IMAGE): (3600, 3600, None),
    ("aws", Resource.ADDRESS): (1, 0, None),
    ("gcp", Resource.INSTANCE): (1, 60, None),
    ("gcp", Resource.DISK): (1, 0, None),
    ("gcp", Resource.SNAPSHOT): (1, 0, None),
    ("gcp", Resource.IMAGE): (1, 0, None),
    ("gcp", Resource.ADDRESS): (1, 0, None),
    ("azure", Resource.INSTANCE): (1, 0, None),
    ("azure", Resource.DISK): (3600, 3600, None),
    ("azure", Resource.SNAPSHOT): (3600, 3600, None),
    ("azure", Resource.IMAGE): (3600, 3600, None),
    ("azure", Resource.ADDRESS): (3600, 3600, None),
    ("local", Resource.INSTANCE): (1, 0, None),
    ("ssh", Resource.INSTANCE): (1, 0, None),
    ("a plug-in", Resource.INSTANCE): (1, 0, 730),
    ("a plug-in", Resource.DISK): (1, 0, 730),
}


def after(second: float) -> datetime:
    return BEGIN + timedelta(seconds=second)


@st.composite
def uses(draw: st.DrawFn, *, ended: bool | None = None) -> Usage:
    """Return a use of any resource and provider; prices change and may have changed before, ends are in doubt."""
    provider, resource = draw(st.sampled_from([*BY_HAND, ("aws", Resource.TRAFFIC), ("gcp", Resource.TRAFFIC)]))
    spot = draw(st.booleans())
    per = {Resource.INSTANCE: Per.HOUR, Resource.TRAFFIC: Per.GB}.get(resource) or draw(
        st.sampled_from(["hour", "month"])
    )
    first, last = sorted([draw(seconds), draw(seconds)])
    closed = resource is Resource.TRAFFIC or (draw(st.booleans()) if ended is None else ended)
    return Usage(
        resource=resource,
        id="x",
        what="it",
        provider=provider,
        market="spot" if spot else "on_demand",
        kind="kind",
        quantity=draw(st.integers(1, 5000)),
        per=Per(per),
        begin=iso(after(first)),
        end=iso(after(last)) if closed else None,
        segments=draw(prices()),
        on_demand=draw(st.none() | st.integers(0, 10**11)) if resource is Resource.INSTANCE else None,
        first=draw(st.booleans()),
        reason=draw(st.sampled_from([None, "interrupted"])) if closed and resource is Resource.INSTANCE else None,
        sure_from=draw(st.none() | seconds.map(lambda second: iso(after(second)))),
        maybe_until=iso(after(last + draw(seconds))) if closed and draw(st.booleans()) else None,
        why_maybe_less=draw(st.sampled_from(["", "", "nobody knows"])),
        licence=draw(st.sampled_from(["", "", "suse", "rhel"])),
    )


@st.composite
def prices(draw: st.DrawFn) -> tuple[PriceInterval, ...]:
    found: list[PriceInterval] = []
    for second in sorted(draw(st.lists(seconds, max_size=4))):
        since = draw(st.none() | st.integers(0, 3600))
        doubt = None if since is None else iso(after(second - since))
        found.append(PriceInterval(iso(after(second)), draw(st.integers(0, 10**11)), "x", None, "setting", doubt))
    return tuple(found)


@given(uses(), seconds)
def test_no_bill_is_negative_and_the_amount_is_within_its_range(use: Usage, now: int) -> None:
    found = charge(use, after(now))
    assert 0 <= found.low <= found.amount <= found.high
    assert found.billed_us >= 0
    assert bool(found.reasons) or found.low == found.high
    assert (found.unpriced_us > 0) <= (not use.segments and not found.amount)


@given(uses(), seconds, st.lists(st.integers(-3600, 10 * 3600), max_size=4).map(sorted))
def test_cutting_a_period_anywhere_changes_nothing_at_all(use: Usage, now: int, cuts: list[int]) -> None:
    whole = charge(use, after(now))
    edges = [None, *(after(cut) for cut in cuts), None]
    parts = [charge(use, after(now), since=one, until=other) for one, other in pairwise(edges)]
    for name in ("low", "amount", "high", "billed_us", "unpriced_us"):
        assert sum(getattr(part, name) for part in parts) == getattr(whole, name), name
    if whole.list_cost is not None:
        assert sum(part.list_cost or 0 for part in parts) == whole.list_cost


@given(uses(), seconds, st.integers(-3600, 10 * 3600))
def test_its_strands_are_what_it_costs_at_most(use: Usage, now: int, until: int) -> None:
    edge = to_us(after(until))
    strands = max_cost_intervals(use, to_us(after(now)))
    inside = sum((min(last, edge) - first) * rate for first, last, rate in strands if first < edge)
    assert inside == charge(use, after(now), until=after(until)).high


@given(uses(ended=False), seconds, seconds)
def test_what_goes_on_never_gets_cheaper(use: Usage, now: int, later: int) -> None:
    early, late = charge(use, after(now)), charge(use, after(now + later))
    assert early.amount <= late.amount
    assert early.high <= late.high
    assert early.billed_us <= late.billed_us


@given(uses(ended=True), st.integers(1, 10**6))
def test_what_ended_costs_the_same_forever(use: Usage, later: int) -> None:
    moment = from_iso(use.end or "")
    assert charge(use, moment) == charge(use, moment + timedelta(seconds=later))


@given(uses(ended=True))
def test_nothing_is_billed_behind_the_end_that_is_told(use: Usage) -> None:
    end = from_iso(billed_until(use))
    counted_there = use.resource is Resource.TRAFFIC and use.begin == use.end  # bytes of one moment are of that moment
    assert counted_there or charge(use, end, since=end).high == 0
    assert billed_span(use, end) == (from_iso(use.begin), end)


@given(uses())
def test_a_use_is_plain_json(use: Usage) -> None:
    assert usage_of_record(json.loads(json.dumps(record_of(use)))) == use


def certain(use: Usage) -> Usage:
    """Return the use without what is in doubt, taken by nobody, of a system with no rule of its own."""
    segments = tuple(one._replace(maybe_from=None) for one in use.segments)
    sure = use._replace(segments=segments, reason=None, sure_from=None, maybe_until=None)
    return sure._replace(why_maybe_less="", licence="")


@given(uses(ended=True), st.integers(0, 6 * 3600))
def test_cutting_a_use_costs_its_minimum_and_granularity_at_most(use: Usage, cut: int) -> None:
    use = certain(use)
    begin, end = from_iso(use.begin), from_iso(use.end or "")
    at = iso(min(end, begin + timedelta(seconds=cut)))
    assume(use.resource is not Resource.TRAFFIC and use.segments)
    whole = charge(use, end)
    halves = [charge(use._replace(**part), end) for part in ({"end": at}, {"begin": at})]
    more = sum(half.amount for half in halves) - whole.amount
    granule, least, _ = BY_HAND[use.provider, use.resource]
    dearest = max(segment.nanos for segment in use.segments)
    parts = (
        PARTS_PER_NANO // 3600 if use.per is Per.HOUR else PARTS_PER_NANO // (672 * 3600)
    )  # of a second at its dearest
    # less, too: a granule that is started earlier may lie in a longer month, or before a price rose
    assert abs(more) <= (granule + least) * dearest * use.quantity * parts
    if granule == 1 and least == 0:
        assert more == 0


def by_seconds(use: Usage, end: datetime) -> Fraction:
    """Bill second by second, in nano-dollars: the price that held, over the hours of the month it was in."""
    granule, least, month = BY_HAND[use.provider, use.resource]
    begin = from_iso(use.begin)
    length = int((end - begin) / timedelta(seconds=1))
    while length % granule or length < least:
        length += 1
    held: Counter[tuple[int, int]] = Counter()
    for second in range(length):
        now = begin + timedelta(seconds=second)
        known = [segment for segment in use.segments if segment.at <= iso(now)]
        hours = 1 if use.per is Per.HOUR else month or (31 * 24 if now.month == 1 else 28 * 24)
        held[(known or use.segments[:1])[-1].nanos, hours] += 1
    return sum(Fraction(use.quantity * nanos * count, 3600 * hours) for (nanos, hours), count in held.items())


@given(uses(ended=True), st.integers(0, 40))
def test_a_slow_reference_agrees(use: Usage, minutes: int) -> None:
    use = certain(use)
    assume(use.resource is not Resource.TRAFFIC and use.segments)
    end = from_iso(use.begin) + timedelta(minutes=minutes, seconds=minutes)
    use = use._replace(end=iso(end))
    assert Fraction(charge(use, end).amount, PARTS_PER_NANO) == by_seconds(use, end)


@given(st.lists(st.integers(0, 10**40), max_size=5), st.integers(0, 10**30))
def test_money_is_rounded_once_half_to_even(amounts: list[int], one: int) -> None:
    assert money(sum(amounts)).nanos == round(Fraction(sum(amounts), PARTS_PER_NANO))
    assert money(one).nanos == round(Fraction(one, PARTS_PER_NANO))
    assert money(PARTS_PER_NANO // 2).nanos == 0
    assert money(PARTS_PER_NANO + PARTS_PER_NANO // 2).nanos == 2


@given(uses(ended=True))
def test_units_times_the_price_is_the_amount(use: Usage) -> None:
    use = certain(use)
    assume(use.segments)
    use = use._replace(segments=use.segments[:1])
    begin, end = billed_span(use, after(0))
    units = billed_units(use, begin, end)
    exact = units * use.segments[0].nanos * PARTS_PER_NANO
    found = charge(use, end)
    assert abs(exact - found.amount) < 1 or found.low != found.high


def test_on_demand_costs_what_it_would_have_cost_on_demand() -> None:
    run = made("aws", "2026-11-20 11:00", "2026-11-20 13:00", "1", ("2026-11-20 12:00", "3"), on_demand=10**9)
    found = charge(run, from_iso(run.end or ""))
    assert found.list_cost == found.amount
