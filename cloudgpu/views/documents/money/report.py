"""Documents of `report`."""

from typing import Literal, TypedDict

from cloudgpu.views.documents.money.budgets import Delivery
from cloudgpu.views.documents.money.compare import CompareDocument
from cloudgpu.views.documents.money.cost import CostNotes, CostSum, CostToCome
from cloudgpu.views.documents.parts import (
    CostBounds,
    CountedDays,
    Day,
    DecimalText,
    ExchangeRate,
    MarkedCost,
    Market,
    MaybePriced,
    OfAccount,
    Time,
    Usd,
)


class ReportBasis(TypedDict):
    """What a report is made from."""

    machines: int
    """How many ran in the period."""
    since: Time | None
    """When something was first billed; null: nothing was."""
    view_as_of: Time | None
    """The oldest check among the existing machines."""
    integrity_problem: str | None
    """Why the ledger cannot be trusted until that is resolved; null when it can."""


class ReportDay(TypedDict):
    """What a day, or a month, cost."""

    day: str
    """`2026-11-20`, or `2026-11` by month."""
    usd: Usd
    """What it cost."""
    projects: dict[str, Usd]
    """The same by project; "" is without a project."""


class ProjectSum(CostBounds):
    """What a project cost."""

    name: str
    """The project; empty for machines without one."""


class OwnerSum(MaybePriced):
    """What an owner's machines, volumes and images cost."""

    name: str
    """The owner; empty for machines without one."""


class ReportJob(MaybePriced):
    """What a job cost in the period, or what machines cost without a job, or with several."""

    id: str
    """The job's id; `shared`: two jobs at once on a machine; `idle`: a machine of jobs, without one; empty: machines
    without any job, and named volumes and images."""
    name: str
    """The job's name; otherwise the same as `id`."""
    state: str | None
    """`succeeded`, `running`, ...; null if this is not a job."""
    billed_s: int
    """Seconds for which machines were billed for it."""
    without_price: int
    """Charges without a price, in no sum."""


class BilledTimes(TypedDict):
    """What machines were billed for, in whole seconds; a part of documents, not one of its own."""

    billed_s: int
    """Seconds for which they were billed: the four below together."""
    gpu_s: int
    """Seconds in which a GPU was busy."""
    used_s: int
    """Seconds in which they were used otherwise."""
    idle_s: int
    """Seconds in which nobody used them."""
    unknown_s: int
    """Seconds of unknown use."""


class ReportMachine(OfAccount, BilledTimes, MarkedCost):
    """What a machine cost with its disks and addresses, and how it was used."""

    id: str
    """Its cloudgpu-id."""
    name: str | None
    """Its name."""
    region: str | None
    """Where."""
    instance_type: str | None
    """Its type."""
    market: Market
    """`on_demand` or `spot`, at its last launch."""
    state: str
    """As it was last seen."""
    owner: str | None
    """Whose it is."""
    project: str | None
    """Its project."""
    gpu: str | None
    """`T4`, `8 x A100`; null: it has none."""
    idle_usd: Usd | None
    """The cost of its idle time; null where nothing of it has a known price."""


class ReportRest(MaybePriced, BilledTimes):
    """The machines that are not listed."""

    number: int
    """How many machines."""


class RetainedSum(MaybePriced):
    """Volumes and images together."""

    number: int
    """The number of volumes and images."""


class IdleCost(MaybePriced):
    """The cost of idle time: at most, if all unknown hours were idle."""

    hours: DecimalText
    """How long machines that cost anything were idle."""
    unknown_hours: DecimalText
    """For how long their use is not known."""


class SavingsSums(TypedDict):
    """Sums of what a group of stops by rules saved; a part of documents, not one of its own."""

    usd: Usd | None
    """What they saved at most; null: no price is known."""
    hours: DecimalText
    """For how long machines would have run otherwise, at most."""
    number: int
    """The number of stops."""
    without_price: int
    """The number of stops without a known price, which are in no amount."""


class RuleSavings(SavingsSums):
    """What one rule saved."""

    rule: str
    """`idle`, `schedule`, `lease`, `budget` or `unlabelled`."""


class StopSavings(SavingsSums):
    """What stops by rules saved."""

    by_rule: list[RuleSavings]
    """The same for each rule."""
    rule: str
    """How these savings are counted, in words."""


class SpotSavings(TypedDict):
    """What spot machines saved."""

    usd: Usd | None
    """How much less they cost than on demand; null: nothing to compare with."""
    on_demand_usd: Usd | None
    """What the same hours cost on demand."""
    without_on_demand: int
    """Runs whose on-demand price is not known, left out."""
    machines: int
    """How many spot machines."""


class Savings(TypedDict):
    """What rules and spot saved."""

    stops: StopSavings
    """Stops by rules."""
    spot: SpotSavings
    """Spot machines compared with on demand."""


class IdleResource(TypedDict):
    """A resource that costs money without a running machine."""

    name: str | None
    """The name of its machine, or its own name."""
    kind: str
    """`disk`, `address`, `image`, `volume`, or `instance` that is shut down and billed."""
    provider: str
    """The kind of provider."""
    region: str
    """Where."""
    usd_per_month: Usd | None
    """What it costs a month; null: no price is known."""
    since: Time | None
    """Since when it exists without a running machine."""
    why: str
    """Why it exists."""


class PriceAges(TypedDict):
    """How old listed prices are."""

    provider: str
    """The kind of provider."""
    newest: Day
    """The newest date of a listed price of a machine."""
    oldest: Day
    """The oldest."""
    refreshed_at: Time | None
    """When its price list last answered here; null: it was never queried."""
    old: int
    """Prices dated more than 180 days ago."""
    items: int
    """Prices in all."""


class ReportDocument(CostToCome, CostNotes, CountedDays):
    """What was spent, saved and wasted; also with `--format json`.

    How its figures are counted: [report.md](../report.md#what-is-in-it). `usd` of the days, of the projects, and of
    machines, rest and named resources each adds up to that of the total.
    """

    kind: Literal["cloudgpu report"]
    """`cloudgpu report`, which identifies the file."""
    currency: ExchangeRate | None
    """The currency of amounts in sentences and pages; null: US dollars."""
    about: ReportBasis
    """What it is made from."""
    comparison: CompareDocument
    """The cloud compared with a desktop, for the same period; with `--month`, for all time up to its end."""
    step: Literal["day", "month"]
    """What `days` are: `day`, or `month` for more than 400 days."""
    days: list[ReportDay]
    """All days or months in order, from the first with a cost."""
    projects: list[ProjectSum]
    """The most expensive first."""
    owners: list[OwnerSum]
    """The same by owner, the most expensive first."""
    total: CostSum
    """The total, as in `cost`."""
    jobs: list[ReportJob]
    """What each job cost, the most expensive first, then the rest: they add up to the total. Empty where no job
    ran in the period."""
    machines: list[ReportMachine]
    """The most expensive first, 200 at most."""
    machines_left_out: int
    """How many more there are."""
    other_machines: ReportRest
    """The sum of those."""
    named_resources: RetainedSum
    """Volumes and images together; they, `machines` and `other_machines` add up to the total."""
    idle: IdleCost
    """The cost of idle time."""
    savings: Savings
    """What rules and spot saved."""
    idle_resources: list[IdleResource]
    """Resources that cost money without a running machine, the most expensive first."""
    prices: list[PriceAges]
    """How old the listed prices are of the clouds that the ledger knows."""
    summary: list[str]
    """The report in sentences, the most important ones first."""


class SentReportDocument(CountedDays, Delivery):
    """A report that was sent; exit code 8 if a receiver did not accept it."""

    subject: str
    """The subject of the message."""
    nothing_sent: str | None
    """Why nothing was sent, in a sentence: nothing was billed in that month; null: it was sent."""
