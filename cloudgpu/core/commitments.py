"""What is known of prices for who commits to use a machine for years. Little is, and none is guessed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from cloudgpu.core.catalog import CatalogOffer

SOURCE = "Cyclenerd google-cloud-pricing-cost-calculator pricing.yml, as of 2025-03-06"


class Term(StrEnum):
    """For how long one commits oneself."""

    ONE_YEAR = "1y"
    THREE_YEARS = "3y"


@dataclass(frozen=True, slots=True)
class Committed:
    """A commitment: a term whose price has to be known, or the percentage that somebody was quoted."""

    term: Term | None
    percent: Fraction | None

    @property
    def text(self) -> str:
        """How it was asked for."""
        return str(self.term) if self.percent is None else f"{float(self.percent):g}%"


# Percent off the price on demand, by (provider, type, region): 2681.57 USD a month are 1689.37 and 938.57.
_KNOWN = {
    ("gcp", "a2-highgpu-1g", "us-central1"): {Term.ONE_YEAR: Fraction(37), Term.THREE_YEARS: Fraction(65)},
}


def percent_off(committed: Committed, offer: CatalogOffer) -> Fraction | None:
    """Return how many percent of an offer's price come off; None where nobody has published it here."""
    if committed.term is None:
        return committed.percent
    shape = offer.type
    return _KNOWN.get((shape.provider, shape.name, offer.listed.region), {}).get(committed.term)
