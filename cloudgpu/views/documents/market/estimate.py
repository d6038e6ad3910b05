"""The document of `estimate`."""

from typing import TypedDict

from cloudgpu.views.documents.parts import DecimalText, ExchangeRate, ListedOffer, Market, SpeedBounds, Time, Usd


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


class NodesWorth(TypedDict):
    """What several machines of a type are worth together."""

    provider: str | None
    """`aws`, `gcp` or `azure`; null: machines of your own."""
    region: str | None
    """The region of the estimate."""
    instance_type: str | None
    """Its name there; null: machines of your own."""
    gpu: str
    """Its GPU."""
    network_gbit_per_s: float | None
    """What one machine can send; null: not known."""
    network_up_to_gbit_per_s: float | None
    """What it can send for a while; null: no more."""
    network_fabric: str | None
    """`Ethernet`, or what has to be set up for it: `EFA`, `InfiniBand`, `RDMA`, `GPUDirect`. Null: not known."""
    network_note: str | None
    """What else the list says of it."""
    network_source: str | None
    """Where the figure is from, with its date; null: `--network`, or not known."""
    compute_s: float | None
    """Seconds of computing in a step; null: the peak of the GPU is not known."""
    traffic_s: float | None
    """Seconds of sending in a step, if nothing hides them; null: not known."""
    speed_up: float | None
    """How many times one machine they are, with overlap."""
    speed_up_without_overlap: float | None
    """How many times one machine they are, without it."""
    cost_factor: float | None
    """How many times as much as on one machine each result costs."""
    overlap_gbit_per_s: float | None
    """The network from which on computing hides all sending."""
    verdict: str | None
    """`slower` (than one machine), `poor` (below 0.8 times their number), `good`; null: not known."""
    says: str
    """The verdict as a sentence, or what is missing."""
    spot_loss: GangChance | None
    """With `--spot`: the chance to lose a machine; null: not known, or not on spot."""


class NodesDocument(TypedDict):
    """Whether several machines are worth it."""

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
    """The part of a GPU's peak that is reached."""
    network_used: float
    """The part of a network that is reached."""
    worth: list[NodesWorth]
    """One for each of `estimates`, in their order; without any, one for your own machines."""
    assumptions: list[str]
    """What the figures rest on."""


class EstimateRequest(TypedDict):
    """What was requested."""

    gpu: str | None
    """The GPU that was named."""
    gpu_count: float | None
    """How many of it a machine has."""
    type: str | None
    """The instance type."""
    number: int
    """How many machines."""
    market: Market
    """`on_demand` or `spot`."""
    provider: str | None
    """The only one, if any."""
    region: str | None
    """The only one, if any."""
    disk_gb: float
    """Each machine's disk; 0: none is counted."""
    address: str
    """`ephemeral`, `static` or `none`."""
    committed: str | None
    """The term, or the percentage."""
    hours_per_day: float
    """How long the machines run."""
    days_per_week: float
    """On how many days."""
    hours: float | None
    """For how many hours the work keeps the machines busy, whatever their GPU."""
    flops: float | None
    """Operations of one piece of work."""
    precision: str | None
    """In what they are computed."""
    efficiency: list[float] | None
    """The best, the expected and the worst part of the peak."""
    like: str | None
    """The machine whose work it is."""
    work: str | None
    """`training` or `inference`, by which GPUs are compared."""


class PastRun(TypedDict):
    """A run whose work is estimated."""

    id: str
    """The machine's cloudgpu-id."""
    name: str
    """Its name."""
    gpu: str
    """Its GPU."""
    gpus: float
    """How many; a share is a part of one."""
    gpu_memory_gib: float
    """Memory per GPU."""
    gpu_hours: float
    """Billed hours with a GPU at work."""
    used_hours: float
    """In other use."""
    idle_hours: float
    """Idle."""
    unknown_hours: float
    """Hours of which nothing is known."""


class AttachedPrice(TypedDict):
    """What one machine has in addition."""

    part: str
    """`disk` or `address`."""
    kind: str
    """The price list's word."""
    quantity: float
    """How much of it: GB, addresses, or 1 for a disk of a size class."""
    per: str
    """The price is for an `hour` or a `month`."""
    paid: str
    """`always`; `running`: while the machine runs; `idle`: while it does not."""
    usd: Usd | None
    """The price of one; null: none is known."""
    low_usd: Usd | None
    """The least that a derived price may be; null: it is not derived, or its rule gives one figure."""
    at_most: str | None
    """Why it may cost less."""
    source: str
    """Where the price comes from."""
    as_of: str | None
    """The day of the price."""
    basis: str | None
    """How far it can be trusted."""
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
    """The sum in the currency."""


class Estimate(ListedOffer):
    """What one offer would cost."""

    number: int
    """How many machines: all amounts are for these together."""
    committed: bool
    """`paid_usd_per_hour` is that of a commitment, and paid for every hour."""
    paid_usd_per_hour: Usd
    """What an hour of one machine is counted with."""
    attached_costs: list[AttachedPrice]
    """What one machine has in addition."""
    unpriced: list[str]
    """`disk` or `address`, where no price is known: in no sum."""
    fits: bool
    """With `--like`: a GPU has as much memory as that of the past run."""
    uncertain: str | None
    """Why a spot price may not hold any more; such offers come after the certain ones. Null: none."""
    peak_tflops: float | None
    """With `--flops`: the peak of one GPU."""
    peak_recalled: bool
    """That is from memory."""
    times_as_fast: RelativeSpeed | None
    """With `--like`: one GPU compared with one of the past run."""
    day: CostSplit | None
    """An average day; null where the work ends."""
    month: CostSplit | None
    """A month of 730 hours."""
    year: CostSplit | None
    """A year of 365 days."""
    low: CostSplit | None
    """The least work; null if the use continues."""
    expected: CostSplit | None
    """The work as expected."""
    high: CostSplit | None
    """The work at most."""
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
    """A wish that is in the way."""

    requirement: str
    """What is in the way: `gpu`, `region`, `type`, ..."""
    types: int
    """How many types there are without it."""
    usd_per_hour: Usd
    """The cheapest of them."""


class EstimateDocument(TypedDict):
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
    """The cheapest first; then what has a doubtful price, what lacks a price, and last what may not fit."""
    nodes: NodesDocument | None
    """With `--nodes`: whether several machines are worth it."""
    left_out: list[UnknownGpu]
    """GPUs without any known figure by which the work could be measured."""
    precisions: list[str]
    """Where `--flops` leaves all GPUs out: in what a peak of them is known."""
    matching_gpus: list[str]
    """The GPUs that `--gpu` means."""
    without: list[Obstacle]
    """Where nothing fits: each wish that is in the way."""
    marketplaces: list[str]
    """What the prices of marketplaces are, one sentence each; empty where none of the estimates is of one."""
    withheld: list[str]
    """Types of the named GPU that can probably not be launched any more."""
    old_after_days: int
    """From how many days on a price is old."""
    free_hours: str | None
    """Free hours that are enough for this; null: none."""
    assumptions: list[str]
    """What the figures rest on, and what they do not count."""
    fees: str
    """Which fees are in `with_fees_usd`, and which in no amount."""
