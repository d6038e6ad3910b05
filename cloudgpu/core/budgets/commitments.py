"""What machines and retained resources will cost, at the prices that budgets count: never at today's spot price."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from cloudgpu.core.billing.rates import rate_intervals
from cloudgpu.core.billing.rules import RateInterval, Rule, parse_us, rule_of
from cloudgpu.core.model.facts import AttachedCost, Retained
from cloudgpu.core.model.machine import Machine, account_key, may_be_running, not_none
from cloudgpu.core.model.usage import Per, PriceInterval, Usage
from cloudgpu.core.policies.guards import safeguards_of
from cloudgpu.core.values.money import HOUR_MICROS

OVERDUE_US = HOUR_MICROS  # microseconds: a machine that runs beyond its end is counted for so long from now on


class SubstitutePrice(NamedTuple):
    """A price in place of an unknown one: `nanos` per `hour` or `month`; `why` is empty for a known price.

    `by_size`: it is for each GB; else for the whole resource.
    """

    nanos: int
    per: str
    why: str
    by_size: bool = True

    def number(self, quantity: int) -> int:
        """Return how often it is paid for so many GB, or so many of a resource that has no size."""
        return quantity if self.by_size else 1


@dataclass(frozen=True, slots=True)
class Prices:
    """Where budgets get the prices that the ledger does not have.

    `compute_price` gives a machine's on-demand price in nano-dollars an hour, or None. `attached_price` takes provider,
    region, the price list's name and the resource, and always gives one. `at_spot_prices`: spot machines count at their
    present spot price, which is for forecasts only. `reaper_runs`: scheduled runs of the reaper succeed, and end
    machines at renew-until.
    """

    compute_price: Callable[[Machine], int | None]
    attached_price: Callable[[str, str, str, str], SubstitutePrice]
    at_spot_prices: bool = False
    reaper_runs: bool = True


class Commitment(NamedTuple):
    """The future cost of one resource: `nanos` per `hour` or `month`, up to `until`.

    Times are in microseconds since 1970; `until` None: without an end. `assumption` says why the price is not a known
    one, and what is counted instead (empty: it is known). `since` is when a launch of unknown outcome was sent: it may
    be billed from then on, and no usage in the ledger says so; None: what it has cost so far is in the ledger.
    """

    what: str
    until: int | None
    nanos: int
    per: str
    rule: Rule
    assumption: str = ""
    since: int | None = None

    def intervals(self, now: int, horizon: int) -> list[RateInterval]:
        """Return what it costs from `now` on, or since it may, up to its end, or the horizon where it has none."""
        begin = now if self.since is None else min(now, self.since)
        return rate_intervals(begin, horizon if self.until is None else self.until, self.nanos, self.per, self.rule)


@dataclass(frozen=True, slots=True)
class Commitments:
    """The commitments of one machine. `is_unpriced`: no price of the machine itself is known.

    `planned_end` is when it is to end if something ends it, in microseconds since 1970; 0 without such an end.
    """

    items: tuple[Commitment, ...] = ()
    is_unpriced: bool = False
    planned_end: int = 0


_NO_COMMITMENTS = Commitments()


def commitments_of(subject: Machine, now: int, prices: Prices, volumes: Iterable[tuple[str, str]] = ()) -> Commitments:
    """Return the future costs of a machine or a retained resource.

    A machine that may be running costs up to its renew-until; without an end if it has no lease, or if only the reaper
    could end it and does not run. Attached costs of a stopped machine, and retained resources, have no end. A machine
    whose launch is uncertain may have run since the launch was sent. `volumes` are (account, name) of named volumes,
    which have commitments of their own.
    """
    if subject.terminated_at is not None and not subject.retained:
        return _NO_COMMITMENTS
    commitments = [_retained_commitment(subject, entry, prices) for entry in subject.retained]
    if subject.terminated_at is not None or subject.is_named_resource:
        return Commitments(tuple(commitments))
    may_run = may_be_running(subject)
    planned_end = _planned_end(subject, now) if may_run else None
    until = None if needs_reaper(subject, prices) else planned_end
    attached = [
        _attached_commitment(subject, entry, until, prices)
        for entry in subject.attached_costs or ()
        if entry.running and (may_run or entry.kept) and not _is_existing_volume(subject, entry, volumes)
    ]
    nanos = compute_nanos(subject, prices) if may_run else None
    compute = [] if nanos is None else [_machine_commitment(subject, until, nanos)]
    sent_at = parse_us(subject.intended_at) if subject.launch_status == "open" and subject.intended_at else None
    machine_commitments = (
        [*compute, *attached] if sent_at is None else [one._replace(since=sent_at) for one in (*compute, *attached)]
    )
    return Commitments((*machine_commitments, *commitments), may_run and nanos is None, planned_end or 0)


def needs_reaper(subject: Machine, prices: Prices) -> bool:
    """Return whether only the reaper would end this machine, and it does not run."""
    guards = safeguards_of(subject)
    return guards is not None and guards.only_reaper and not prices.reaper_runs


def compute_nanos(subject: Machine, prices: Prices) -> int | None:
    """Return what an hour of this machine is counted at: spot at its highest price, else on demand; None: not known."""
    price = subject.price and subject.price.nanos_per_hour
    if subject.market != "spot" or (prices.at_spot_prices and price is not None):
        return price if price is not None else prices.compute_price(subject)
    if subject.max_price:
        return int(not_none(subject.max_price))
    listed = subject.on_demand and subject.on_demand.nanos_per_hour
    if listed is None:
        listed = prices.compute_price(subject)
    return None if listed is None else max(listed, price or 0)  # a spot price can lie above the list's


def _planned_end(subject: Machine, now: int) -> int | None:
    """Return when it ends at the latest if something ends it, in microseconds since 1970; None without a lease."""
    if subject.renew_until is None:
        return None
    until = parse_us(subject.renew_until)
    return until if until > now else now + OVERDUE_US * bool(subject.billed or subject.state == "unknown")


def _machine_commitment(subject: Machine, until: int | None, nanos: int) -> Commitment:
    """Return the commitment of the machine itself: a started billing increment is billed whole."""
    rule = rule_of(subject.provider or "", subject.market or "on_demand", "instance", subject.licence or "")
    granule = max(rule.granularity_us, rule.maybe_granularity_us)
    end = None if until is None else until + (granule if granule > 1 else 0)
    return Commitment(str(subject.instance_type), end, nanos, "hour", rule)


def _is_existing_volume(subject: Machine, entry: AttachedCost, volumes: Iterable[tuple[str, str]]) -> bool:
    """Say whether this is a named volume that is there already, and is counted on its own."""
    volume = subject.setup.volume if subject.setup and entry.named else None
    return volume is not None and (account_key(subject), volume.name) in volumes


def _attached_commitment(subject: Machine, entry: AttachedCost, until: int | None, prices: Prices) -> Commitment:
    end = None if entry.kept else until
    resource, quantity = entry.resource or "disk", 1 if entry.quantity is None else entry.quantity
    price = _price(subject, entry, subject.region, resource, prices)
    return _commitment(subject, entry.what, end, resource, price, price.number(quantity))


def _retained_commitment(subject: Machine, entry: Retained, prices: Prices) -> Commitment:
    resource = "disk" if entry.kind == "volume" else entry.kind
    what = f"{entry.kind} of {entry.size_gb} GB"
    price = _price(subject, entry, entry.region, resource, prices)
    return _commitment(subject, what, None, resource, price, price.number(entry.size_gb))


def _price(
    subject: Machine, entry: AttachedCost | Retained, region: str, resource: str, prices: Prices
) -> SubstitutePrice:
    """Return the entry's price; where there is none, or it is another region's, what is counted instead."""
    nanos = entry.nanos
    if nanos is None and entry.nanos_per_month is not None:  # a provider plug-in gives a total per month
        return SubstitutePrice(entry.nanos_per_month, "month", "", by_size=False)
    if nanos is not None and not entry.why_maybe_less:
        return SubstitutePrice(nanos, entry.per or "month", "", entry.by_size)
    substitute = prices.attached_price(subject.provider, region, entry.stored_as or "", resource)
    if nanos is not None and not substitute.why:
        return SubstitutePrice(nanos, entry.per or "month", "", entry.by_size)
    return substitute


def _commitment(
    subject: Machine, what: str, until: int | None, resource: str, price: SubstitutePrice, quantity: int
) -> Commitment:
    rule = rule_of(subject.provider or "", subject.market or "on_demand", resource)
    return Commitment(what, until, price.nanos * quantity, price.per, rule, price.why)


def with_price(usage: Usage, prices: Prices) -> tuple[Usage, str]:
    """Return a usage without a price with the one that is counted, and why; a run without any stays without."""
    if usage.resource == "instance":
        if usage.on_demand is None:
            return usage, "no price is known for a time that is past, so it is in no sum"
        price = SubstitutePrice(usage.on_demand, "hour", "its price is not known: counted on demand")
    elif usage.resource == "traffic":
        return usage, "no price is known, so it is in no sum"
    else:
        price = prices.attached_price(usage.provider, "", usage.kind, usage.resource)
    segment, quantity = (
        PriceInterval(usage.begin, price.nanos, price.why, None, "derived"),
        price.number(usage.quantity),
    )
    return usage._replace(per=Per(price.per), quantity=quantity, segments=(segment,)), price.why
