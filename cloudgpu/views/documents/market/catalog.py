"""Documents of `gpus` and `catalog`."""

from typing import Annotated, Literal, TypedDict

from cloudgpu.views.documents.parts import (
    CatalogHints,
    Day,
    ListedOffer,
    Market,
    Price,
    PriceBasis,
    Speed,
    Time,
    UnansweredScope,
    Usd,
)


class RefreshedPart(TypedDict):
    """A part of a price list that was refreshed."""

    scope: str
    """Which part."""
    refreshed_at: Time
    """When it last answered."""


class RefusedRow(TypedDict):
    """A row of a price list that was not accepted."""

    row: str
    """The row, as the price list has it."""
    why: str
    """Why it was not accepted."""


class ChangedPrice(TypedDict):
    """A price before or after a change."""

    usd: Usd
    """The price."""
    source: str
    """Where the price is from."""
    as_of: Time
    """The date of the price."""
    basis: PriceBasis
    """How it is known: `listed`, `derived` or `unverified`."""


class GpuOffer(ListedOffer):
    """A machine that can be bought."""

    regions: int
    """In how many regions it has a price on this market."""
    local_ssd_gb: float | None
    """Disks that a stop erases; null: not known."""
    arch: str
    """`x86_64` or `arm64`."""
    price_check: str
    """What a second source says about it, or how it was computed."""
    speed: Speed | None
    """`vs_h100` and `basis` of one whole GPU; null: not known."""
    h100_hours_per_dollar: float | None
    """Work per dollar: the hours of an H100's training that a dollar buys; null: not known."""


# A key that is a keyword of Python, which no class can declare.
_OfferObstacleKeywords = TypedDict(
    "_OfferObstacleKeywords", {"from": Annotated[Price, "The cheapest of their prices."]}
)


class OfferObstacle(_OfferObstacleKeywords):
    """A requirement that rules out machine types."""

    requirement: str
    """The requirement: `gpu`, `region`, ..."""
    types: int
    """How many types would fit without it."""


class GpusDocument(CatalogHints):
    """The GPU machines that can be bought."""

    offers: list[GpuOffer]
    """The offers, in the requested order."""
    without: list[OfferObstacle]
    """When nothing fits: each single requirement without which there are offers."""
    compiled: Day
    """The day on which the figures were compiled."""
    left_out: dict[str, str]
    """With `--all`: names that have a price and are not offered, with the reason."""


class PriceChange(TypedDict):
    """A changed price."""

    provider: str
    """Whose price."""
    item: str
    """The machine type or kind of storage."""
    region: str
    """Where."""
    market: Market | None
    """`on_demand` or `spot`; null: it is not the price of a machine."""
    unit: str
    """`usd_per_hour`, `usd_per_gb_month`, ...."""
    was: ChangedPrice
    """The price before."""
    now: ChangedPrice
    """The price of the new list."""
    factor: float
    """The new price divided by the old one."""
    accepted: bool
    """False: it was held back, and `was` is still used."""


class RefreshedProvider(TypedDict):
    """The refresh of one provider's price list."""

    provider: str
    """`aws`, `azure` or `gcp`."""
    prices: int
    """How many prices the answer contained."""
    parts: list[RefreshedPart]
    """The parts in use: `scope` and `refreshed_at`, that of an earlier refresh for a part that did not answer now."""
    changed: int
    """Prices that changed."""
    jumps: list[PriceChange]
    """Prices that moved too far, the largest first."""
    refused: list[RefusedRow]
    """Rows that were not accepted: `row` and `why`."""
    unanswered: list[UnansweredScope]
    """Parts that did not answer: `scope` and `why`."""
    unknown: list[str]
    """Machines of the list that the catalogue does not know."""
    unnamed: list[str]
    """On-demand prices that the answer did not contain."""


class CatalogRefreshDocument(TypedDict):
    """The result of a refresh of prices."""

    refreshed_at: Time
    """When it was done."""
    factor: float
    """From which factor a price counts as having moved too far."""
    accepted: bool
    """Whether such prices were accepted."""
    providers: list[RefreshedProvider]
    """The result for each provider."""


class CatalogDiffDocument(TypedDict):
    """What refreshed prices changed."""

    against: str
    """What was compared with."""
    factor: float
    """From which factor a change counts as a jump."""
    changes: list[PriceChange]
    """What differs."""
    jumps: int
    """How many by more than the factor."""
    new: int
    """Refreshed prices that have no counterpart."""


class CatalogProvider(TypedDict):
    """What the catalogue knows of one provider."""

    provider: str
    """`aws`, `gcp` or `azure`."""
    types: int
    """Machine types with a price."""
    legacy: int
    """How many of them can probably not be launched any more."""
    regions: int
    """Regions with a price."""
    prices: int
    """Prices of machines."""
    storage: int
    """Kinds of storage, addresses and traffic."""
    oldest: Time
    """The date of the oldest price."""
    newest: Time
    """The date of the newest price."""
    old: int
    """Prices of more than 180 days ago."""
    derived: int
    """Prices that were computed from others."""
    unverified: int
    """Prices from memory."""
    refreshed: list[RefreshedPart]
    """Parts that were refreshed: `scope` and `refreshed_at`."""
    held: int
    """Prices that changed too much and were not accepted."""
    error: str | None
    """Why refreshed prices cannot be read."""


class CatalogDocument(TypedDict):
    """How much the catalogue knows."""

    compiled: Day
    """The day on which the embedded figures were compiled."""
    providers: list[CatalogProvider]
    """One for each provider."""


class CatalogPrice(TypedDict):
    """A price."""

    region: str
    """Where, or a pattern; `*`: everywhere, or not named."""
    market: Market | None
    """`on_demand` or `spot`; null: it is not the price of a machine."""
    unit: str
    """The unit, such as `usd_per_hour`."""
    usd: Usd
    """The price."""
    low_usd: Usd | None
    """The least that a derived price of storage may be; null for all others."""
    as_of: Time | None
    """The earliest time that its date can mean; null: it has no date."""
    dated: str | None
    """The date as the source gives it."""
    old: bool
    """More than 180 days old, or without a date."""
    basis: PriceBasis
    """`listed`, `derived` or `unverified`."""
    source: str
    """Where the price is from."""
    check: str
    """What a second source found, or what the source adds."""
    state: Annotated[str, Literal["current", "superseded", "historic"]]
    """`current`, `superseded` (by a refresh) or `historic`."""


class CatalogItemDocument(TypedDict):
    """What a machine type, a kind of storage or a GPU sold apart costs."""

    provider: str
    """The provider."""
    item: str
    """The name."""
    what: Annotated[str, Literal["machine", "storage", "part"]]
    """`machine`, `storage` or `part` (a GPU sold apart)."""
    legacy: str | None
    """Why it can probably not be launched."""
    unverified: list[str]
    """Which of its properties are from memory."""
    notes: str
    """Further notes on the type."""
    prices: list[CatalogPrice]
    """Each price."""
    error: str | None
    """Why refreshed prices cannot be read."""
