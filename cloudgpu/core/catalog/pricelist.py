"""A provider's price list: its rows, the rejected rows, the parts that did not answer, and price changes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal, InvalidOperation

from cloudgpu.core.model.identity import Unanswered
from cloudgpu.core.model.offers import Basis, Market, Price
from cloudgpu.core.values.money import Money

MAX_PRICE = Decimal(100_000)  # USD per unit: far above every listed price
PER_HOUR = "usd_per_hour"
MAX_QUOTED_CHARS = 40  # characters of a wrong price that a sentence repeats


@dataclass(frozen=True, slots=True)
class RowKey:
    """What a price is for: a machine type on a market, or a kind of storage, address or traffic (`market` None)."""

    item: str
    region: str
    market: Market | None


@dataclass(frozen=True, slots=True)
class PriceRow:
    """One price of a list, per `unit`; `note` says what the price leaves out or how it was chosen."""

    key: RowKey
    unit: str
    price: Money
    source: str
    as_of: datetime
    basis: Basis
    note: str = ""

    def hourly_price(self) -> Price:
        """Return a machine's price per hour as an offer has it."""
        return Price(self.price, self.source, self.as_of, self.basis)


@dataclass(frozen=True, slots=True)
class RefusedRow:
    """A row that is not a valid price, by its name in the provider's list, and why."""

    name: str
    why: str


@dataclass(frozen=True, slots=True)
class PricePart:
    """A part of a list that answered completely, at one time. `scope` names it (`us-east-1 spot`).

    `region` is its only region, empty if it has several.
    """

    scope: str
    asked_at: datetime
    rows: tuple[PriceRow, ...]
    refused: tuple[RefusedRow, ...] = ()
    region: str = ""


@dataclass(frozen=True, slots=True)
class PriceList:
    """A provider's price list: the parts that answered completely, and the scopes that did not answer."""

    provider: str
    parts: tuple[PricePart, ...]
    unanswered: tuple[Unanswered, ...] = ()


def listed_usd(amount: object, currency: object) -> Money:
    """Return a price of a list; raise ValueError, with the reason, if it is not a number above zero in USD."""
    if currency != "USD":
        raise ValueError(f"is in {str(currency)[:MAX_QUOTED_CHARS]}, not in USD")
    try:
        value = Decimal(str(amount))
    except InvalidOperation:
        raise ValueError(f"is {str(amount)[:MAX_QUOTED_CHARS]!r}, which is not a price") from None
    if not value.is_finite() or not 0 < value < MAX_PRICE:
        raise ValueError(f"is {str(amount)[:MAX_QUOTED_CHARS]}, which is not a price above 0 and below {MAX_PRICE}")
    if not Money.usd(value):
        raise ValueError(f"is {str(amount)[:MAX_QUOTED_CHARS]}, which is less than a nano-dollar")
    return Money.usd(value)


@dataclass
class PartBuilder:
    """Collects the rows of one part. A key with two different prices is left out: which one is right is not known."""

    scope: str
    asked_at: datetime
    region: str = ""
    _rows: dict[RowKey, PriceRow] = field(default_factory=dict)
    _refused: dict[str, RefusedRow] = field(default_factory=dict)
    _ambiguous: set[RowKey] = field(default_factory=set)

    def add(
        self,
        key: RowKey,
        unit: str,
        amount: object,
        *,
        currency: object = "USD",
        source: str,
        name: str,
        basis: Basis = Basis.LISTED,
        note: str = "",
    ) -> None:
        """Add a row, or refuse it if it is not a valid price; `name` is the provider's name of the row."""
        try:
            price = listed_usd(amount, currency)
        except ValueError as error:
            self.refuse(name, str(error))
            return
        row = PriceRow(key, unit, price, source, self.asked_at, basis, note)
        earlier_row = self._rows.setdefault(key, row)
        if (earlier_row.price, earlier_row.unit) != (row.price, row.unit):
            self._ambiguous.add(key)
            figures = f"{earlier_row.price.dollars.normalize():f} and {price.dollars.normalize():f}"
            self.refuse(name, f"has two prices, {figures}")

    def refuse(self, name: str, why: str) -> None:
        """Record a row as refused."""
        self._refused[name] = RefusedRow(name, why)

    def part(self) -> PricePart:
        """Return the part with all added rows."""
        rows = (row for key, row in self._rows.items() if key not in self._ambiguous)
        return PricePart(self.scope, self.asked_at, tuple(rows), tuple(self._refused.values()), self.region)


@dataclass(frozen=True, slots=True)
class ListPriceChange:
    """A price that has changed. `is_accepted`: the new price is used."""

    key: RowKey
    unit: str
    old: PriceRow
    new: PriceRow
    is_accepted: bool

    @property
    def factor(self) -> float:
        """The new price divided by the old one."""
        return self.new.price.nanos / self.old.price.nanos


def price_change(old: PriceRow, new: PriceRow, max_factor: float, *, accept: bool) -> ListPriceChange | None:
    """Return the change from one price to the next; None if it is the same.

    A change by more than a factor of `max_factor`, up or down, is not accepted unless `accept` says so. If the old
    price was only derived or unverified, and not from this list, any new one is accepted.
    """
    if (old.price, old.unit) == (new.price, new.unit):
        return None
    is_reliable = old.unit == new.unit and (old.basis in (Basis.QUOTED, Basis.LISTED) or old.source == new.source)
    is_small = new.price.nanos <= max_factor * old.price.nanos and old.price.nanos <= max_factor * new.price.nanos
    return ListPriceChange(new.key, new.unit, old, new, is_accepted=accept or is_small or not is_reliable)


def large_changes(changes: Iterable[ListPriceChange], max_factor: float) -> list[ListPriceChange]:
    """Return the changes by more than a factor of `max_factor`, up or down, the largest first."""
    large = [change for change in changes if not 1 / max_factor <= change.factor <= max_factor]
    return sorted(large, key=lambda change: -max(change.factor, 1 / change.factor))
