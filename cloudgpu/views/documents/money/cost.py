"""The document of `cost`."""

from typing import TypedDict

from cloudgpu.views.documents.money.budgets import CreditDocument
from cloudgpu.views.documents.parts import (
    CostBounds,
    CountedDays,
    DecimalText,
    DesktopLine,
    ExchangeRate,
    MachineReference,
    MarkedCost,
    MaybePriced,
    Time,
    Usd,
)


class CostSum(MarkedCost):
    """A sum of charges, with its bounds."""

    hours: DecimalText
    """Billed hours of machines; by resource, of that resource."""
    amount: DecimalText | None
    """`usd` in the currency, not rounded."""
    on_demand_usd: Usd | None
    """What the runs with a known on-demand price would cost at that price; null where there is none."""
    savings_usd: Usd | None
    """`on_demand_usd` minus what those runs cost."""
    without_on_demand: int
    """Runs without a known on-demand price, which are in neither amount."""
    reasons: list[str]
    """Why `low_usd` and `high_usd` differ, the one of the widest range first."""


class GroupName(TypedDict):
    """The name of a group, and a machine's provider and state."""

    name: str
    """Its name; empty where the ledger has none."""
    provider: str | None
    """By instance: the kind of provider."""
    state: str | None
    """By instance: the machine's state."""


class CostGroup(CostSum, GroupName):
    """The cost of a machine, a project, ..."""

    group: str
    """A machine's id, a project, ...; of a day, week or month the time it begins. By job its id, `shared` or `idle`;
    empty for machines without a job."""


class UncountedTraffic(MachineReference):
    """A machine whose outgoing traffic is in no sum."""

    since: Time
    """Since the last count, or its launch."""
    until: Time | None
    """When it ended; null: it still exists."""


class LostCost(CostBounds):
    """The cost of interrupted runs, or of failed launches."""

    hours: DecimalText
    """Billed hours of machines."""
    number: int
    """The number of runs, or launches."""


class BurnRate(TypedDict):
    """What an hour costs now."""

    usd_per_hour: Usd
    """All of it."""
    machines_usd_per_hour: Usd
    """Running machines, with their disks and addresses."""
    stopped_usd_per_hour: Usd
    """Stopped machines, with their disks and addresses."""
    retained_usd_per_hour: Usd
    """Disks, images and volumes without a machine."""
    without_price: int
    """How many resources have no price and are in none of these."""


class Projection(MaybePriced):
    """The projected total at a future time, all that was spent until then."""

    at: Time | None
    """When; null: each machine at its own time."""
    more_usd: Usd | None
    """The part of it that is still to come; null where `usd` is."""
    endless: int
    """How many machines have no such end and are left out."""


class Projections(TypedDict):
    """Projected totals."""

    assumption: str
    """What is assumed to continue, and until when."""
    end_of_day: Projection
    """At the end of the day in `tz`."""
    end_of_month: Projection
    """At the end of the month in `tz`."""
    leases_end: Projection
    """When each running machine ends with its lease, or its hold."""
    renew_until: Projection
    """When each running machine has reached its renew-until."""


class BudgetForecast(TypedDict):
    """How long a budget lasts."""

    name: str
    """The budget."""
    limit_usd: Usd
    """Its limit."""
    remaining_usd: Usd
    """What is left of it in its present period."""
    exhausted_at: Time | None
    """When nothing is left if everything keeps running; null: it lasts to its period's end."""


class SustainedUse(TypedDict):
    """A discount that is in no amount."""

    account: str
    """The configured account."""
    region: str
    """Where."""
    what: str
    """Which machines."""
    month: str
    """The month, in UTC."""
    usd: Usd
    """The discount."""
    reason: str
    """The rule, and what it is based on."""


class Credit(TypedDict):
    """A credit, and how much of it was used."""

    name: str
    """Its name in config.toml."""
    used_usd: Usd
    """What it paid in this period."""
    remaining_usd: Usd
    """What is left of it."""


class Credits(TypedDict):
    """The total before and after credits."""

    before_usd: Usd
    """The total before credits, each day of an account rounded once."""
    after_usd: Usd
    """The total after credits."""
    applied: list[Credit]
    """Each credit."""


class Fees(TypedDict):
    """Taxes and fees in addition to the total, and what is missing."""

    tax_percent: str | None
    """`tax_percent` of config.toml."""
    support_percent: str | None
    """`support_percent` of config.toml."""
    label: str
    """`label` of config.toml: what the fees are called."""
    total_usd: Usd | None
    """The total with both; null where neither is set, or nothing has a known price."""
    sentence: str
    """What is in it and what is missing."""


class CostToCome(TypedDict):
    """What an hour costs now, and the totals to expect at that rate."""

    burn: BurnRate
    """What an hour costs now."""
    projected: Projections | None
    """Projected totals; null where the period is over."""


class CostNotes(TypedDict):
    """What is said with a total: gaps, budgets, prepaid accounts; a part of documents, not one of its own."""

    unpriced: list[str]
    """What has no price and is in no sum: machine and resource."""
    unmetered: list[UncountedTraffic]
    """Machines whose outgoing traffic is in no sum, as it was not read."""
    budgets: list[BudgetForecast]
    """How long each budget lasts."""
    prepaid: list[CreditDocument]
    """The balances of prepaid accounts, when a run of the reaper last read them."""


class Deductions(TypedDict):
    """Discounts and credits, which are in no amount."""

    sustained_use: list[SustainedUse]
    """Discounts that are in no amount: estimates."""
    credits: Credits | None
    """The credits of config.toml; null where it has none."""


class CostHead(CountedDays):
    """What is counted, and how it is grouped."""

    by: str
    """What the groups are."""
    owner: str | None
    """The owner whose machines are counted; null: everybody's."""
    currency: ExchangeRate | None
    """What `amount` is in; null: US dollars alone."""


class DayCost(TypedDict):
    """What one day cost."""

    day: str
    """The date, in `tz`."""
    usd: Usd | None
    """What it cost; null where nothing of it has a known price."""


class CostDocument(CostToCome, CostNotes, Deductions, CostHead):
    """What machines have cost.

    Rounding: `usd` of the groups adds up to `usd` of the total to the last digit.
    """

    groups: list[CostGroup]
    """The most expensive first; periods by time."""
    total: CostSum
    """The sum of all groups."""
    total_usd: Usd
    """The total, 0 where nothing has a price."""
    days: list[DayCost] | None
    """Each of the last 31 days of the period, including those without a cost; null where days were not read."""
    this_month_usd: Usd | None
    """The present month in `tz` so far; null where days were not read, the period does not hold all of it, or nothing
    of it has a known price."""
    interrupted: LostCost
    """Runs that the provider interrupted."""
    failed: LostCost
    """Launches that produced no usable machine."""
    fees: Fees
    """Taxes and fees in addition to the total, and what is missing."""
    desktop: DesktopLine | None
    """The cost of the same work on an owned desktop; null: the setting cannot be read, and stderr says so."""
