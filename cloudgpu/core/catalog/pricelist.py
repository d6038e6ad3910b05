"""A provider's price list as it answered: rows, what was refused of them, and which parts were silent. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal, InvalidOperation

from cloudgpu.core.model.identity import Unanswered
from cloudgpu.core.model.offers import Basis, Market, Price
from cloudgpu.core.values.money import Money

MAX_PRICE = Decimal(100_000)  # USD per unit: nothing that is listed here comes near
PER_HOUR = "usd_per_hour"
MAX_QUOTED = 40  # characters of a wrong price that a sentence repeats


@dataclass(frozen=True, slots=True)
class RowKey:
    """What a price is of: a machine type on a market, or a kind of storage, address or traffic (`market` None)."""

    item: str
    region: str
    market: Market | None


@dataclass(frozen=True, slots=True)
class PriceRow:
    """One price of a list, per `unit`; `note` says what the figure leaves out or was chosen from."""

    key: RowKey
    unit: str
    price: Money
    source: str
    as_of: datetime
    basis: Basis
    note: str = ""

    def per_hour(self) -> Price:
        """Return a machine's price as offers carry it."""
        return Price(self.price, self.source, self.as_of, self.basis)


@dataclass(frozen=True, slots=True)
class RefusedRow:
    """A row that cannot be a price, by its name in the provider's list, and why."""

    row: str
    why: str


@dataclass(frozen=True, slots=True)
class PricePart:
    """A part of a list that answered whole: all its rows are of one moment. `scope` names it (`us-east-1 spot`).

    `region` is the only one that it is about; empty where it is about several.
    """

    scope: str
    asked_at: datetime
    rows: tuple[PriceRow, ...]
    refused: tuple[RefusedRow, ...] = ()
    region: str = ""


@dataclass(frozen=True, slots=True)
class PriceList:
    """What a provider's price list said: the parts that answered whole, and by name those that did not."""

    provider: str
    parts: tuple[PricePart, ...]
    unanswered: tuple[Unanswered, ...] = ()


def listed_usd(amount: object, currency: object) -> Money:
    """Return a price of a list; raise ValueError, with why, for what is not above zero, no number or not in USD."""
    if currency != "USD":
        message = f"is in {str(currency)[:MAX_QUOTED]}, not in USD"
        raise ValueError(message)
    try:
        value = Decimal(str(amount))
    except InvalidOperation:
        message = f"is {str(amount)[:MAX_QUOTED]!r}, which is not a price"
        raise ValueError(message) from None
    if not value.is_finite() or not 0 < value < MAX_PRICE:
        message = f"is {str(amount)[:MAX_QUOTED]}, which is not a price above 0 and below {MAX_PRICE}"
        raise ValueError(message)
    if not Money.usd(value):
        message = f"is {str(amount)[:MAX_QUOTED]}, which is less than a nano-dollar"
        raise ValueError(message)
    return Money.usd(value)


@dataclass
class Gathering:
    """Collects the rows of one part. Two prices for one thing: none of them is known to be the one, so both go."""

    scope: str
    asked_at: datetime
    region: str = ""
    _rows: dict[RowKey, PriceRow] = field(default_factory=dict)
    _refused: dict[str, RefusedRow] = field(default_factory=dict)
    _doubtful: set[RowKey] = field(default_factory=set)

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
        """Take a row, or refuse it; `name` is what the provider calls it."""
        try:
            price = listed_usd(amount, currency)
        except ValueError as error:
            self.refuse(name, str(error))
            return
        row = PriceRow(key, unit, price, source, self.asked_at, basis, note)
        other = self._rows.setdefault(key, row)
        if (other.price, other.unit) != (row.price, row.unit):
            self._doubtful.add(key)
            figures = f"{other.price.dollars.normalize():f} and {price.dollars.normalize():f}"
            self.refuse(name, f"has two prices, {figures}")

    def refuse(self, name: str, why: str) -> None:
        """Refuse a row by its name."""
        self._refused[name] = RefusedRow(name, why)

    def part(self) -> PricePart:
        """Return what was gathered."""
        rows = (row for key, row in self._rows.items() if key not in self._doubtful)
        return PricePart(self.scope, self.asked_at, tuple(rows), tuple(self._refused.values()), self.region)


@dataclass(frozen=True, slots=True)
class PriceMove:
    """A price that is another one now. `factor` is now over was; `taken`: the new one is in use."""

    key: RowKey
    unit: str
    was: PriceRow
    now: PriceRow
    taken: bool

    @property
    def factor(self) -> float:
        """How many times the old price the new one is."""
        return self.now.price.nanos / self.was.price.nanos


def price_move(was: PriceRow, now: PriceRow, most: float, *, accept: bool) -> PriceMove | None:
    """Return the move from one price to the next; None where it is the same.

    One by more than `most` times, up or down, is not taken unless `accept` says so. What was only derived or
    recalled, and not by this very list, is not a measure: the list's figure takes its place whatever the factor.
    """
    if (was.price, was.unit) == (now.price, now.unit):
        return None
    known = was.unit == now.unit and (was.basis in (Basis.ASKED, Basis.LISTED) or was.source == now.source)
    near = now.price.nanos <= most * was.price.nanos and was.price.nanos <= most * now.price.nanos
    return PriceMove(now.key, now.unit, was, now, taken=accept or near or not known)


def large_moves(moves: Iterable[PriceMove], most: float) -> list[PriceMove]:
    """Return the moves by more than `most` times, up or down, the largest first."""
    found = [move for move in moves if not 1 / most <= move.factor <= most]
    return sorted(found, key=lambda one: -max(one.factor, 1 / one.factor))
