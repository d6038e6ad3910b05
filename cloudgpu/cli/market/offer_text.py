"""What the tables of offers have in common: their names, amounts in one currency, marks, and why nothing fits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING

from cloudgpu.cli.render import AmountFormatter, confidence_mark, dollars
from cloudgpu.core.values.naming import counted, first_few

if TYPE_CHECKING:
    from cloudgpu.views.documents.market.catalog import GpuOffer
    from cloudgpu.views.documents.market.estimate import AttachedPrice, Estimate, EstimateDocument
    from cloudgpu.views.documents.market.recommend import RentableMachine

NO_CENTS_FROM = Decimal(1000)  # dollars
CENTS_ONLY_FROM = 10  # dollars an hour; smaller prices have four digits
_MARKS = (
    "+<?~!"  # the first that applies is shown: + < of attached costs, the others as in `cli.render.confidence_mark`
)
# What replaces a speed that was not measured, with its mark.
SPEED_BASIS_MARKS = {"memory bandwidth": "bw", "tensor TFLOPs": "tf", "dense tensor TFLOPs": "tf", "FP32 TFLOPs": "fp"}
_REQUIREMENTS = {
    "gpu": "--gpu",
    "gpu_count": "the number of GPUs",
    "min_memory_gib": "--min-memory",
    "max_price": "--max-price",
    "provider": "--provider",
    "region": "--region",
    "market": "--spot",
    "type": "--instance-type",
}
_RELAXED = {"with_legacy": "With --all", "trust": "With --trust community"}
NO_SINGLE_OBSTACLE = "No single option is the reason: leave out two. To see everything: cloudgpu gpus --all"
AZURE_SPOT = "Azure's spot prices have moved since: many later ones equal the list price."


class RoundedAmountFormatter(AmountFormatter):
    """Shows amounts of a thousand dollars or more without cents, and no sign of the dollar in a table."""

    def __call__(self, usd: str | None, extra_digits: int | None = None) -> str:
        """Return an amount of a table; a missing one is `?`, never zero."""
        is_large = self.currency is None and usd is not None and Decimal(usd) >= NO_CENTS_FROM
        return super().__call__(usd, -2 if is_large else extra_digits).replace("$", "")

    def with_code(self, usd: str | None, extra_digits: int | None = None) -> str:
        """Return an amount for a sentence."""
        return super().with_code(usd, extra_digits) if self.currency else dollars(usd)


def has_total(document: EstimateDocument) -> bool:
    """Return whether the work is limited, so that it has a total cost."""
    return document["estimates"][0]["expected"] is not None


def speed_mark(estimate: Estimate) -> str:
    """Return the mark of hours whose speed was not measured, as in `gpus`."""
    return "" if estimate["times_as_fast"] is None else SPEED_BASIS_MARKS.get(estimate["times_as_fast"]["basis"], "")


def gpu_count_text(estimate: Estimate | GpuOffer | RentableMachine) -> str:
    """Return how many GPUs there are, `2x`, or which part of one, `1/2`."""
    return str(Fraction(estimate["share"]).limit_denominator(8)) if estimate["share"] < 1 else f"{estimate['count']}x"


def short_type(estimate: Estimate | GpuOffer | RentableMachine) -> str:
    """Return the instance type without Azure's prefix."""
    return str(estimate["instance_type"]).removeprefix("Standard_")


def offer_marks(estimate: Estimate) -> str:
    """Return `m` for too little memory, and the first mark that applies to the prices of an offer."""
    all_marks = basis_mark(estimate) + "".join(attached_cost_mark(resource) for resource in estimate["attached_costs"])
    return ("" if estimate["fits"] else "m") + next((mark for mark in _MARKS if mark in all_marks), "")


def attached_cost_mark(resource: AttachedPrice) -> str:
    """Return the mark of an attached cost.

    There is no mark for a derived or an old price: a note below the table has both.
    """
    if resource["usd"] is None:
        return "+"
    if resource["at_most"] and resource["low_usd"] is None:
        return "<"
    return "?" if resource["basis"] == "unverified" else ""


def basis_mark(estimate: Estimate | GpuOffer | RentableMachine) -> str:
    """Return the mark of the machine's price."""
    return confidence_mark(estimate["provider"], estimate["price"]["basis"], old=estimate["old"])


def amount_text(usd: str) -> str:
    """Return an amount of a table, as long as it needs to be, without the sign of the dollar."""
    return dollars(usd, 2 if float(usd) >= CENTS_ONLY_FROM else 4).replace("$", "")


def work_per_dollar_text(offer: GpuOffer | RentableMachine) -> str:
    """Return the work that a dollar buys, with the mark of a speed that was not measured."""
    hours, speed = offer["h100_hours_per_dollar"], offer["speed"]
    return "?" if hours is None or speed is None else f"{hours:.3f}{SPEED_BASIS_MARKS.get(speed['basis'], '').ljust(2)}"


def is_doubtful(estimate: Estimate | GpuOffer) -> bool:
    """Say whether a type can probably not be launched."""
    return bool(estimate["legacy"] or (estimate["spot_only"] and estimate["market"] != "spot"))


def legacy_notes(estimates: Iterable[Estimate] | Iterable[GpuOffer]) -> Iterator[str]:
    """Yield each reason why types can probably not be launched, with these types."""
    reasons: dict[str, list[str]] = {}
    for estimate in filter(is_doubtful, estimates):
        reasons.setdefault(estimate["legacy"] or "not sold on demand, only as spot (unverified)", []).append(
            short_type(estimate)
        )
    yield from (f"legacy: {reason}: {first_few(names)}." for reason, names in reasons.items())


def no_match_lines(obstacles: Iterable[tuple[str, int, str]]) -> list[str]:
    """Return that nothing fits, and what fits without one requirement each: how many types, and from which price on."""
    lines = ["Nothing in the catalogue fits."]
    for requirement, type_count, usd in obstacles:
        change_text = _RELAXED.get(requirement) or f"Without {_REQUIREMENTS[requirement]}"
        lines.append(f"{change_text}: {counted(type_count, 'type')}, from {dollars(usd, 4)} an hour.")
    return lines
