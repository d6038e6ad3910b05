"""The answer of `estimate` as plain values: what each offer costs, by part, with where every price comes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING

from cloudgpu.core.advice.estimate import MONTH_US, CostParts, Estimate
from cloudgpu.core.billing.deductions import month_discount
from cloudgpu.core.catalog.catalog import is_old_price
from cloudgpu.core.values.money import HOUR_MICROS, Money, usd
from cloudgpu.core.values.times import iso
from cloudgpu.views.plans import price_document

if TYPE_CHECKING:
    from datetime import datetime

    from cloudgpu.core.advice.estimate import AttachedCostEstimate, PricedMachines
    from cloudgpu.core.catalog.gpus import SpeedRatio
    from cloudgpu.core.values.currency import Currency
    from cloudgpu.views.documents.market.estimate import (
        AttachedPrice,
        CostSplit,
        Estimate as EstimateValue,
        Obstacle,
        RelativeSpeed,
    )


@dataclass(frozen=True, slots=True)
class DisplayOptions:
    """How amounts are shown: the time now, a currency besides dollars, and the factor that adds fees (None: none)."""

    now: datetime
    currency: Currency | None
    fee_factor: Fraction | None


@dataclass(slots=True)
class GpuSpeeds:
    """The known speeds of GPUs for the work, by GPU name, and why other GPUs are left out.

    `peaks` are in TFLOPs; those of GPUs in `unverified` are from memory, without a source. `ratios` are relative to the
    GPU that the user named, `left_out` the reasons.
    """

    peaks: dict[str, float] = field(default_factory=dict)
    unverified: set[str] = field(default_factory=set)
    ratios: dict[str, SpeedRatio] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)


def estimates_document(
    estimates: Sequence[Estimate], display: DisplayOptions, speeds: GpuSpeeds
) -> list[EstimateValue]:
    """Return every estimate, in this order."""
    return [_estimate_document(estimate, display, speeds) for estimate in estimates]


def _estimate_document(estimate: Estimate, display: DisplayOptions, speeds: GpuSpeeds) -> EstimateValue:
    machines = estimate.machines
    machine_type, listed = machines.offer.type, machines.offer.listed
    ratio = speeds.ratios.get(machine_type.gpu.name)
    return {
        "provider": machine_type.provider,
        "region": listed.region,
        "instance_type": machine_type.name,
        "market": str(listed.market),
        "trust": str(machines.offer.trust),
        "number": machines.number,
        "gpu": machine_type.gpu.name,
        "count": machine_type.gpu.count,
        "share": machine_type.gpu.share,
        "gpu_memory_gib": machine_type.gpu.memory_gib,
        "vcpus": machine_type.vcpus or None,
        "memory_gib": machine_type.memory_gib or None,
        "price": price_document(listed.price),
        "price_dated": listed.as_of_text,
        "old": is_old_price(listed.price.as_of, display.now),
        "legacy": machine_type.legacy_reason or None,
        "spot_only": machine_type.spot_only,
        "unverified": list(machine_type.unverified),
        "committed": machines.committed,
        "paid_usd_per_hour": usd(machines.per_hour),
        "attached_costs": [_attached_price(resource, display) for resource in machines.attached],
        "unpriced": sorted({resource.part for resource in machines.attached if resource.rate.price is None}),
        "fits": estimate.has_enough_gpu_memory,
        "uncertain": estimate.price_caveat or None,
        "peak_tflops": speeds.peaks.get(machine_type.gpu.name),
        "peak_unverified": machine_type.gpu.name in speeds.unverified,
        "times_as_fast": None if ratio is None else _ratio(ratio),
        "day": _cost_split(estimate.costs.get("day"), display),
        "month": _cost_split(estimate.costs.get("month"), display),
        "year": _cost_split(estimate.costs.get("year"), display),
        "low": _cost_split(estimate.costs.get("low"), display),
        "expected": _cost_split(estimate.costs.get("expected"), display),
        "high": _cost_split(estimate.costs.get("high"), display),
        "with_fees_usd": None
        if display.fee_factor is None
        else usd(estimate.ranking_cost.total.scaled(display.fee_factor)),
        "sustained_use_usd": _sustained_use_usd(machines, estimate.costs.get("month")),
    }


def _cost_split(parts: CostParts | None, display: DisplayOptions) -> CostSplit | None:
    """Return what a period costs; the parts that have a price add up to `usd` to the last digit."""
    if parts is None:
        return None
    return {
        "hours": _hours_text(parts.hours),
        "machine_usd": usd(parts.machine),
        "disk_usd": None if parts.disk is None else usd(parts.disk),
        "address_usd": None if parts.address is None else usd(parts.address),
        "usd": usd(parts.total),
        "amount": None if display.currency is None else f"{display.currency.convert(parts.total):f}",
    }


def _attached_price(estimate: AttachedCostEstimate, display: DisplayOptions) -> AttachedPrice:
    rate = estimate.rate
    is_old = rate.price is not None and (rate.as_of is None or is_old_price(rate.as_of, display.now))
    return {
        "part": estimate.part,
        "kind": rate.stored_as,  # the kind under which the price list has a disk or an address
        "quantity": rate.quantity,
        "per": str(rate.per),
        "paid": str(estimate.paid_while),
        "usd": None if rate.price is None else usd(rate.price),
        "low_usd": None if rate.low is None else usd(rate.low),
        "at_most": rate.why_maybe_less or None,
        "source": rate.source,
        "as_of": None if rate.as_of is None else iso(rate.as_of),
        "basis": None if rate.basis is None else str(rate.basis),
        "old": is_old,
    }


def _ratio(ratio: SpeedRatio) -> RelativeSpeed:
    return {
        "ratio": round(float(ratio.ratio), 4),
        "low": round(float(ratio.low), 4),
        "high": round(float(ratio.high), 4),
        "basis": str(ratio.basis),
    }


def _sustained_use_usd(machines: PricedMachines, month: CostParts | None) -> str | None:
    """Return Google's automatic sustained use discount for a month of these machines: an estimate, and in no amount."""
    if month is None or machines.committed:
        return None
    machine_type, market = machines.offer.type, str(machines.offer.listed.market)
    usage_us = round(month.hours * HOUR_MICROS)
    discount = month_discount(machine_type.provider, machine_type.name, market, machines.per_hour, usage_us, MONTH_US)
    return None if discount is None else usd(discount.scaled(Fraction(machines.number)))


def _hours_text(hours: Fraction) -> str:
    """Return hours as decimal text, rounded half-even to a hundred-millionth."""
    return usd(Money(round(hours * 10**8) * 10))


def obstacles_document(by_requirement: Mapping[str, tuple[int, Money]]) -> list[Obstacle]:
    """Return each requirement that rules out machine types: how many there are without it, and their lowest price."""
    return [
        {"requirement": name, "types": types, "usd_per_hour": usd(price)}
        for name, (types, price) in by_requirement.items()
    ]
