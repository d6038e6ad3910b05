"""[currencies], [fees] and tz of config.toml: what they stand for, and how each fault is said."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from fractions import Fraction

import pytest

from cloudgpu.config.files.user_files import zone_of
from cloudgpu.config.money.currencies import exchange_rate
from cloudgpu.config.money.fees import Fees
from cloudgpu.config.settings import settings_from_text
from cloudgpu.core.values.currency import Currency
from cloudgpu.core.values.money import Money
from cloudgpu.errors import InvalidRequest

KRW = 'KRW = { per_usd = "1385.2", as_of = 2026-11-20, source = "Bank of Korea" }'
FEBRUARY = '"2026-02-30"'


def settings_of(text):
    return settings_from_text(text, login="ada")


def test_a_rate_has_its_date_and_its_source():
    settings = settings_of(f"[currencies]\n{KRW}\n")
    assert exchange_rate(settings.currencies, "krw") == Currency(
        "KRW", Decimal("1385.2"), date(2026, 11, 20), "Bank of Korea"
    )
    assert str(exchange_rate(settings.currencies, "KRW")) == "1 USD = 1385.2 KRW, rate of 2026-11-20 (Bank of Korea)"


def test_a_currency_without_a_rate_is_refused_and_so_is_one_that_is_none():
    settings = settings_of("")
    with pytest.raises(InvalidRequest, match="no exchange rate for EUR") as caught:
        exchange_rate(settings.currencies, "EUR")
    assert (caught.value.field, caught.value.value) == ("--currency", "EUR")
    assert "--rate" in (caught.value.next or "")
    with pytest.raises(InvalidRequest, match="did you mean 'EUR'"):
        exchange_rate(settings.currencies, "EURO")
    assert exchange_rate(settings.currencies, "USD").per_usd == 1


def test_amounts_have_the_places_of_their_currency_and_are_never_shown_as_zero():
    won = Currency("KRW", Decimal("1385.2"), date(2026, 11, 20))
    assert won.text(Money.usd(10)) == "13,852"
    assert won.text(Money.usd("0.0001")) == "<1"
    assert won.text(Money(0)) == "0"
    assert Currency("KWD", Decimal("0.3"), date(2026, 1, 1)).text(Money.usd(1)) == "0.300"
    assert won.convert(Money(1)) == Decimal("0.0000013852")


def test_fees_multiply_tax_upon_support_and_name_what_is_missing():
    assert Fees(Decimal(10), Decimal(3)).factor == Fraction(1133, 1000)
    assert Fees().summary == "Tax, support and marketplace fees are not in it."
    assert settings_of('[fees]\ntax_percent = 10\nlabel = "VAT"').fees.summary == (
        "With tax (10%) [VAT], and without support and marketplace fees."
    )


def test_a_zone_is_that_of_its_name():
    assert settings_of('tz = "Asia/Seoul"').tz == "Asia/Seoul"
    assert settings_of("").tz == "UTC"


@pytest.mark.parametrize("name", ["Mars/Olympus", "localtime", "", "Asia", "../etc/passwd", "KST", "GMT+25", "\0"])
def test_an_unknown_zone_is_refused_never_the_hosts(name, monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Seoul")
    with pytest.raises(InvalidRequest) as caught:
        zone_of(name)
    assert caught.value.field == "--tz"
    assert caught.value.next


@pytest.mark.parametrize(("name", "meant"), [("asia/seoul", "Asia/Seoul"), ("Berlin", "Europe/Berlin")])
def test_the_near_zone_is_named(name, meant):
    with pytest.raises(InvalidRequest, match=f"did you mean '{meant}'"):
        zone_of(name)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ('tz = "Moon"', "config.toml: tz"),
        ("currencies = 3", "config.toml: currencies"),
        ('[currencies]\nXXQ = { per_usd = "1", as_of = 2026-01-01, source = "x" }', "config.toml: currencies.XXQ"),
        ('[currencies]\nkrw = { per_usd = "1", as_of = 2026-01-01, source = "x" }', "config.toml: currencies.krw"),
        ('[currencies]\nUSD = { per_usd = "1", as_of = 2026-01-01, source = "x" }', "config.toml: currencies.USD"),
        ('[currencies]\nKRW = "1385"', "config.toml: currencies.KRW"),
        (f"[currencies]\n{KRW.replace('1385.2', 'free')}", "config.toml: currencies.KRW.per_usd"),
        (f"[currencies]\n{KRW.replace('1385.2', '-3')}", "config.toml: currencies.KRW.per_usd"),
        (f"[currencies]\n{KRW.replace('1385.2', '0')}", "config.toml: currencies.KRW.per_usd"),
        (f"[currencies]\n{KRW.replace('1385.2', 'NaN')}", "config.toml: currencies.KRW.per_usd"),
        (f"[currencies]\n{KRW.replace('1385.2', '1e999999')}", "config.toml: currencies.KRW.per_usd"),
        (f"[currencies]\n{KRW.replace('2026-11-20', '3')}", "config.toml: currencies.KRW.as_of"),
        (f"[currencies]\n{KRW.replace('2026-11-20', FEBRUARY)}", "config.toml: currencies.KRW.as_of"),
        (f"[currencies]\n{KRW.replace('Bank of Korea', ' ')}", "config.toml: currencies.KRW.source"),
        (f"[currencies]\n{KRW.replace('as_of', 'as_off')}", "config.toml: currencies.KRW.as_off"),
        ('[currencies]\nKRW = { per_usd = "1" }', "config.toml: currencies.KRW.as_of"),
        ("fees = 10", "config.toml: fees"),
        ("[fees]\ntax = 10", "config.toml: fees.tax"),
        ("[fees]\ntax_percent = -1", "config.toml: fees.tax_percent"),
        ('[fees]\ntax_percent = "free"', "config.toml: fees.tax_percent"),
        ('[fees]\ntax_percent = "1e-99999999"', "config.toml: fees.tax_percent"),  # as a fraction it never ends
        ("[fees]\nsupport_percent = 101", "config.toml: fees.support_percent"),
        ("[fees]\nsupport_percent = nan", "config.toml: fees.support_percent"),
        ("[fees]\nsupport_percent = true", "config.toml: fees.support_percent"),
        ("[fees]\nlabel = 3", "config.toml: fees.label"),
    ],
)  # fmt: skip
def test_a_fault_names_its_key_and_the_way_out(text, field):
    with pytest.raises(InvalidRequest) as caught:
        settings_of(text)
    assert caught.value.field == field
    assert caught.value.next
    assert caught.value.exit_code == 2
