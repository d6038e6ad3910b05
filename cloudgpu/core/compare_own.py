"""What the user's own machines did and took, and what the same work would have cost on a cloud. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction
from typing import TYPE_CHECKING

from cloudgpu.core.units import hours

if TYPE_CHECKING:
    from cloudgpu.core.catalog import CatalogOffer
    from cloudgpu.core.money import Money
    from cloudgpu.core.units import Energy


@dataclass(frozen=True, slots=True)
class Own:
    """What one of the user's own machines did, and what that took.

    `worked` is how long its GPUs worked, or all its use where they are not read; of `unknown` nothing is known.
    `cards` is the same for each GPU that worked, in the part of it, `counted`, in which they were counted.
    `energy` is what was measured of its GPUs, None where nobody did. `electricity` is what the ledger says that the
    machine cost, as `cost` shows it; `assumed`: by usual watts or a usual tariff, as its settings have none.
    `cloud` is what the same work would have cost at `offer`, an hour of one of whose GPUs costs `per_hour`; `ratio` of
    its hours do one of these.
    """

    id: str
    name: str
    gpu: str
    gpus: float
    worked: timedelta
    unknown: timedelta
    energy: Energy | None
    electricity: Money | None
    assumed: bool = False
    offer: CatalogOffer | None = None
    ratio: Fraction = Fraction(1)
    cards: timedelta = timedelta(0)
    counted: timedelta = timedelta(0)

    @property
    def gpu_time(self) -> timedelta:
        """How long each of its GPUs worked, in all: where they were not counted, all of them while one did."""
        return min(self.cards, self.counted * self.gpus) + self.uncounted * self.gpus

    @property
    def uncounted(self) -> timedelta:
        """How long it worked without anybody counting the GPUs that did."""
        return max(timedelta(0), self.worked - self.counted)

    @property
    def per_hour(self) -> Money | None:
        """What an hour of one GPU of the offer costs."""
        if self.offer is None:
            return None
        gpu = self.offer.type.gpu
        return self.offer.listed.price.per_hour.scaled(1 / (Fraction(str(gpu.share)) * gpu.count))

    @property
    def cloud(self) -> Money | None:
        """What the same work would have cost there."""
        price = self.per_hour
        return None if price is None else price.scaled(hours(self.gpu_time) * self.ratio)
