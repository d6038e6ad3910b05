"""What a desktop's file says in money, in dollars or in another currency at its dated rate, and its texts and days."""

from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING

from cloudgpu.config.money.currencies import MAX_PER_USD, rate_of
from cloudgpu.core.values.currency import CODES, Currency
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.naming import did_you_mean, near
from cloudgpu.core.values.units import Amount, Tariff

if TYPE_CHECKING:
    from cloudgpu.config.files.yaml import Table
    from cloudgpu.config.settings import Settings

RATE = ("per_usd", "rate_as_of", "rate_source")
MAX_USD = 10_000_000


def currency_in(table: Table, settings: Settings | None) -> Currency | None:
    """Return the currency of the file's amounts at its own rate or at the configured one; None: US dollars."""
    code = table.line("currency", "USD")
    if code not in CODES:
        says = "is not a currency of ISO 4217" + did_you_mean(near(code, CODES))
        raise table.fault("currency", says, next="Write its three capital letters, like KRW.")
    given = [key for key in RATE if key in table.values]
    if code == "USD":
        if given:
            raise table.fault(given[0], "is of a currency, and none is named", next="Add currency: with three letters.")
        return None
    if given:
        table.check_keys(table.values, required=RATE)
        rate = table.number("per_usd", least=1 / MAX_PER_USD, most=MAX_PER_USD)
        return Currency(code, rate, day_in(table, "rate_as_of"), text_in(table, "rate_source"))
    if settings is None or code not in settings.currencies:
        next_ = f"Add per_usd:, rate_as_of: and rate_source: here, or {code} under [currencies] of config.toml."
        raise table.fault("currency", f"is {code}, and no rate of it is known: none is fetched or guessed", next=next_)
    return rate_of(settings.currencies, code, field="currency")


def check_past(table: Table, currency: Currency | None, today: date) -> None:
    """Refuse figures and a rate of a day that is still to come. Somewhere on Earth it is tomorrow."""
    days = {"as_of": day_in(table, "as_of")}
    if currency is not None:
        days["rate_as_of" if "rate_as_of" in table.values else "currency"] = currency.as_of
    for key, day in days.items():
        if day > today + timedelta(days=1):
            says = f"is of {day}" if key == "currency" else f"is {day}"
            next_ = "Write a day that has been, like 2026-11-20; of a currency in config.toml, there."
            raise table.fault(key, f"{says}, a day that is still to come", next=next_)


def purchase_in(table: Table, currency: Currency | None) -> tuple[Money, Amount | None]:
    """Return the purchase in dollars, and as it was quoted where that is in another currency."""
    key = "purchase_usd" if "purchase_usd" in table.values else "purchase"
    if key == "purchase" and key not in table.values:
        raise table.fault("purchase_usd", "is missing", next="Add a line that begins with purchase_usd:")
    if key == "purchase_usd" and "purchase" in table.values:
        raise table.fault("purchase", "says again what purchase_usd says", next="Keep one of the two.")
    if key == "purchase" and "currency" not in table.values:
        raise table.fault(key, "has no currency", next="Add currency: with three letters, or write purchase_usd:.")
    if key == "purchase_usd" or currency is None:
        return Money.usd(table.number(key, least=0, most=MAX_USD)), None
    quoted = Amount(table.number(key, least=0, most=_most(currency)), currency)
    return quoted.dollars, quoted


def tariff_in(table: Table, currency: Currency | None) -> Tariff:
    """Return what a kilowatt-hour costs, in dollars."""
    key = "per_kwh" if "per_kwh" in table.values else "usd_per_kwh"
    if key == "per_kwh" and "usd_per_kwh" in table.values:
        raise table.fault(key, "says again what usd_per_kwh says", next="Keep one of the two.")
    if key == "per_kwh" and "currency" not in table.values:
        raise table.fault(key, "has no currency", next="Add currency: with three letters, or write usd_per_kwh:.")
    table.check_keys(table.values, required=[key])
    if key == "usd_per_kwh" or currency is None:
        return Tariff(Money.usd(table.number(key, least=0, most=100)))
    return Tariff(Amount(table.number(key, least=0, most=100 * max(currency.per_usd, Decimal(1))), currency).dollars)


def money_in(table: Table, key: str, currency: Currency | None) -> Money:
    """Return an amount in the file's currency in dollars."""
    if currency is None:
        return Money.usd(table.number(key, least=0, most=MAX_USD))
    return Amount(table.number(key, least=0, most=_most(currency)), currency).dollars


def _most(currency: Currency) -> Decimal:
    return MAX_USD * max(currency.per_usd, Decimal(1))


def resale_in(table: Table, currency: Currency | None, purchase: Money) -> Money:
    """Return in dollars what it is sold for after its life: nothing where the file has no such line."""
    if "resale" not in table.values:
        return Money(0)
    resale = money_in(table, "resale", currency)
    if resale > purchase:
        raise table.fault("resale", "is more than it was bought for", next="Write what it is sold for after its life.")
    return resale


def text_in(table: Table, key: str) -> str:
    """Return the text at a key, of one line that is not empty."""
    text = table.line(key).strip()
    if not text:
        raise table.fault(key, "is empty", next="Write it in one line of text.")
    return text


def day_in(table: Table, key: str) -> date:
    """Return the day at a key."""
    try:
        return date.fromisoformat(table.line(key))
    except ValueError:
        raise table.fault(key, "has to be a day", next="Write it as 2026-11-20.") from None
