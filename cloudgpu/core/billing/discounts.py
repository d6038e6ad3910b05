"""Negotiated prices (discounts, committed-use rates) and credits, as the user states them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from fractions import Fraction

from cloudgpu.core.model.offers import Basis, MachineConfiguration, Market, Price
from cloudgpu.core.values.money import ZERO, Money

ANY = "*"


@dataclass(frozen=True, slots=True)
class Discount:
    """A negotiated price of matching machines: a discount in percent, or a fixed hourly rate (then `percent` is None).

    `account`, `instance_type` and `region` are patterns. `markets` are those it holds on. It holds from `since`
    (inclusive) to `until` (exclusive), aware UTC; None: without that end. `source` names its place in config.toml.
    """

    provider: str
    account: str
    instance_type: str
    region: str
    markets: frozenset[Market]
    percent: Fraction | None
    rate: Money | None
    since: datetime | None
    until: datetime | None
    source: str

    def applies_to(self, configuration: MachineConfiguration, at: datetime) -> bool:
        """Say whether it applies to this machine at this moment."""
        patterns = (
            (self.account, configuration.account),
            (self.instance_type, configuration.instance_type),
            (self.region, configuration.region),
        )
        return (
            self.provider == configuration.provider
            and configuration.market in self.markets
            and all(fnmatchcase(value, pattern) for pattern, value in patterns)
            and is_in_period(self.since, self.until, at)
        )

    def apply(self, listed: Price | None, at: datetime) -> Price | None:
        """Return what is paid in place of a listed price; None for a percentage of a price that nobody knows."""
        if self.rate is not None:
            against = f" (list: {listed.per_hour.text(4)}, {listed.source})" if listed else ""
            public = None if listed is None else listed.per_hour
            source = f"{self.source}: a fixed rate{against}"
            return Price(self.rate, source, at, Basis.SETTING, is_negotiated=True, listed=public)
        if listed is None or self.percent is None:
            return None
        paid = listed.per_hour.scaled(1 - self.percent / 100)
        less = f"{float(self.percent):g}% off {listed.per_hour.text(4)}"
        source = f"{self.source}: {less}; {listed.source}"
        return Price(paid, source, listed.as_of, Basis.SETTING, is_negotiated=True, listed=listed.per_hour)


def effective_price(
    discounts: Iterable[Discount], configuration: MachineConfiguration, listed: Price | None, at: datetime
) -> Price | None:
    """Return the effective price of a machine: by the first discount that applies, else the listed price.

    The source says by which setting, and what the list price was. None where no price is known: never free.
    """
    first = next((discount for discount in discounts if discount.applies_to(configuration, at)), None)
    return listed if first is None else first.apply(listed, at)


def is_in_period(since: datetime | None, until: datetime | None, at: datetime) -> bool:
    """Say whether a moment lies in a period that includes its begin and not its end; None: it has no such end."""
    return (since is None or since <= at) and (until is None or at < until)


@dataclass(frozen=True, slots=True)
class Credit:
    """An amount that a provider takes off its bill while it holds: a free trial, a grant, a promotion.

    `provider` and `account` are patterns. Budgets count before credits; only what is shown as paid counts after.
    """

    name: str
    amount: Money
    provider: str
    account: str
    since: datetime | None
    until: datetime | None
    source: str

    def covers(self, spent: AccountSpend) -> bool:
        """Say whether the credit pays for this spend."""
        is_covered = fnmatchcase(spent.provider, self.provider) and fnmatchcase(spent.account, self.account)
        return is_covered and is_in_period(self.since, self.until, spent.at)


@dataclass(frozen=True, slots=True)
class AccountSpend:
    """What was charged to an account at a moment (the begin of a day, say), before credits."""

    provider: str
    account: str
    at: datetime
    amount: Money


@dataclass(frozen=True, slots=True)
class CreditUse:
    """How much of a credit was used, and what remains."""

    credit: Credit
    used: Money
    remaining: Money


@dataclass(frozen=True, slots=True)
class AfterCredits:
    """The spend before and after credits, and the use of each credit."""

    before: Money
    after: Money
    credit_uses: tuple[CreditUse, ...]


def credits_used(configured: Sequence[Credit], spent: Iterable[AccountSpend]) -> AfterCredits:
    """Return what credits took off, the earliest spending first and, for each, the credit that ends first.

    This order is a model; only the provider's bill says which credit it uses first.
    """
    remaining = {number: credit.amount for number, credit in enumerate(configured)}
    before = after = ZERO
    order = sorted(remaining, key=lambda number: _credit_order(configured[number]))
    for spend in sorted(spent, key=lambda spend: (spend.at, spend.provider, spend.account)):
        unpaid = spend.amount
        for number in order:
            if configured[number].covers(spend):
                applied = max(ZERO, min(unpaid, remaining[number]))
                remaining[number] -= applied
                unpaid -= applied
        before += spend.amount
        after += unpaid
    uses = (
        CreditUse(credit, credit.amount - remaining[number], remaining[number])
        for number, credit in enumerate(configured)
    )
    return AfterCredits(before, after, tuple(uses))


def _credit_order(credit: Credit) -> tuple[bool, float]:
    return (credit.until is None, credit.until.timestamp() if credit.until else 0.0)
