"""Random bills: their lines add up, lie within a day and a price, and leave out nothing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

from hypothesis import example, given, settings, strategies as st

from cloudgpu.core.billing.charges import money, period_charges
from cloudgpu.core.billing.line_items import line_items
from cloudgpu.core.model.usage import Per, PriceInterval, Resource, Usage
from cloudgpu.core.values.money import ZERO
from cloudgpu.core.values.times import iso
from tests.core.machines import machine
from tests.examples import some

FIRST = datetime(2026, 1, 28, tzinfo=UTC)
moments = st.integers(0, 10 * 86_400 * 10**6).map(lambda micros: FIRST + timedelta(microseconds=micros))
prices = st.lists(st.tuples(moments, st.integers(0, 10**10), st.booleans()), max_size=4)


def use_of(drawn):
    (resource, per), provider, market, (begin, end), changes, is_open, quantity = drawn
    segments = tuple(
        PriceInterval(iso(at), nanos, "a list", None, "listed", iso(at - timedelta(minutes=40)) if doubt else None)
        for at, nanos, doubt in sorted(changes)
    )
    quantity = quantity if resource in (Resource.DISK, Resource.TRAFFIC) else 1
    open_ = is_open and resource is not Resource.TRAFFIC
    return Usage(
        resource=resource, id="us-east-1/i-0", what="it", provider=provider, market=market, kind="small",
        quantity=quantity, per=per, begin=iso(begin), end=None if open_ else iso(end), segments=segments,
        maybe_until=None if open_ or quantity % 2 else iso(end + timedelta(hours=3)),
    )  # fmt: skip


uses = st.tuples(
    st.sampled_from([
        (Resource.INSTANCE, Per.HOUR), (Resource.DISK, Per.MONTH), (Resource.ADDRESS, Per.HOUR),
        (Resource.TRAFFIC, Per.GB),
    ]),
    st.sampled_from(["aws", "gcp", "azure", "local"]),
    st.sampled_from(["on_demand", "spot"]),
    st.tuples(moments, moments).map(sorted),
    prices,
    st.booleans(),
    st.integers(1, 10**9),
).map(use_of)  # fmt: skip
ROW = machine(id="cg-1", name="otter")
NOW = FIRST + timedelta(days=11)


def lines(found, since=None, until=None):
    rows = [ROW._replace(open_usage=tuple(use for use in found if use.end is None))]
    ended = [("cg-1", use) for use in found if use.end is not None]
    bill = list(period_charges(rows, ended, NOW, since=since, until=until))
    return bill, list(line_items(bill, NOW, since=since, until=until))


INSTANT = use_of(((Resource.TRAFFIC, Per.GB), "aws", "on_demand", (FIRST, FIRST), [(FIRST, 1, False)], False, 10**9))


@settings(max_examples=some(150))
@example([INSTANT], None, None)  # bytes counted from and to one moment
@given(st.lists(uses, max_size=4), st.none() | moments, st.none() | moments)
def test_the_lines_of_a_bill_add_up_to_it(found, since, until):
    bill, items = lines(found, since, until)
    assert sum((item.amount for item in items), ZERO) == money(sum(one.charge.amount for one in bill))
    for exact in ("low", "amount", "high", "billed_us"):
        assert sum(getattr(item.charge, exact) for item in items) == sum(getattr(one.charge, exact) for one in bill)
    for item in items:
        assert abs(item.amount.nanos - money(item.charge.amount).nanos) <= 1
        assert item.low <= item.amount <= item.high


@settings(max_examples=some(150))
@given(uses)
def test_a_line_lies_within_one_day_at_one_price(use):
    _, items = lines([use])
    for item in items:
        assert (
            item.begin < item.end <= item.begin.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
        )
        inside = [one for one in use.segments[1:] if item.begin < datetime.fromisoformat(one.at) < item.end]
        assert not inside or use.resource is Resource.TRAFFIC
    assert all(one.end <= following.begin for one, following in pairwise(items))
