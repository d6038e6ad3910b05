"""The price of a resource other than a machine: its quantity, price, unit and source. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from cloudgpu.core.model.offers import Basis
from cloudgpu.core.model.records import RateRecord
from cloudgpu.core.model.usage import Per, Resource
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.times import iso

MONTH_H = 730  # hours in a month, as the clouds' own price pages count


@dataclass(frozen=True, slots=True)
class Rate:
    """What `quantity` of a resource costs: `price` for one of it, per hour, month or GB. None: no price is known.

    `stored_as` is the price list's word for it. `by_size` False: the price is for the whole, whatever its size.
    `why_maybe_less` is why it may cost less, even nothing; empty if it cannot. `low` is the least that a
    derived price may be, where that is known; the bill does not use it.
    """

    resource: Resource
    stored_as: str
    quantity: int
    per: Per
    price: Money | None
    source: str
    as_of: datetime | None = None
    basis: Basis | None = None
    why_maybe_less: str = ""
    by_size: bool = True
    low: Money | None = None

    @property
    def per_month(self) -> Money | None:
        """What it costs in a month of 730 hours; None if no price is known, or it is per GB."""
        return self._monthly(self.price)

    @property
    def least_per_month(self) -> Money | None:
        """What it costs in such a month at least, where the price is derived and may be lower; None elsewhere."""
        return self._monthly(self.low)

    def _monthly(self, price: Money | None) -> Money | None:
        if price is None or self.per is Per.GB:
            return None
        return Money(price.nanos * self.quantity * (MONTH_H if self.per is Per.HOUR else 1))

    def terms(self) -> RateRecord:
        """Return the price as a ledger event stores it; the resource's quantity is another field of the event."""
        return {
            "per": str(self.per),
            "nanos": None if self.price is None else self.price.nanos,
            "source": self.source,
            "as_of": None if self.as_of is None else iso(self.as_of),
            "basis": None if self.basis is None else str(self.basis),
            "why_maybe_less": self.why_maybe_less,
            "by_size": self.by_size,
        }
