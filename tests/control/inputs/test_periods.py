"""What `cost` is asked for: days begin in the zone, and what cannot be is refused with its option."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pytest

from cloudgpu.config.money.currencies import exchange_rate
from cloudgpu.config.settings import settings_from_text
from cloudgpu.control.inputs.periods import parse_cost
from cloudgpu.core.billing.cost_groups import Grouping
from cloudgpu.errors import InvalidRequest

NOW = datetime(2026, 11, 20, 20, 30, tzinfo=UTC)  # the 21st in Seoul, a Saturday
RATES = '[currencies]\nKRW = { per_usd = "1385.2", as_of = 2026-11-20, source = "a bank" }'


def wish(**asked):
    return parse_cost(settings_from_text(RATES, login="ada"), NOW, **asked)


def utc(text):
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("since", "begin"),
    [
        ("2026-11-01", "2026-10-31T15:00"),
        ("2026-11", "2026-10-31T15:00"),
        ("2026-11-20T18:00", "2026-11-20T09:00"),
        ("2026-11-20T18:00Z", "2026-11-20T18:00"),
        ("2026-11-20 18:00+01:00", "2026-11-20T17:00"),
        ("7d", "2026-11-13T20:30"),
        ("1h30m", "2026-11-20T19:00"),
        ("day", "2026-11-20T15:00"),
        ("week", "2026-11-15T15:00"),
        ("month", "2026-10-31T15:00"),
        (date(2026, 11, 1), "2026-10-31T15:00"),
        (timedelta(hours=2), "2026-11-20T18:30"),
        (datetime(2026, 11, 20, 18), "2026-11-20T09:00"),  # noqa: DTZ001  (taken in the zone that was asked for)
    ],
)
def test_a_period_begins_in_the_zone_that_was_asked_for(since, begin):
    assert wish(since=since, tz="Asia/Seoul").query.since == utc(begin)


def test_a_gap_of_the_clock_is_no_fault():
    berlin = wish(since="2026-03-29T02:30", tz="Europe/Berlin").query.since
    assert berlin == utc("2026-03-29T01:30")


def test_nothing_asked_for_is_by_machine_since_ever_in_dollars():
    found = wish()
    assert (found.query.by, found.query.since, found.query.until) == (Grouping.INSTANCE, None, None)
    assert (found.tz, found.currency) == ("UTC", None)
    assert wish(currency="usd").currency is None


def test_a_typed_rate_goes_before_the_setting_with_its_own_date():
    assert str(wish(currency="KRW").currency) == "1 USD = 1385.2 KRW, rate of 2026-11-20 (a bank)"
    typed = wish(currency="krw", rate="1400", rate_date="2026-11-19").currency
    assert (typed.per_usd, typed.as_of) == (Decimal(1400), date(2026, 11, 19))


@pytest.mark.parametrize(
    ("asked", "field", "says"),
    [
        ({"since": "2026-02-30"}, "--since", "'2026-02-30' is not a day"),
        ({"until": "soon"}, "--until", "'soon' is not a day"),
        ({"since": "0001-01-01", "tz": "Asia/Seoul"}, "--since", "is not a day"),
        ({"since": timedelta.max}, "--since", "is not a day"),
        ({"since": "2026-13"}, "--since", "is not a day"),
        ({"since": ""}, "--since", "is not a day"),
        ({"since": "2026-12-01"}, "--since", "in the future"),
        ({"since": "2026-11-02", "until": "2026-11-02"}, "--until", "is not after --since"),
        ({"since": "2026-11-02", "until": "2026-11-01"}, "--until", "is not after --since"),
        ({"by": "progect"}, "--by", "did you mean 'project'"),
        ({"by": ""}, "--by", "not a valid group of costs"),
        ({"tz": "Asia/Soul"}, "--tz", "did you mean 'Asia/Seoul'"),
        ({"currency": "EUR"}, "--currency", "There is no exchange rate for EUR"),
        ({"currency": "BTC"}, "--currency", "not a currency of ISO 4217"),
        ({"currency": "KRW", "rate": "free", "rate_date": "2026-11-20"}, "--rate", "not a rate of exchange"),
        ({"currency": "KRW", "rate": "-1", "rate_date": "2026-11-20"}, "--rate", "not a rate of exchange"),
        ({"currency": "KRW", "rate": "1385", "rate_date": "2026-02-30"}, "--rate-date", "is not a day"),
        ({"currency": "KRW", "rate": "1385"}, "--rate-date", "go together"),
        ({"currency": "KRW", "rate_date": "2026-11-20"}, "--rate", "go together"),
        ({"rate": "1385"}, "--rate", "is given without a currency"),
    ],
)
def test_what_cannot_be_names_its_option_and_the_way_out(asked, field, says):
    with pytest.raises(InvalidRequest, match=says) as caught:
        wish(**asked)
    assert (caught.value.field, caught.value.exit_code) == (field, 2)
    assert caught.value.next


def test_a_rate_of_a_future_day_names_the_option_or_the_setting_that_it_is_from():
    with pytest.raises(InvalidRequest, match="2027-01-01 is in the future") as typed:
        wish(currency="KRW", rate="1400", rate_date="2027-01-01")
    assert (typed.value.field, typed.value.next) == ("--rate-date", "Name the day of the rate.")
    text = '[currencies]\nKRW = { per_usd = "1385.2", as_of = 2027-01-01, source = "a bank" }\n'
    with pytest.raises(InvalidRequest, match="2027-01-01 is in the future") as configured:
        parse_cost(settings_from_text(text, login="ada"), NOW, currency="KRW")
    assert configured.value.field == "config.toml: currencies.KRW.as_of"
    assert "config.toml" in configured.value.next


def test_a_rate_that_is_missing_can_be_typed_only_where_there_are_options_for_it():
    with pytest.raises(InvalidRequest) as typed:
        exchange_rate(settings_from_text("", login="ada").currencies, "KRW")
    assert typed.value.next.startswith("Add --currency KRW, --rate with how many KRW one US dollar is")
    with pytest.raises(InvalidRequest) as read:
        exchange_rate(settings_from_text("", login="ada").currencies, "KRW", field="BillingCurrency")
    assert read.value.next.startswith("Add KRW = { per_usd =")


def test_an_argument_that_is_none_is_a_defect_of_the_program():
    with pytest.raises(TypeError, match="unexpected keyword argument 'perday'"):
        wish(perday=True)
