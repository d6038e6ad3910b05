"""How far prepaid money carries: to the cent, on the careful side, and never more than there is."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, strategies as st

from cloudgpu.core.budgets.credit import (
    MAX_DURATION,
    CreditReading,
    credit_finding,
    credit_fit,
    credit_from_record,
    credit_left,
    credit_refusal,
    latest_credits,
    time_left,
)
from cloudgpu.core.model.account import PrepaidCredit
from cloudgpu.core.values.money import Money
from cloudgpu.views.cost import credit_document

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
PAGE = "https://fake.example/billing"
amounts = st.integers(0, 10**13).map(Money)
hourlies = st.integers(0, 10**11).map(Money)
spans = st.integers(1, 30 * 86_400).map(lambda s: timedelta(seconds=s))


def credit(left, *, ago=timedelta(), hourly=None, threshold="0"):
    return PrepaidCredit(Money.usd(left), NOW - ago, hourly, PAGE, Money.usd(threshold))


def known(left, hourly, **more):
    return CreditReading("scope:fake/1", "lab", "fake", credit(left, **more), Money.usd(hourly))


def test_the_worked_example():
    """$20 of credit, $1.50 an hour runs, a machine of $2.00 an hour for 8 h: 8 x 3.50 = $28.00, $8.00 is missing."""
    fit = credit_fit("lab", credit("20"), Money.usd("1.50"), Money.usd("2"), timedelta(hours=8), NOW)
    assert (fit.fits, fit.needed, fit.missing) == (False, Money.usd("28"), Money.usd("8"))
    assert fit.lasts == timedelta(seconds=20571)  # 20 / 3.5 h
    error = credit_refusal(fit, "fox", timedelta(hours=8))
    assert error.exit_code == 3
    assert error.message == (
        "The credit of account lab, $20.00, covers fox and what runs there for 5h 42m, not for the 8h of its lease: "
        "$8.00 is missing."
    )
    assert error.next.startswith(f"Pay in at {PAGE}")
    assert credit_fit("lab", credit("28"), Money.usd("1.50"), Money.usd("2"), timedelta(hours=8), NOW).fits


def test_what_was_spent_since_the_reading_and_the_threshold_are_taken_off():
    assert credit_left(credit("10", ago=timedelta(hours=2)), Money.usd("1.25"), NOW) == Money.usd("7.50")
    assert credit_left(credit("10", threshold="4"), Money(0), NOW) == Money.usd("6")
    assert credit_left(credit("1", ago=timedelta(hours=2)), Money.usd("5"), NOW) == Money(0)
    assert credit_left(credit("-3"), Money(0), NOW) == Money(0)


@given(amounts, hourlies, hourlies, spans)
def test_a_launch_fits_exactly_where_nothing_is_missing(left, others, wanted, lease):
    fit = credit_fit("lab", PrepaidCredit(left, NOW, None, PAGE), others, wanted, lease, NOW)
    assert fit.fits == (fit.missing == Money(0))
    assert fit.left + fit.missing >= fit.needed
    if fit.fits and fit.lasts is not None:
        assert fit.lasts >= lease - timedelta(seconds=1)
    if not fit.fits:
        assert fit.lasts is not None
        assert fit.lasts <= lease


@given(amounts, hourlies)
def test_what_is_carried_costs_no_more_than_there_is(left, hourly):
    lasts = time_left(left, hourly)
    if hourly == Money(0):
        assert lasts is None
    else:
        seconds = lasts // timedelta(seconds=1)
        assert hourly.nanos * seconds <= left.nanos * 3600
        assert lasts == MAX_DURATION or left.nanos * 3600 < hourly.nanos * (seconds + 1)


def test_a_spending_of_next_to_nothing_has_an_end_that_a_calendar_has():
    """$1,000 and the rest of a disk for a tenth of a cent a month: the year 83,000 has no date."""
    for nanos in (1, 1370):
        one = known("1000", "0")._replace(hourly=Money(nanos))
        assert time_left(one.credit.remaining, one.hourly) == MAX_DURATION
        assert str(credit_document(one, one.hourly, NOW)["ends_at"]).startswith("2126-")


@given(amounts, hourlies, hourlies, spans, amounts)
def test_more_credit_never_fits_worse(left, others, wanted, lease, more):
    fits = [
        credit_fit("lab", PrepaidCredit(one, NOW, None, PAGE), others, wanted, lease, NOW)
        for one in (left, left + more)
    ]
    assert fits[1].fits or not fits[0].fits


@pytest.mark.parametrize(
    ("left", "hourly", "alerts"), [("24", "1", True), ("24.01", "1", False), ("0", "1", True), ("0", "0", False)]
)
def test_the_alert_stands_from_a_day_before_the_end(left, hourly, alerts):
    found = credit_finding(known(left, hourly), NOW)
    assert (found is not None) == alerts
    if found is not None:
        assert "At zero fake deletes the data of this account" in found.text
        assert found.urgent


def test_the_newest_word_of_each_account_is_kept_and_read_back_as_written():
    old, new = known("9", "1", ago=timedelta(hours=1)), known("5", "1")
    assert latest_credits([new, old]) == (new,)
    one = credit_from_record(new.record())
    assert (one.credit.remaining, one.hourly, one.credit.payment_page) == (new.credit.remaining, new.hourly, PAGE)
