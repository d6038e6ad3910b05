"""Google's sustained use discount: what machines of one month and region get off together, as lines of their own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction

from cloudgpu.core.billing.granularity import EXACT, PARTS, parse_us, pieces, to_us
from cloudgpu.core.billing.totals import Billed
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.model.usage import Per, Resource, Usage
from cloudgpu.core.values.money import Money

_TIERS = 4  # quarters of the month, charged at 100, 80, 60 and 40 % of the price
_STEP = 5  # each further quarter is cheaper by a fifth of the price
_SERIES = "n1-"  # and GPUs attached to it; A2, A3, G2 and their GPUs have none
SOURCE = "Google Cloud, Sustained use discounts, as stored in 2024 to 2026"
_REASON = (
    f"estimated ({SOURCE}): 100, 80, 60 and 40 % of the price for each quarter of the month; N1 machines with the same "
    "GPU in one region count together by their price; only self-serve billing accounts have it"
)


@dataclass(frozen=True, slots=True)
class Discount:
    """What is taken off: `amount` in exact parts (`billing.EXACT`), above zero. `month` is `2026-11`, in UTC.

    `what` is for people: which machines. `reason` says by what rule, from which source, and what it rests on.
    """

    account: str
    region: str
    what: str
    month: str
    amount: int
    reason: str


def sustained_use(bill: Iterable[Billed], month: datetime) -> list[Discount]:
    """Return the discounts of the month of UTC in which `month` lies, from its bill (`totals.billed`, cut to it).

    A pure estimate: the provider pools vCPUs, memory and each kind of GPU by themselves over a billing account, and
    its months begin at midnight of its own zone; here machines with the same GPU are pooled by what they cost per
    hour. Spot machines, and what has no price, get none. What ran in the month so far counts as if nothing followed.
    """
    first = month.astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    begin, end = to_us(first), to_us((first + timedelta(days=32)).replace(day=1))
    pools: dict[tuple[str, str, str], list[tuple[int, int, int]]] = defaultdict(list)
    for one in bill:
        pools[_pool(one.machine)] += _rates(one, begin, end)
    found = []
    for (account, region, what), rates in sorted(pools.items()):
        amount = _taken_off(rates, end - begin)
        if amount:
            found.append(Discount(account, region, what, f"{first:%Y-%m}", amount, _REASON))
    return found


def may_count(usage: Usage) -> bool:
    """Say whether a use (as JSON) is of a kind that gets the discount: an N1 machine on demand, by the hour."""
    fits = (usage.provider, usage.market, usage.resource, usage.per)
    return fits == ("gcp", "on_demand", Resource.INSTANCE, Per.HOUR) and usage.kind.startswith(_SERIES)


def off_a_month(provider: str, kind: str, market: str, per_hour: Money, held_us: int, month_us: int) -> Money | None:
    """Return what comes off the price of one machine that is on for `held_us` of a month; None where nothing does."""
    if (provider, market) != ("gcp", "on_demand") or not kind.startswith(_SERIES):
        return None
    exact = _taken_off([(0, held_us, per_hour.nanos)], month_us)
    return Money(round(Fraction(exact, EXACT))) if exact else None


def _pool(machine: Machine) -> tuple[str, str, str]:
    gpus = sorted({gpu.name for gpu in machine.accelerators or ()})
    return machine.account or "", machine.region or "", " and ".join(["N1", *gpus])


def _rates(one: Billed, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield what a machine's run costs by the hour within the month: (from, to, nano-dollars)."""
    use, charged = one.charge.usage, one.charge
    fits = (use.provider, use.market, use.resource, use.per) == ("gcp", "on_demand", Resource.INSTANCE, Per.HOUR)
    if not fits or not use.kind.startswith(_SERIES) or not use.segments or not charged.amount:
        return
    first = max(begin, parse_us(use.begin))
    for start, stop, nanos in pieces(use, first, min(end, first + charged.billed_us), 0):
        if start < stop:
            yield start, stop, nanos * use.quantity


def _taken_off(rates: list[tuple[int, int, int]], month: int) -> int:
    """Return the discount: each dollar of the hourly cost counts for as long as the cost was that high or higher.

    So machines that follow one another are one that runs on (the provider's inferred instances).
    """
    lasted = _lasted(rates)
    found = below = 0
    for level in sorted(lasted):
        held = sum(span for height, span in lasted.items() if height >= level)
        beyond = sum(max(0, _TIERS * held - quarter * month) for quarter in range(1, _TIERS))
        found += (level - below) * beyond
        below = level
    return found * (PARTS // (_TIERS * _STEP))


def _lasted(rates: list[tuple[int, int, int]]) -> dict[int, int]:
    """Return for how long the machines together cost each height, nano-dollars by the hour, above zero."""
    changes: dict[int, int] = defaultdict(int)
    for start, stop, nanos in rates:
        changes[start] += nanos
        changes[stop] -= nanos
    lasted: dict[int, int] = defaultdict(int)
    height = previous = 0
    for moment in sorted(changes):
        if height:
            lasted[height] += moment - previous
        height += changes[moment]
        previous = moment
    return lasted
