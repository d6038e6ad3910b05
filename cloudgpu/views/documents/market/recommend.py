"""The document of `recommend`."""

from typing import Literal, TypedDict

from cloudgpu.views.documents.parts import DesktopFigures, ExchangeRate, RentedOffer, Speed, Time, Usd, Work


class Source(TypedDict):
    """The source of a figure."""

    text: str
    """The source."""
    as_of: str
    """Its day."""
    basis: str
    """`published`, `derived`, `unverified` or `assumed`."""


class MemoryPart(TypedDict):
    """A part of the memory that the work needs."""

    what: str
    """Weights, gradients, ..."""
    gib: float
    """How much that is."""
    bytes_per_parameter: float | None
    """Bytes for each parameter; null: it does not depend on parameters."""
    source: Source | None
    """Its source; null: by definition, or as it was typed."""


class OtherMethod(TypedDict):
    """Another method for the same model."""

    method: str
    """How the model would be trained."""
    precision: str
    """The number format of the weights."""
    memory_gib: float
    """The memory that this needs."""


class RentableMachine(RentedOffer):
    """A machine that can be rented."""

    gpu_memory_gib: float
    """Memory per GPU."""
    gpus_needed: int
    """On how many of them the work runs."""
    gib_per_gpu: float
    """The memory that the work needs on each of these."""
    usd_per_month: Usd | None
    """Its monthly cost for the given hours a week."""
    speed: Speed | None
    """The speed of one GPU."""
    h100_hours_per_dollar: float | None
    """The work of an H100 that a dollar buys."""


class DesktopBreakEven(TypedDict):
    """When a desktop pays for itself."""

    hours_replaced: float
    """How many hours of the machine an hour of the desktop does."""
    basis: str
    """What that is based on."""
    from_hours_per_week: float | None
    """From how many hours a week the desktop is cheaper over its life; null: never."""
    after_days: float | None
    """When both have cost the same, for the given hours; null: never, or no hours given."""
    soonest_days: float | None
    """The same if the desktop is as fast as it may be."""
    latest_days: float | None
    """The same if the desktop is as slow as it may be."""
    desktops: int
    """How many desktops these hours take."""
    rent_usd: Usd | None
    """What renting costs over the desktop's life; null: no hours were given."""
    desktop_usd: Usd | None
    """What the desktop costs over its life, sold at its end."""
    sold_for_usd: Usd | None
    """For how much it is sold then."""


class BuildableDesktop(DesktopFigures):
    """A desktop that can be built."""

    gpu: str
    """Its cards."""
    cards: int
    """The number of cards."""
    paid: str
    """Which price of the card: `used`, `new`, `at its launch` or `yours`."""
    card_usd: Usd
    """The price of one card."""
    dated: str
    """Its date as the source gives it."""
    old: bool
    """That is older than 180 days."""
    desktop_usd: Usd
    """All cards and the rest of the desktop."""
    watts: float
    """The power of all of it at work."""
    break_even: DesktopBreakEven | None
    """Compared with the first machine; null if their relative speed is unknown."""


class PowerSupply(TypedDict):
    """The power that a desktop needs."""

    cards: int
    """The number of cards."""
    draw_watts: float
    """What the desktop's parts draw together, in watts."""
    low_watts: float
    """The smallest power supply that is enough, in watts."""
    high_watts: float
    """A power supply with more reserve."""
    wall_watts: float
    """What it draws from the wall, in watts: the same with the losses of the power supply."""
    limited_watts: float
    """What the parts draw in watts with every card limited to 50 W less."""
    circuit_watts: float
    """What a US circuit of 15 A can supply for hours."""
    circuit: str
    """Whether that is enough, in words."""


class Step(TypedDict):
    """A step to the answer."""

    title: str
    """The step."""
    text: str
    """Its result."""
    sources: list[Source]
    """Its sources; none: the catalogue alone."""


class FreeHours(TypedDict):
    """Hours that cost nothing, on which the work fits."""

    where: str
    """`kaggle`."""
    gpu: str
    """Its GPU."""
    gpus_needed: int
    """On how many of them the work runs."""
    hours_per_week: float
    """About how many hours a week are free."""
    session_hours: float
    """How long a session lasts at most."""
    source: Source
    """Where that is from."""
    sentence: str
    """The same in words."""


class RecommendDocument(TypedDict):
    """Which GPU fits a kind of work, to rent or to buy."""

    as_of: Time
    """When the age of prices was checked."""
    sentence: str
    """The answer."""
    verdict: Literal["rent", "buy", "either"]
    """`rent`, `buy`, or `either` where the hours are not known or there is only one of both."""
    kind: str | None
    """The kind of work; null with `--memory` alone."""
    title: str
    """The same in words."""
    parameters: float | None
    """The parameters of the model."""
    method: str | None
    """`full`, `lora`, `qlora` or `inference`."""
    precision: str | None
    """The number format of its weights."""
    speed_by: Work
    """`training` or `inference`: the work by which GPUs are compared."""
    cards: int | None
    """The number of GPUs, if it was given."""
    hours_per_week: float | None
    """How long the machine would be used."""
    memory_gib: float
    """The memory that the work needs on one GPU."""
    memory: list[MemoryPart]
    """Its parts."""
    other_ways: list[OtherMethod]
    """Other methods for the same model."""
    machines: list[RentableMachine]
    """At most six, the best first."""
    cheapest: RentableMachine | None
    """The cheapest by the hour with as many GPUs as the first."""
    desktops: list[BuildableDesktop]
    """At most six, the best first."""
    power_supply: PowerSupply | None
    """The power that the first desktop needs."""
    left_out: dict[str, str]
    """GPUs with enough memory that are not recommended: the reason by name."""
    without_price: list[str]
    """Cards with enough memory but no known dated price."""
    free_hours: FreeHours | None
    """Free hours on which the work fits; null: none."""
    warnings: list[str]
    """Why the first machine's price or memory may differ from what is shown."""
    steps: list[Step]
    """How the answer was found."""
    notes: list[str]
    """Further notes."""
    currency: ExchangeRate | None
    """The currency in which a note repeats the answer's amounts; null: US dollars alone."""
