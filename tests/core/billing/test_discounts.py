"""What is really paid: the first discount that fits, its days, its markets; credits are used up and never overdrawn."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from fractions import Fraction

import pytest
from hypothesis import given, strategies as st

from cloudgpu.core.billing.discounts import AccountSpend, Credit, Discount, credits_used, effective_price
from cloudgpu.core.model.facts import HourlyPrice
from cloudgpu.core.model.offers import Basis, MachineConfiguration, Market, Price, price_from_json, price_to_json
from cloudgpu.core.values.money import ZERO, Money

NOW = datetime(2026, 11, 21, 9, tzinfo=UTC)
LISTED = Price(Money.usd("3.06"), "a list", NOW - timedelta(days=30), Basis.LISTED)
P3 = MachineConfiguration("aws", "lab", "us-east-1", "us-east-1a", "p3.2xlarge", Market.ON_DEMAND)


def discount(**new):
    usual = {
        "provider": "aws",
        "account": "*",
        "instance_type": "*",
        "region": "*",
        "markets": frozenset({Market.ON_DEMAND}),
        "percent": Fraction(25, 2),
        "rate": None,
        "since": None,
        "until": None,
        "source": "config.toml discounts[1]",
    }
    return Discount(**(usual | new))


def paid(*discounts, item=P3, listed=LISTED, at=NOW):
    return effective_price(discounts, item, listed, at)


def test_a_percentage_comes_off_the_list_price_and_keeps_its_date():
    found = paid(discount())
    assert found.per_hour == Money.usd("2.6775")
    assert (found.basis, found.as_of) == (Basis.SETTING, LISTED.as_of)
    assert found.source == "config.toml discounts[1]: 12.5% off $3.0600; a list"


def test_a_committed_rate_is_the_price_whatever_the_list_says():
    fixed = discount(percent=None, rate=Money.usd("1.2"))
    found = paid(fixed)
    assert (found.per_hour, found.as_of, found.basis) == (Money.usd("1.2"), NOW, Basis.SETTING)
    assert "list: $3.0600, a list" in found.source
    assert paid(fixed, listed=None).per_hour == Money.usd("1.2")


def test_a_percentage_of_a_price_that_nobody_knows_is_unknown_and_never_free():
    assert paid(discount(), listed=None) is None


def test_the_first_that_fits_counts():
    first, second = discount(instance_type="p4*"), discount(percent=Fraction(50))
    assert paid(first, second).per_hour == Money.usd("1.53")
    assert paid(second, first).per_hour == Money.usd("1.53")
    assert paid(discount(), second).per_hour == Money.usd("2.6775")


@pytest.mark.parametrize(
    "elsewhere",
    [
        {"provider": "gcp"},
        {"account": "home"},
        {"instance_type": "g5.*"},
        {"region": "eu-*"},
        {"markets": frozenset({Market.SPOT})},
        {"since": NOW + timedelta(seconds=1)},
        {"until": NOW},
    ],
)
def test_what_it_does_not_fit_costs_the_list_price(elsewhere):
    assert paid(discount(**elsewhere)) == LISTED


@pytest.mark.parametrize("here", [{"since": NOW}, {"until": NOW + timedelta(microseconds=1)}, {"account": "l?b"}])
def test_its_first_moment_counts_and_its_end_does_not(here):
    assert paid(discount(**here)).per_hour == Money.usd("2.6775")


def credit(name, usd, **new):
    usual = {"provider": "*", "account": "*", "since": None, "until": None, "source": "config.toml"}
    return Credit(name=name, amount=Money.usd(usd), **(usual | new))


def spent(usd, days=0, provider="aws", account="lab"):
    return AccountSpend(provider, account, NOW + timedelta(days=days), Money.usd(usd))


def test_credits_pay_first_what_was_spent_first_and_then_the_card_does():
    found = credits_used([credit("trial", "300")], [spent("200"), spent("150", 1), spent("10", 2)])
    assert (found.before, found.after) == (Money.usd(360), Money.usd(60))
    assert (found.credit_uses[0].used, found.credit_uses[0].remaining) == (Money.usd(300), ZERO)


def test_the_credit_that_ends_first_is_used_first():
    soon, late = credit("soon", "5", until=NOW + timedelta(days=1)), credit("late", "5")
    found = credits_used([late, soon], [spent("6")])
    assert {use.credit.name: use.remaining for use in found.credit_uses} == {"late": Money.usd(4), "soon": ZERO}


def test_a_credit_pays_for_nothing_outside_its_days_or_account():
    only = credit("trial", "300", provider="gcp", account="free", since=NOW, until=NOW + timedelta(days=90))
    charges = [spent("1"), spent("2", provider="gcp"), spent("3", -1, "gcp", "free"), spent("4", 90, "gcp", "free")]
    assert credits_used([only], charges).after == Money.usd(10)
    assert credits_used([only], [spent("5", 89, "gcp", "free")]).after == ZERO


amounts = st.integers(0, 10**12).map(Money)
charges = st.builds(
    AccountSpend,
    st.sampled_from(["aws", "gcp"]),
    st.just("lab"),
    st.integers(0, 99).map(lambda d: NOW + timedelta(d)),
    amounts,
)
credits_ = st.builds(
    credit, st.text("abc", min_size=1), st.integers(1, 999), provider=st.sampled_from(["aws", "gcp", "*"])
)


@given(st.lists(credits_, max_size=4), st.lists(charges, max_size=12))
def test_no_credit_is_overdrawn_and_nothing_is_lost(given_credits, charged):
    found = credits_used(given_credits, charged)
    used = sum((use.used for use in found.credit_uses), ZERO)
    assert found.before == sum((one.amount for one in charged), ZERO)
    assert found.after == found.before - used
    assert all(
        ZERO <= use.used <= use.credit.amount and use.used + use.remaining == use.credit.amount
        for use in found.credit_uses
    )
    assert credits_used(given_credits, list(reversed(charged))).after == found.after


def test_a_negotiated_price_keeps_the_public_one_wherever_it_is_stored():
    for found, public in (
        (paid(discount()), LISTED.per_hour),
        (paid(discount(percent=None, rate=Money.usd(2))), LISTED.per_hour),
        (paid(discount(percent=None, rate=Money.usd(2)), listed=None), None),
    ):
        assert (found.is_negotiated, found.listed) == (True, public)
        assert price_from_json(price_to_json(found)) == found
        assert HourlyPrice.of(price_to_json(found)).record() == price_to_json(found)
    assert (LISTED.is_negotiated, LISTED.listed) == (False, None)
