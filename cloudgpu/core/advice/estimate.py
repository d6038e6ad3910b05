"""What a machine would cost: by the hours of a day and the days of a week, or for one piece of work. Pure.

A year is 365 days, a month a twelfth of it (730 hours). A run is billed by its provider's rule (`core.billing.rules`):
started granules whole, at least the minimum of each start, in the more expensive reading where sources disagree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from cloudgpu.core.billing.rates import MONTH_H, Rate
from cloudgpu.core.billing.rules import DAY_US, Rule, rule_of
from cloudgpu.core.catalog.catalog import CatalogOffer, GpuSpec
from cloudgpu.core.model.usage import Per, Resource
from cloudgpu.core.values.money import HOUR_MICROS, ZERO, Money

MONTH_US = MONTH_H * HOUR_MICROS
YEAR_US = 12 * MONTH_US
ALWAYS = Fraction(24)  # hours a day
WEEK = 7  # days


class ComputePrecision(StrEnum):
    """The number format in which a GPU computes; its peaks are those for dense matrices."""

    FP32 = "fp32"
    FP16 = "fp16"
    BF16 = "bf16"
    FP8 = "fp8"


class PaidWhile(StrEnum):
    """When an attached cost is paid."""

    KEPT = "always"  # while it exists, whether the machine runs or not
    RUNNING = "running"  # while the machine runs
    IDLE = "idle"  # while it exists and the machine is off


@dataclass(frozen=True, slots=True)
class WeeklyHours:
    """How long a machine runs: so many hours on so many days of a week."""

    hours_a_day: Fraction = ALWAYS
    days: Fraction = Fraction(WEEK)

    @property
    def share(self) -> Fraction:
        """The share of all time in which it runs, from 0 to 1."""
        return self.hours_a_day / 24 * self.days / WEEK


@dataclass(frozen=True, slots=True)
class PricedTime:
    """What is priced: the times in which the machine is up, and how long disks exist (`disk_us`, in microseconds).

    `uptime_spans` are (length in microseconds, number of such spans).
    """

    uptime_spans: tuple[tuple[int, Fraction], ...]
    disk_us: Fraction


def average_use(hours: WeeklyHours, length_us: int) -> PricedTime:
    """Return what is priced in an average day, month or year (`length_us`) of a use that goes on for ever."""
    if hours.share == 1:
        return PricedTime(((length_us, Fraction(1)),), Fraction(length_us))
    span_count = Fraction(length_us, DAY_US) * hours.days / WEEK
    return PricedTime(((_micros(hours.hours_a_day), span_count),), Fraction(length_us))


def use_of_job(hours: WeeklyHours, work: Fraction) -> PricedTime:
    """Return what is priced for `work` hours of work: full days of it, and the rest on a last one.

    Disks exist from its begin to its end: longer than the machine runs, by the nights between its days. Where it
    does not run on all days of a week, those are an average one apart.
    """
    work_us, day_us = _micros(work), _micros(hours.hours_a_day)
    if hours.share == 1 or work_us <= day_us:
        return PricedTime(((work_us, Fraction(1)),), Fraction(work_us))
    full_days, remaining = divmod(work_us, day_us)
    last = ((remaining, Fraction(1)),) if remaining else ()
    nights = full_days if remaining else full_days - 1
    return PricedTime(((day_us, Fraction(full_days)), *last), work_us + nights * (DAY_US * WEEK / hours.days - day_us))


def _micros(hours: Fraction) -> int:
    """Return hours in whole microseconds, a started one whole."""
    return -(-hours.numerator * HOUR_MICROS // hours.denominator)


@dataclass(frozen=True, slots=True)
class AttachedCostEstimate:
    """One rate that is paid in addition to a machine; `part` is what it is for, "disk" or "address"."""

    part: str
    rate: Rate
    paid_while: PaidWhile


@dataclass(frozen=True, slots=True)
class PricedMachines:
    """The machines of an estimate: `number` of an offer, the price per hour after discounts, and the attached costs.

    `committed`: every hour is paid, used or not.
    """

    offer: CatalogOffer
    per_hour: Money
    attached: tuple[AttachedCostEstimate, ...] = ()
    number: int = 1
    committed: bool = False


@dataclass(frozen=True, slots=True)
class CostParts:
    """What a priced time costs, by part; None is a part without a known price, which is in no sum.

    `hours` are those that one machine is billed for. Each part is rounded half-even once for one machine.
    """

    hours: Fraction
    machine: Money
    disk: Money | None
    address: Money | None

    @property
    def total(self) -> Money:
        """The sum of what has a price."""
        return self.machine + (self.disk or ZERO) + (self.address or ZERO)

    @property
    def is_fully_priced(self) -> bool:
        """Whether every part has a price."""
        return self.disk is not None and self.address is not None


def cost_parts(machines: PricedMachines, priced_time: PricedTime) -> CostParts:
    """Return what a priced time costs."""
    listed, machine_type = machines.offer.listed, machines.offer.type
    rule = rule_of(machine_type.provider, str(listed.market), Resource.INSTANCE)
    billed = priced_time.disk_us if machines.committed else _billed_us(rule, priced_time)
    return CostParts(
        hours=billed / HOUR_MICROS,
        machine=_for_all_machines(machines.number, Fraction(machines.per_hour.nanos) * billed / HOUR_MICROS),
        disk=_part_cost("disk", machines, priced_time),
        address=_part_cost("address", machines, priced_time),
    )


def _part_cost(part: str, machines: PricedMachines, priced_time: PricedTime) -> Money | None:
    nanos = Fraction(0)
    for estimate in machines.attached:
        if estimate.part == part:
            cost = _attached_cost(estimate, machines, priced_time)
            if cost is None:
                return None
            nanos += cost
    return _for_all_machines(machines.number, nanos)


def _attached_cost(
    attached: AttachedCostEstimate, machines: PricedMachines, priced_time: PricedTime
) -> Fraction | None:
    """Return the attached cost of one machine in nano-dollars; None if no price is known."""
    rate = attached.rate
    if rate.price is None:
        return None
    rule = rule_of(machines.offer.type.provider, str(machines.offer.listed.market), rate.resource)
    running_us = _billed_us(rule, priced_time)
    max_billed_us = Fraction(
        rule.max_billed_us(-(-priced_time.disk_us.numerator // priced_time.disk_us.denominator), interrupted=False)
    )
    disk_us = max(max_billed_us, priced_time.disk_us)
    paid_us = {
        PaidWhile.KEPT: disk_us,
        PaidWhile.RUNNING: running_us,
        PaidWhile.IDLE: max(Fraction(0), disk_us - running_us),
    }[attached.paid_while]
    return Fraction(rate.price.nanos) * rate.quantity * paid_us / (MONTH_US if rate.per is Per.MONTH else HOUR_MICROS)


def _billed_us(rule: Rule, priced_time: PricedTime) -> Fraction:
    return sum(
        (times * rule.max_billed_us(span_us, interrupted=False) for span_us, times in priced_time.uptime_spans),
        Fraction(0),
    )


def _for_all_machines(number: int, nanos: Fraction) -> Money:
    return Money(round(nanos) * number)


@dataclass(frozen=True, slots=True)
class WorkHours:
    """For how many hours the machines of an offer are busy with a piece of work: `hours` expected, and its range."""

    low: Fraction
    hours: Fraction
    high: Fraction


def peak_tflops(spec: GpuSpec, precision: ComputePrecision) -> float | None:
    """Return a GPU's dense peak in TFLOPs; None if its specification has none, or it lacks this precision."""
    if precision is ComputePrecision.BF16 and not has_bf16(spec):
        return None
    return {ComputePrecision.FP32: spec.fp32_tflops, ComputePrecision.FP8: spec.fp8_tflops}.get(
        precision, spec.tensor_tflops
    )


def has_bf16(spec: GpuSpec) -> bool:
    """Say whether a GPU computes in bfloat16: NVIDIA's do since compute capability 8.0 (Ampere)."""
    major = spec.compute_capability.partition(".")[0]
    return not major.isdecimal() or int(major) >= 8  # noqa: PLR2004  (Ampere)


def is_unverified(spec: GpuSpec, precision: ComputePrecision) -> bool:
    """Say whether this peak is unverified, by the specification's notes: `FP8 recalled` is about FP8 alone."""
    if precision is ComputePrecision.FP32:
        return False
    notes_on_all = spec.notes.replace("FP8 recalled", "")
    return "recalled" in (spec.notes if precision is ComputePrecision.FP8 else notes_on_all)


def compute_hours(flops: Fraction, tflops: float, gpus: Fraction, efficiency: Fraction) -> Fraction:
    """Return for how many hours so many GPUs compute: several are taken for so many times one."""
    per_hour = Fraction(str(tflops)) * 10**12 * 3600 * efficiency * gpus
    return flops / per_hour


@dataclass(frozen=True, slots=True)
class Estimate:
    """The cost of one offer, split by purpose; `ranked_by` is the split that sorts estimates.

    `has_enough_gpu_memory` False: a GPU of it has less memory than the work had before. `price_caveat` is why its price
    may not hold.
    """

    machines: PricedMachines
    costs: Mapping[str, CostParts]
    ranked_by: str
    work_hours: WorkHours | None = None
    has_enough_gpu_memory: bool = True
    price_caveat: str = ""

    @property
    def ranking_cost(self) -> CostParts:
        """The cost by which estimates are ranked."""
        return self.costs[self.ranked_by]


def cheapest_first(estimates: Sequence[Estimate]) -> list[Estimate]:
    """Return the cheapest first; then those with a doubtful price, without one, and last those that may not fit."""
    return sorted(estimates, key=_sort_key)


def cheapest_per_group(estimates: Sequence[Estimate], *, one_row_per_type: bool) -> list[Estimate]:
    """Return the cheapest of every instance type, else of every GPU at every provider, in order; shares stand apart.

    An offer with a committed price is preferred, though it is paid for every hour.
    """
    chosen: dict[tuple[str, str, float], Estimate] = {}
    for estimate in sorted(estimates, key=lambda one: (not one.machines.committed, _sort_key(one))):
        machine_type = estimate.machines.offer.type
        key = (
            (machine_type.provider, machine_type.name, 0)
            if one_row_per_type
            else (machine_type.provider, machine_type.gpu.name, machine_type.gpu.share)
        )
        chosen.setdefault(key, estimate)
    return cheapest_first(list(chosen.values()))


def whole_gpus_first(estimates: Sequence[Estimate]) -> list[Estimate]:
    """Return estimates with whole GPUs before those with a share of one, each group in its order."""
    return sorted(estimates, key=lambda estimate: estimate.machines.offer.type.gpu.share < 1)


def _sort_key(one: Estimate) -> tuple[bool, bool, bool, Money, str, str, str]:
    offer = one.machines.offer
    names = (offer.type.provider, offer.type.name, offer.listed.region)
    return (
        not one.has_enough_gpu_memory,
        bool(one.price_caveat),
        not one.ranking_cost.is_fully_priced,
        one.ranking_cost.total,
        *names,
    )
