"""The document of `cost`."""

from typing import TypedDict

from cloudgpu.views.documents.money.budgets import CreditDocument
from cloudgpu.views.documents.parts import (
    CostBounds,
    CountedDays,
    DecimalText,
    DesktopLine,
    ExchangeRate,
    MachineInRun,
    Time,
    Usd,
)


class CostSum(TypedDict):
    """The sum of all groups."""

    hours: DecimalText
    """Billed hours of machines; by resource, of that resource."""
    usd: Usd | None
    """What it cost; null where all of it is without a price."""
    low_usd: Usd | None
    """At least."""
    high_usd: Usd | None
    """At most."""
    amount: DecimalText | None
    """`usd` in the currency, not rounded."""
    on_demand_usd: Usd | None
    """The runs with a known on-demand price at that price; null where there is none."""
    savings_usd: Usd | None
    """That less what those runs cost."""
    without_on_demand: int
    """Runs left out of both."""
    without_price: int
    """Uses without a price, in no sum."""
    marks: str
    """Some of `~?!`, as in [the catalogue](../catalog.md#what-the-marks-mean), of the prices in it."""
    reasons: list[str]
    """Why `low_usd` and `high_usd` differ, the one of the widest range first."""


class GroupName(TypedDict):
    """The texts of a group beside its sums."""

    name: str
    """The same for people, of a job its name; empty where the ledger has none."""
    provider: str | None
    """By instance: the kind of provider."""
    state: str | None
    """By instance: the machine's state."""


class CostGroup(CostSum, GroupName):
    """What a machine, a project, ... cost."""

    group: str
    """A machine's id, a project, ...; of a day, week or month the time it begins. By job its id, `shared` or `idle`;
    empty for machines without a job."""


class UncountedTraffic(MachineInRun):
    """A machine whose bytes out are in no sum."""

    since: Time
    """Since the last count, or its launch."""
    until: Time | None
    """When it ended; null: it is there still."""


class LostCost(CostBounds):
    """What was paid for nothing."""

    hours: DecimalText
    """Billed hours of machines."""
    number: int
    """Runs, or launches."""


class BurnRate(TypedDict):
    """What an hour costs now."""

    usd_per_hour: Usd
    """All of it."""
    machines_usd_per_hour: Usd
    """Running machines, with their disks and addresses."""
    stopped_usd_per_hour: Usd
    """What stopped machines go on costing."""
    retained_usd_per_hour: Usd
    """Disks, images and volumes without a machine."""
    without_price: int
    """What has no price and is in none of these."""


class Projection(TypedDict):
    """The total at one time to come."""

    at: Time | None
    """When; null: each machine at its own time."""
    usd: Usd
    """The total then."""
    low_usd: Usd
    """At least."""
    high_usd: Usd
    """At most."""
    more_usd: Usd
    """How much of it is still to come."""
    endless: int
    """Machines that run without such an end, left out."""


class Projections(TypedDict):
    """The total to come."""

    assumption: str
    """What is taken to go on, and until when."""
    end_of_day: Projection
    """At the end of the day in `tz`."""
    end_of_month: Projection
    """At the end of the month in `tz`."""
    leases_end: Projection
    """When each running machine ends with its lease, or its hold."""
    renew_until: Projection
    """When each running machine renews itself as far as it may."""


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
    """Of UTC."""
    usd: Usd
    """What comes off."""
    reason: str
    """By which rule, and what it rests on."""


class Credit(TypedDict):
    """What one credit takes off."""

    name: str
    """As config.toml calls it."""
    used_usd: Usd
    """What it paid in this period."""
    remaining_usd: Usd
    """What is left of it."""


class Credits(TypedDict):
    """What credits take off."""

    before_usd: Usd
    """The total before credits, each day of an account rounded once."""
    after_usd: Usd
    """What is left to be paid."""
    applied: list[Credit]
    """Each credit."""


class Fees(TypedDict):
    """What comes on top, or is missing."""

    tax_percent: str | None
    """The setting."""
    support_percent: str | None
    """The setting."""
    label: str
    """The setting."""
    total_usd: Usd | None
    """The total with both; null where neither is set."""
    sentence: str
    """What is in it and what is missing."""


class CostToCome(TypedDict):
    """What goes on costing."""

    burn: BurnRate
    """What an hour costs now."""
    projected: Projections | None
    """The total to come; null where the period is over."""


class Deductions(TypedDict):
    """What comes off, and is in no amount."""

    sustained_use: list[SustainedUse]
    """Discounts that are in no amount: estimates."""
    credits: Credits | None
    """What the credits of config.toml take off; null where it has none."""


class CostHead(CountedDays):
    """What a cost is about."""

    by: str
    """What the groups are."""
    owner: str | None
    """Whose machines alone are counted; null: everybody's."""
    currency: ExchangeRate | None
    """What `amount` is in; null: US dollars alone."""


class DayCost(TypedDict):
    """What one day cost."""

    day: str
    """The date, in `tz`."""
    usd: Usd
    """What it cost."""


class CostDocument(CostToCome, Deductions, CostHead):
    """What machines have cost.

    Rounding: `usd` of the groups adds up to `usd` of the total to the last digit.
    """

    groups: list[CostGroup]
    """The most expensive first; periods by time."""
    total: CostSum
    """Of all groups."""
    total_usd: Usd
    """The total, 0 where nothing has a price."""
    days: list[DayCost] | None
    """Each of the last 31 days of the period, also those without a cost; null where days were not read."""
    this_month_usd: Usd | None
    """The present month in `tz` so far; null where days were not read, or the period does not hold all of it."""
    unpriced: list[str]
    """What has no price and is in no sum: machine and resource."""
    unmetered: list[UncountedTraffic]
    """Machines whose bytes out are in no sum, as nobody has read them."""
    interrupted: LostCost
    """Runs that the provider took away."""
    failed: LostCost
    """Launches that gave no usable machine."""
    budgets: list[BudgetForecast]
    """How long each budget lasts."""
    prepaid: list[CreditDocument]
    """What was left in accounts that are paid in advance, when a run of the reaper last read it."""
    fees: Fees
    """What comes on top, or is missing."""
    desktop: DesktopLine | None
    """An owned desktop doing the same; null: it cannot be read, and stderr says so."""
