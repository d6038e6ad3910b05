"""Estimates what is deducted from a bill: credits by day, and Google's sustained use discounts by month."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction

from cloudgpu.core.billing.charges import MachineCharge, billed_span, charge, money, period_charges
from cloudgpu.core.billing.discounts import AccountSpend, AfterCredits, Credit, CreditUse, credits_used
from cloudgpu.core.billing.rules import PARTS_PER_NANO, PARTS_PER_NANO_HOUR, parse_us, price_pieces, to_us
from cloudgpu.core.model.machine import Machine, not_none
from cloudgpu.core.model.usage import Per, Resource, Usage
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.times import from_iso, iso, periods

EndedUsages = Callable[[datetime | None], Iterable[tuple[str, Usage]]]  # (machine id, usage) that ended since a time
_TIER_COUNT = 4  # quarters of the month, charged at 100, 80, 60 and 40 % of the price
_TIER_STEP = 5  # each further quarter is cheaper by a fifth of the price
_ELIGIBLE_SERIES = "n1-"  # and GPUs attached to it; A2, A3, G2 and their GPUs have none
SOURCE = "Google Cloud, Sustained use discounts, as stored in 2024 to 2026"
_REASON = (
    f"estimated ({SOURCE}): 100, 80, 60 and 40 % of the price for each quarter of the month; N1 machines with the same "
    "GPU in one region count together by their price; only self-serve billing accounts have it"
)


def after_credits(
    configured: Sequence[Credit],
    machines: Sequence[Machine],
    ended: EndedUsages,
    now: datetime,
    since: datetime | None = None,
    until: datetime | None = None,
) -> AfterCredits:
    """Return the use of credits for the spend in [`since`, `until`), and what remains of each at its end.

    What was spent before uses them up first. Days are those of UTC. `ended` gives the usages that ended since a time.
    """
    all_use = credits_used(configured, list(_spent_by_day(machines, ended(None), now, until)))
    if since is None:
        return all_use
    earlier = credits_used(configured, list(_spent_by_day(machines, ended(None), now, since)))
    pairs = zip(all_use.credit_uses, earlier.credit_uses, strict=True)
    uses = tuple(CreditUse(one.credit, one.used - before.used, one.remaining) for one, before in pairs)
    return AfterCredits(all_use.before - earlier.before, all_use.after - earlier.after, uses)


def _spent_by_day(
    machines: Sequence[Machine], ended: Iterable[tuple[str, Usage]], now: datetime, until: datetime | None
) -> Iterator[AccountSpend]:
    """Yield what each account spent on each day of UTC, before `until`."""
    by_id = {machine.id: machine for machine in machines}
    open_usages = ((machine, use) for machine in machines for use in machine.open_usage)
    sums: dict[tuple[str, str, datetime], int] = defaultdict(int)
    for machine, use in (*((by_id[subject], use) for subject, use in ended), *open_usages):
        first, last = billed_span(use, now)
        last = min(filter(None, (last, until)))
        for day in periods("day", first, last, UTC) if first <= last else ():
            end = min(filter(None, (day.end, until)))
            sums[use.provider, machine.account or "", day.begin] += charge(use, now, since=day.begin, until=end).amount
    for (provider, account, at), amount in sums.items():
        yield AccountSpend(provider, account, at, money(amount))


def sustained_use_discounts(
    machines: Sequence[Machine],
    ended: EndedUsages,
    now: datetime,
    since: datetime | None = None,
    until: datetime | None = None,
) -> list[SustainedUseDiscount]:
    """Return the sustained use discounts of all UTC months that are completely in [`since`, `until`), or up to now.

    A month that the period cuts has none here, as its discount depends on the whole month. Without a machine on Google
    Cloud, no usage is read.
    """
    began = [from_iso(machine.first_at) for machine in machines if machine.provider == "gcp"]
    if not began:
        return []
    first = max(filter(None, (min(began), since)))
    usages = [one for one in ended(first) if is_eligible(one[1])]  # read once for all months
    eligible = [
        machine._replace(open_usage=tuple([use for use in machine.open_usage if is_eligible(use)]))
        for machine in machines
    ]
    discounts: list[SustainedUseDiscount] = []
    for month in periods("month", first, min(filter(None, (until, now))), UTC):
        is_cut = until is not None and until < month.end and until < now
        if not is_cut and (since is None or since <= month.begin):
            bill = period_charges(
                eligible, _usages_within(usages, month.begin, month.end), now, since=month.begin, until=month.end
            )
            discounts += sustained_use(bill, month.begin)
    return discounts


def _usages_within(usages: Iterable[tuple[str, Usage]], begin: datetime, end: datetime) -> list[tuple[str, Usage]]:
    """Return the usages that may be billed in a period; rounding up extends a usage by less than a day."""
    first, last = iso(begin - timedelta(days=1)), iso(end)
    return [
        one for one in usages if one[1].begin < last and max(not_none(one[1].end), one[1].maybe_until or "") >= first
    ]


@dataclass(frozen=True, slots=True)
class SustainedUseDiscount:
    """The discount of a pool of machines in a month: `amount` in exact parts (`PARTS_PER_NANO`). `month` is `2026-11`.

    Months are those of UTC. `what` names the machines, for people. `reason` says by what rule, and from which source.
    """

    account: str
    region: str
    what: str
    month: str
    amount: int
    reason: str


def sustained_use(bill: Iterable[MachineCharge], month: datetime) -> list[SustainedUseDiscount]:
    """Return the discounts of the month of UTC in which `month` lies, from its bill (`period_charges`, cut to it).

    A pure estimate: the provider pools vCPUs, memory and each kind of GPU by themselves over a billing account, and
    its months begin at midnight of its own zone; here machines with the same GPU are pooled by what they cost per
    hour. Spot machines, and what has no price, get none. What ran in the month so far counts as if nothing followed.
    """
    first = month.astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    begin, end = to_us(first), to_us((first + timedelta(days=32)).replace(day=1))
    pools: dict[tuple[str, str, str], list[tuple[int, int, int]]] = defaultdict(list)
    for one in bill:
        pools[_pool(one.machine)] += _hourly_intervals(one, begin, end)
    discounts = []
    for (account, region, what), rates in sorted(pools.items()):
        amount = _discount_amount(rates, end - begin)
        if amount:
            discounts.append(SustainedUseDiscount(account, region, what, f"{first:%Y-%m}", amount, _REASON))
    return discounts


def is_eligible(usage: Usage) -> bool:
    """Say whether a usage gets the discount: an N1 machine, on demand, priced by the hour."""
    terms = (usage.provider, usage.market, usage.resource, usage.per)
    return terms == ("gcp", "on_demand", Resource.INSTANCE, Per.HOUR) and usage.kind.startswith(_ELIGIBLE_SERIES)


def month_discount(provider: str, kind: str, market: str, per_hour: Money, run_us: int, month_us: int) -> Money | None:
    """Return the discount of one machine that runs for `run_us` of a month's `month_us`, or None."""
    if (provider, market) != ("gcp", "on_demand") or not kind.startswith(_ELIGIBLE_SERIES):
        return None
    exact = _discount_amount([(0, run_us, per_hour.nanos)], month_us)
    return Money(round(Fraction(exact, PARTS_PER_NANO))) if exact else None


def _pool(machine: Machine) -> tuple[str, str, str]:
    gpus = sorted({gpu.name for gpu in machine.accelerators or ()})
    return machine.account or "", machine.region or "", " and ".join(["N1", *gpus])


def _hourly_intervals(billed: MachineCharge, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield what a machine's run costs by the hour within the month: (from, to, nano-dollars)."""
    use, charged = billed.charge.usage, billed.charge
    if not is_eligible(use) or not use.segments or not charged.amount:
        return
    first = max(begin, parse_us(use.begin))
    for start, stop, nanos in price_pieces(use, first, min(end, first + charged.billed_us), 0):
        if start < stop:
            yield start, stop, nanos * use.quantity


def _discount_amount(rates: list[tuple[int, int, int]], month_us: int) -> int:
    """Return the discount: each dollar of the hourly cost counts for as long as the cost was that high or higher.

    So machines that follow one another are one that runs on (the provider's inferred instances).
    """
    time_by_cost = _time_at_cost(rates)
    amount = previous_level = 0
    for level in sorted(time_by_cost):
        duration = sum(span for hourly_cost, span in time_by_cost.items() if hourly_cost >= level)
        discounted_time = sum(max(0, _TIER_COUNT * duration - quarter * month_us) for quarter in range(1, _TIER_COUNT))
        amount += (level - previous_level) * discounted_time
        previous_level = level
    return amount * (PARTS_PER_NANO_HOUR // (_TIER_COUNT * _TIER_STEP))


def _time_at_cost(rates: list[tuple[int, int, int]]) -> dict[int, int]:
    """Return for how long, in microseconds, the machines together had each hourly cost in nano-dollars above zero."""
    changes: dict[int, int] = defaultdict(int)
    for start, stop, nanos in rates:
        changes[start] += nanos
        changes[stop] -= nanos
    time_by_cost: dict[int, int] = defaultdict(int)
    hourly_cost = previous = 0
    for moment in sorted(changes):
        if hourly_cost:
            time_by_cost[hourly_cost] += moment - previous
        hourly_cost += changes[moment]
        previous = moment
    return time_by_cost
