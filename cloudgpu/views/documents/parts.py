"""What documents of many verbs have in common: formats of text, prices, GPUs, accounts, faults."""

from typing import Annotated, Generic, Literal, NamedTuple, TypedDict, TypeVar

from cloudgpu.core.catalog.gpus import Workload as _Work
from cloudgpu.core.model.instances import State as _State
from cloudgpu.core.model.offers import Basis as _Basis, Market as _Market, Trust as _Trust
from cloudgpu.core.policies.guards import Agent as _Agent, Timer as _Timer
from cloudgpu.core.policies.policy import ReaperAction as _Do


class Unit(NamedTuple):
    """The format of a text: its unit for people, and the pattern that every such text matches."""

    name: str
    pattern: str


# With an enumeration or a Literal in the annotation, its values are the only possible texts.
Time = Annotated[str, Unit("time in UTC", r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$")]
Day = Annotated[str, Unit("day", r"^\d{4}-\d\d-\d\d$")]
Usd = Annotated[str, Unit("US dollars", r"^-?\d+(\.\d+)?$")]
DecimalText = Annotated[str, Unit("decimal text", r"^-?\d+(\.\d+)?$")]
Market = Annotated[str, _Market]
Trust = Annotated[str, _Trust]
PendingAction = Annotated[str, Literal["stop", "start", "park", "terminate"]]
PriceBasis = Annotated[str, _Basis]
State = Annotated[str, _State]
Work = Annotated[str, _Work]
AgentGuard = Annotated[str, _Agent]
TimerGuard = Annotated[str, _Timer]
ReapAction = Annotated[str, _Do]
CaseValue = TypeVar("CaseValue")


class Fault(TypedDict):
    """What went wrong."""

    kind: str
    """One of the [kinds](errors.md#kinds)."""
    field: str | None
    """The option, argument, key or file that is wrong."""
    value: str | None
    """Its value; never a secret."""
    message: str
    """The error in one sentence."""
    next: str | None
    """What to do."""


class ErrorDocument(TypedDict):
    """Any error, with the [exit code](errors.md) of its kind."""

    error: Fault
    """What went wrong."""


class Identity(TypedDict):
    """What an account or a computer is, as its provider identifies it."""

    kind: str
    """`aws account`, `google project`, `azure subscription`, `computer` or `ssh host`."""
    id: str
    """The id by which accounts are compared: the account's number, the project, the subscription; for a computer its
    machine id, the user's id and the directory.
    """
    text: str
    """The same for people."""


class RuleText(TypedDict):
    """A rule of a policy."""

    rule: str
    """`requested-end`, `budget`, `renew-until`, `part-of-cluster`, `schedule`, `hold`, `node-loss`, `lease`, `idle`,
    `unlabelled`, `stopped` or `images`."""
    text: str
    """What it says."""
    at: Time | None
    """When it acts next, if nothing changes; null: it does not, or that is not known."""


class Gpu(TypedDict):
    """GPUs of one model."""

    name: str
    """The model."""
    count: int
    """How many."""
    memory_gib: float | None
    """Memory of each, in GiB."""
    share: float
    """Below 1 for a part of one GPU."""
    of: float | None
    """How many GPUs its computer has, where it uses only some of them; else null."""


class Price(TypedDict):
    """A price with its source."""

    usd_per_hour: Usd
    """US dollars an hour."""
    source: str
    """The source of the price."""
    as_of: Time
    """The date of the price."""
    basis: PriceBasis
    """`quoted`, `listed`, `derived`, `unverified`, `setting`, `measured` or `assumed` (a usual figure, where the
    settings have none).
    """
    negotiated: bool
    """It is yours alone, by `[[discounts]]` of config.toml."""


class Address(TypedDict):
    """Where an SSH server answers."""

    host: str
    """The host."""
    port: int
    """The port."""
    user: str
    """The user to log in as."""


class Speed(TypedDict):
    """How fast a GPU is."""

    vs_h100: float
    """The speed as a multiple of one H100 SXM."""
    basis: str
    """`measured`, or what replaces a measurement."""


class ExchangeRate(TypedDict):
    """An exchange rate."""

    code: str
    """The currency, by ISO 4217."""
    per_usd: DecimalText
    """The number of its units for one US dollar."""
    as_of: str
    """The rate's day."""
    source: str
    """The source of the rate; empty where it was typed."""


class DatedDesktop(TypedDict):
    """A desktop's GPU, and the source and day of its figures; a part of documents, not one of its own."""

    gpu: str
    """Its GPU."""
    source: str
    """Where the figures come from."""
    as_of: str
    """The day of the figures."""


class DesktopLine(DatedDesktop):
    """The cost of the same work on an owned desktop."""

    name: str
    """Which desktop: the setting `desktop`."""
    desktops: int
    """The number of desktops that the billed hours need."""
    hours: DecimalText
    """Hours for which one desktop works, if every billed hour of a GPU was work."""
    electricity_usd: Usd
    """Electricity for these hours, and while it waits."""
    purchase_usd: Usd
    """What was paid for the desktops."""
    total_usd: Usd
    """Electricity, purchase and maintenance, minus the remaining value of the desktops."""
    sentence: str
    """The comparison in words."""


class OfMachine(TypedDict):
    """Which machine is meant, by its name; a part of documents, not one of its own."""

    name: str
    """The machine's name."""


class OfAccount(TypedDict):
    """A configured account; a part of documents, not one of its own."""

    provider: str
    """The kind of provider."""
    account: str
    """The configured account."""


class MachineOrPlan(OfAccount):
    """What a machine and the plan of one have in common; a part of documents, not one of its own."""

    market: Market
    """`on_demand` or `spot`."""
    trust: Trust
    """Whose computer it is: `cloud`, `datacenter` or `community`, whose owner can read everything on it."""
    gpus: list[Gpu]
    """Its GPUs."""
    owner: str
    """Who it is for."""
    project: str
    """The project it is charged to."""


class AccountAnswer(OfAccount):
    """An account that was queried."""


class UnansweredScope(TypedDict):
    """An account or region that did not answer, or was not queried."""

    scope: str
    """The account or region."""
    why: str
    """Why it did not answer; "not reachable from here: ..." if its machines belong to an account that is not on this
    computer.
    """


class FailedReceiver(TypedDict):
    """A receiver that did not accept a message."""

    receiver: str
    """Its name."""
    why: str
    """Why it did not."""


class DeclinedDocument(TypedDict):
    """You answered a question with no; the exit code is 0."""

    declined: str
    """What was done: `Nothing was done.`, or what was done before the question."""


class AccountCoverage(TypedDict):
    """Which accounts an answer is about; a part of documents, not one of its own."""

    queried: list[AccountAnswer]
    """The accounts that were queried as a whole; empty where none was."""
    not_queried: list[UnansweredScope]
    """Clouds that config.toml does not name: credentials were found here, and do not open them."""


class IncompleteAnswer(TypedDict):
    """Who did not answer; a part of documents, not one of its own."""

    unanswered: list[UnansweredScope]
    """Accounts, regions or machines that did not answer; exit code 8 then."""


class OfferHead(TypedDict):
    """Where a machine is offered, and how old its price is; a part of documents, not one of its own."""

    provider: str
    """The provider: `aws`, `gcp`, `azure`, `lambda`, `runpod` or `vast`."""
    region: str
    """The cheapest region, or the requested one."""
    instance_type: str
    """Its name there."""
    market: Market
    """`on_demand` or `spot`."""
    old: bool
    """The price is more than 180 days old."""


class RentedOffer(OfferHead):
    """A machine that can be rented; a part of documents, not one of its own."""

    trust: Trust
    """Whose computer it is: `cloud`, `datacenter` or `community`, whose owner can read everything on it."""
    gpu: str
    """Its GPU."""
    count: int
    """The number of GPUs."""
    share: float
    """Below 1: a fraction of one GPU."""
    price: Price
    """The listed price of one machine."""


class ListedOffer(RentedOffer):
    """A machine that can be rented, with what the catalogue knows about its type."""

    gpu_memory_gib: float | None
    """Memory per GPU, or of the fraction."""
    vcpus: int | None
    """Virtual CPUs; null where no list says."""
    memory_gib: float | None
    """Main memory; null where no list says."""
    price_dated: str
    """The date of the price as the source gives it."""
    legacy: str | None
    """Why the type can probably not be launched."""
    spot_only: bool
    """It has a list price, but is not sold on demand."""
    unverified: list[str]
    """Which properties of the type are from memory."""


class CatalogHints(TypedDict):
    """What an answer from the catalogue says of its offers; a part of documents, not one of its own."""

    matching_gpus: list[str]
    """The GPUs that `--gpu` means."""
    marketplaces: list[str]
    """How to read prices of marketplaces, one sentence each; empty if no price is from one."""
    withheld: list[str]
    """Types of the named GPU that can probably not be launched any more: `--all` lists them."""
    old_after_days: int
    """From which age a price is called old."""


class NetworkFigures(TypedDict):
    """What the network of a machine can do; a part of documents, not one of its own."""

    network_gbit_per_s: float | None
    """The bandwidth with which one machine can send; null: not known."""
    network_up_to_gbit_per_s: float | None
    """The bandwidth of short bursts; null: no more than that."""
    network_fabric: str | None
    """`Ethernet`, or what has to be set up for it: `EFA`, `InfiniBand`, `RDMA`, `GPUDirect`. Null: no figure of a type.
    """
    network_source: str | None
    """Where the type's figure is from, with its date; null: no figure of a type."""


class DesktopFigures(TypedDict):
    """A desktop's power while it waits, its life, and its tariff; a part of documents, not one of its own."""

    idle_watts: float
    """The power of all of it while it waits."""
    life_years: float
    """Its life: afterwards it is sold and replaced."""
    usd_per_kwh: Usd
    """The price of electricity."""


class NamedMachine(OfMachine):
    """Which machine is meant; a part of documents, not one of its own."""

    id: str
    """Its cloudgpu-id; it stays when the machine is stopped and started."""


class MachineReference(OfMachine):
    """Which machine something is about; a part of documents, not one of its own."""

    machine: str
    """Its cloudgpu-id."""


class MachineAction(MachineReference):
    """What the reaper does, did or would have done to a machine; a part of documents, not one of its own."""

    do: ReapAction
    """The action: `stop`, `park`, `terminate`, `image`, `remove` or `renew`."""
    rule: str
    """By which rule."""
    why: str
    """The reason, in one sentence."""


class CostBounds(TypedDict):
    """An amount with its bounds; a part of documents, not one of its own."""

    usd: Usd
    """The amount."""
    low_usd: Usd
    """The least that it may be."""
    high_usd: Usd
    """The most that it may be."""


class MaybePriced(TypedDict):
    """An amount with its bounds, if it has a price; a part of documents, not one of its own."""

    usd: Usd | None
    """The amount; null where nothing of it has a known price."""
    low_usd: Usd | None
    """The least that it may be."""
    high_usd: Usd | None
    """The most that it may be."""


class MarkedCost(MaybePriced):
    """A cost, and how far its prices can be trusted; a part of documents, not one of its own."""

    without_price: int
    """Charges without a price, in no sum."""
    marks: str
    """Some of `~?^!`, as in [the catalogue](../catalog.md#what-the-marks-mean), of the prices in it."""


class CountedPeriod(TypedDict):
    """The period of the amounts; a part of documents, not one of its own."""

    since: Time | None
    """The start of the period; null: all time."""
    until: Time | None
    """Its end, which is not in it; null: up to now."""
    as_of: Time
    """The time up to which running machines are counted."""


class CountedDays(CountedPeriod):
    """The period whose amounts are counted by day; a part of documents, not one of its own."""

    tz: str
    """The time zone in which days begin."""


class Cases(TypedDict, Generic[CaseValue]):
    """A value in the three cases of a comparison; a part of documents, not one of its own."""

    low: CaseValue
    """The case that favours the cloud."""
    expected: CaseValue
    """The expected case."""
    high: CaseValue
    """The case that favours the desktop."""


class SpeedBounds(TypedDict):
    """The bounds of a ratio of speeds; a part of documents, not one of its own."""

    low: float
    """At least."""
    high: float
    """At most."""
    basis: str
    """What the ratio is based on."""
