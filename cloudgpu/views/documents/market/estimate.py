"""The document of `estimate`."""

from typing import TypedDict

from cloudgpu.views.documents.parts import (
    CatalogHints,
    DecimalText,
    ExchangeRate,
    ListedOffer,
    Market,
    NamedMachine,
    NetworkFigures,
    SpeedBounds,
    Time,
    Usd,
)


class GangChance(TypedDict):
    """How likely a gang of spot machines loses one, so that all start again."""

    per: str
    """`hour` or `month`: the time that the chances are for."""
    one_loss_low: float
    """The chance that one machine is taken, at least."""
    one_loss_high: float
    """At most."""
    any_loss_low: float
    """The chance that any of them is taken, at least."""
    any_loss_high: float
    """At most."""
    source: str
    """Where the chance of one machine is from."""


class NodesSpeedUp(NetworkFigures):
    """How fast several machines of a type are together, and what their results cost."""

    provider: str | None
    """`aws`, `gcp` or `azure`; null: machines of your own."""
    region: str | None
    """The region of the estimate."""
    instance_type: str | None
    """Its name there; null: machines of your own."""
    gpu: str
    """Its GPU."""
    network_note: str | None
    """What else the catalogue says about it."""
    compute_s: float | None
    """Seconds of computing in a step; null: the peak of the GPU is not known."""
    traffic_s: float | None
    """Seconds of sending in a step, if they do not overlap with computing; null: not known."""
    speed_up: float | None
    """Their speed as a multiple of one machine's, if sending overlaps with computing."""
    speed_up_without_overlap: float | None
    """The same without overlap."""
    cost_factor: float | None
    """The cost of a result as a multiple of that on one machine."""
    overlap_gbit_per_s: float | None
    """The bandwidth from which on sending adds no time to computing."""
    verdict: str | None
    """`slower` (than one machine), `poor` (below 0.8 times their number), `good`; null: not known."""
    says: str
    """The verdict as a sentence, or what is missing."""
    spot_loss: GangChance | None
    """With `--spot`: the chance to lose a machine; null: not known, or not on spot."""


class NodesDocument(TypedDict):
    """Whether several machines are worth their cost."""

    nodes: int
    """How many machines."""
    parameters: float
    """Parameters of the model."""
    trainable: float
    """How many of them are trained."""
    tokens: float
    """Tokens per GPU and step."""
    gradient_bytes: int
    """Bytes of a gradient, in bf16."""
    efficiency: float
    """The share of a GPU's peak speed that is assumed to be reached."""
    network_used: float
    """The share of a network's bandwidth that is assumed to be reached."""
    worth: list[NodesSpeedUp]
    """One for each of `estimates`, in their order; one for your own machines if nobody rents the GPU out."""
    assumptions: list[str]
    """The assumptions."""


class EstimateRequest(TypedDict):
    """What was requested."""

    gpu: str | None
    """The GPU that was named."""
    gpu_count: float | None
    """How many of them a machine has."""
    type: str | None
    """The instance type."""
    number: int
    """How many machines."""
    market: Market
    """`on_demand` or `spot`."""
    provider: str | None
    """The requested one; null: any."""
    region: str | None
    """The requested one; null: any."""
    disk_gb: float
    """Each machine's disk; 0: none is counted."""
    address: str
    """`ephemeral`, `static` or `none`."""
    committed: str | None
    """The commitment: its term, or the discount in percent."""
    hours_per_day: float
    """How long the machines run."""
    days_per_week: float
    """On how many days."""
    hours: float | None
    """For how many hours the work keeps the machines busy, whatever their GPU."""
    flops: float | None
    """Operations of one piece of work."""
    precision: str | None
    """The number format of the computation."""
    efficiency: list[float] | None
    """The best, the expected and the worst share of the peak speed."""
    like: str | None
    """The machine whose past work is estimated."""
    work: str | None
    """`training` or `inference`, by which GPUs are compared."""


class PastRun(NamedMachine):
    """A run whose work is estimated."""

    gpu: str
    """Its GPU."""
    gpus: float
    """How many; a share is a part of one."""
    gpu_memory_gib: float
    """Memory per GPU."""
    gpu_hours: float
    """Billed hours with a GPU at work."""
    used_hours: float
    """Billed hours in other use."""
    idle_hours: float
    """Billed hours in which it was idle."""
    unknown_hours: float
    """Hours of which nothing is known."""


class AttachedPrice(TypedDict):
    """An attached cost of one machine."""

    part: str
    """`disk` or `address`."""
    kind: str
    """Its name in the price list."""
    quantity: float
    """How many units of it: GB, addresses, or 1 for a disk of a size class."""
    per: str
    """The price is for an `hour` or a `month`."""
    paid: str
    """`always`; `running`: while the machine runs; `idle`: while it does not."""
    usd: Usd | None
    """The price of one unit; null: none is known."""
    low_usd: Usd | None
    """The least that a derived price may be; null: it is not derived, or its rule gives one figure."""
    at_most: str | None
    """Why it may cost less."""
    source: str
    """Where the price comes from."""
    as_of: str | None
    """The day of the price."""
    basis: str | None
    """How reliable it is: `quoted`, `listed`, `derived`, `unverified`."""
    old: bool
    """It is old, or has no date."""


class RelativeSpeed(SpeedBounds):
    """How fast one GPU is compared with another."""

    ratio: float
    """How many hours of the past run's GPU an hour of this one does."""


class CostSplit(TypedDict):
    """What makes up an amount."""

    hours: DecimalText
    """The hours that each machine is billed for."""
    machine_usd: Usd
    """The machines."""
    disk_usd: Usd | None
    """Their disks; null: not priced."""
    address_usd: Usd | None
    """Their addresses; null: not priced."""
    usd: Usd
    """The sum of what has a price, to the last digit."""
    amount: DecimalText | None
    """The sum in `currency` of the document; null: that is US dollars."""


class Estimate(ListedOffer):
    """What one offer would cost."""

    number: int
    """How many machines: all amounts are for these together."""
    committed: bool
    """`paid_usd_per_hour` is that of a commitment, and paid for every hour."""
    paid_usd_per_hour: Usd
    """The price of an hour of one machine after discounts."""
    attached_costs: list[AttachedPrice]
    """The attached costs of one machine."""
    unpriced: list[str]
    """`disk` or `address`, where no price is known: in no sum."""
    fits: bool
    """With `--like`: a GPU has as much memory as that of the past run."""
    uncertain: str | None
    """Why a spot price may not hold any more; such offers come after the certain ones. Null: none."""
    peak_tflops: float | None
    """With `--flops`: the peak of one GPU."""
    peak_unverified: bool
    """That peak is from memory."""
    times_as_fast: RelativeSpeed | None
    """With `--like`: one GPU compared with one of the past run."""
    day: CostSplit | None
    """The cost of an average day; null for a limited amount of work."""
    month: CostSplit | None
    """The cost of a month of 730 hours."""
    year: CostSplit | None
    """The cost of a year of 365 days."""
    low: CostSplit | None
    """The cost of the least work; null if no amount of work is given."""
    expected: CostSplit | None
    """The cost of the expected work."""
    high: CostSplit | None
    """The cost of the most work."""
    with_fees_usd: Usd | None
    """The month, or the work, with the fees of config.toml; null where none are set."""
    sustained_use_usd: Usd | None
    """What Google takes off a month by itself: an estimate, in no amount."""


class UnknownGpu(TypedDict):
    """A GPU that was left out."""

    gpu: str
    """The GPU."""
    why: str
    """What is missing."""


class Obstacle(TypedDict):
    """A requirement that rules out machine types."""

    requirement: str
    """The requirement: `gpu`, `region`, `type`, ..."""
    types: int
    """How many types would fit without it."""
    usd_per_hour: Usd
    """The cheapest of them."""


class EstimateDocument(CatalogHints):
    """What machines would cost."""

    as_of: Time
    """When the age of prices was checked."""
    request: EstimateRequest
    """What was requested, with defaults filled in."""
    past_run: PastRun | None
    """With `--like`: the run whose work is estimated."""
    currency: ExchangeRate | None
    """What `amount` is in; null: US dollars alone."""
    estimates: list[Estimate]
    """The cheapest first; then those with a doubtful price, those without a price, and last what may not fit."""
    nodes: NodesDocument | None
    """With `--nodes`: whether several machines are worth it."""
    left_out: list[UnknownGpu]
    """GPUs without a known speed for this work."""
    precisions: list[str]
    """If `--flops` leaves out all GPUs: the number formats for which their peak is known."""
    without: list[Obstacle]
    """If nothing fits: each requirement without which there are offers."""
    free_hours: str | None
    """A sentence on free hours that are enough for this; null: none."""
    assumptions: list[str]
    """What the figures rest on, and what they do not count."""
    fees: str
    """Which fees are in `with_fees_usd`, and which in no amount."""
