"""Credits and sustained use: what comes off adds up, is used once, and depends on whole months."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings, strategies as st

from cloudgpu.core.billing.charges import money, period_charges
from cloudgpu.core.billing.cost_groups import CostQuery, Grouping, costs
from cloudgpu.core.billing.deductions import after_credits, sustained_use, sustained_use_discounts
from cloudgpu.core.billing.discounts import Credit
from cloudgpu.core.model.facts import MachineGpus
from cloudgpu.core.model.usage import Resource
from cloudgpu.core.values.money import ZERO, Money
from cloudgpu.core.values.times import periods
from tests.core.costing import NOW, START, at, ledgers, row, segment, use
from tests.examples import some


def credit(amount, provider="*", since=None, until=None):
    return Credit("trial", amount, provider, "*", since, until, "a test")


@settings(max_examples=some(40), deadline=None)
@given(ledgers(), st.integers(0, 10**15), st.integers(0, 40 * 86_400))
def test_what_credits_take_off_in_two_periods_is_what_they_take_off_in_both(ledger, nanos, second):
    rows, ended = ledger
    given_credits = [credit(Money(nanos)), credit(Money(nanos // 3), "aws")]
    cut = START + timedelta(seconds=second)

    def taken(**span):
        return after_credits(given_credits, rows, lambda _since: ended, NOW, **span)

    whole, before, after = taken(), taken(until=cut), taken(since=cut)
    assert whole.before.nanos == before.before.nanos + after.before.nanos
    assert whole.after.nanos == before.after.nanos + after.after.nanos
    for one, other, both in zip(before.credit_uses, after.credit_uses, whole.credit_uses, strict=True):
        assert one.used + other.used == both.used <= both.credit.amount
        assert ZERO <= other.remaining == both.remaining
    total = costs(rows, ended, NOW, CostQuery(Grouping.PROJECT, UTC)).total
    days = 41 * 2 * len(rows)  # each day of an account is rounded once
    assert abs(whole.before.nanos - money(total.amount).nanos) <= days


def test_a_credit_pays_only_while_it_holds():
    made, ended = row(use(0, 86_400))  # 24 dollars on 20 October
    over = credit(Money.usd(100), until=START)
    later = credit(Money.usd(100), since=START + timedelta(days=1))
    now = credit(Money.usd(10), since=START)
    found = after_credits([over, later, now], [made], lambda _since: ended, NOW)
    assert [one.used for one in found.credit_uses] == [ZERO, ZERO, Money.usd(10)]
    assert found.after == Money.usd(14)


T4 = MachineGpus("T4", 1, 16, 1, None)
GCP = {"provider": "gcp", "kind": "n1-standard-8+t4:1", "segments": (segment(1_000_000_000, -40 * 86_400),)}


@pytest.mark.parametrize(
    ("since", "until", "months"),
    [
        (None, None, ["2026-09", "2026-10", "2026-11"]),
        (datetime(2026, 10, 1, tzinfo=UTC), None, ["2026-10", "2026-11"]),
        (datetime(2026, 10, 2, tzinfo=UTC), None, ["2026-11"]),
        (None, datetime(2026, 10, 31, tzinfo=UTC), ["2026-09"]),
        (None, NOW + timedelta(days=400), ["2026-09", "2026-10", "2026-11"]),
    ],
)
def test_only_months_that_are_whole_have_a_discount(since, until, months):
    machine = use(-40 * 86_400, None, **GCP)
    made, _ = row(machine, provider="gcp", instance_type="n1", accelerators=(T4,), first_at=at(-40 * 86_400))
    found = sustained_use_discounts([made], lambda _since: [], NOW, since, until)
    assert [one.month for one in found] == months
    assert all(one.amount > 0 for one in found)


def test_without_a_machine_of_google_no_use_is_read():
    made, _ = row(use())

    def ended(_since):
        raise AssertionError

    assert sustained_use_discounts([made], ended, NOW) == []


def test_the_uses_of_many_months_are_read_once_and_each_counts_in_its_own_months():
    spans = [(-70 * 86_400, -40 * 86_400), (-40 * 86_400, -40 * 86_400 + 20), (-39 * 86_400, 9 * 86_400)]
    made, ended = row(
        *(use(*span, **GCP) for span in (*spans, (9 * 86_400, None))),
        provider="gcp",
        instance_type="n1",
        accelerators=(T4,),
        first_at=at(-70 * 86_400),
    )
    disk = use(0, None, resource=Resource.DISK, id="disk")
    made = made._replace(open_usage=(*made.open_usage, *row(disk)[0].open_usage))
    asked = []

    def read(since):
        asked.append(since)
        return ended

    found = sustained_use_discounts([made], read, NOW)
    months = [one.begin for one in periods("month", START - timedelta(days=70), NOW, UTC)]
    bills = [
        period_charges([made], ended, NOW, since=month, until=(month + timedelta(days=32)).replace(day=1))
        for month in months
    ]
    assert found == [one for month, bill in zip(months, bills, strict=True) for one in sustained_use(bill, month)]
    assert len(found) == len(months)
    assert asked == [START - timedelta(days=70)]
