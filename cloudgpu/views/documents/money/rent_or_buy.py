"""Documents of `compare` from a price and a use, and of the desktops that can be named."""

from typing import Annotated, Literal, TypedDict

from cloudgpu.core.advice.desktop import Depreciation as _Depreciation
from cloudgpu.core.advice.rent_or_buy import Bound as _Bound
from cloudgpu.views.documents.parts import DecimalText, ExchangeRate, Market, SpeedBounds, Time, Usd, Work

UseBound = Annotated[str, _Bound]
DepreciationMethod = Annotated[str, _Depreciation]


class QuotedPrice(ExchangeRate):
    """A price in another currency."""

    amount: DecimalText
    """The price in its currency."""


class DesktopProfile(TypedDict):
    """A desktop."""

    name: str
    """The desktop's name."""
    gpu: str
    """Its GPU."""
    gpus: int
    """How many."""
    boxes: int
    """In how many computers they are."""
    purchase_usd: Usd
    """Its price."""
    quoted: QuotedPrice | None
    """The price as its source has it; null: in US dollars."""
    life_years: float
    """After so long it is sold and replaced."""
    gpu_watts: float
    """What one of its cards takes at work."""
    system_watts: float
    """What the rest of it takes then."""
    idle_watts: float
    """What all of it takes while it waits."""
    usd_per_kwh: Usd
    """The price of electricity."""
    pue: float
    """What a kilowatt-hour of it takes with cooling."""
    maintenance_usd_per_year: Usd
    """Maintenance."""
    resale_usd: Usd
    """What it is sold for at the end of its life."""
    depreciation: DepreciationMethod
    """How its worth is counted: `none`, `straight-line`, `declining`."""
    yearly_loss_percent: float
    """What part of its worth it loses a year, where that is declining."""
    source: str
    """Where the figures come from."""
    as_of: str
    """The day of the figures."""
    changed: list[str]
    """The options that gave it other figures."""


class CatalogOffer(TypedDict):
    """Where a price is from."""

    provider: str
    """Who sells it."""
    region: str
    """Where."""
    instance_type: str
    """The type."""
    market: Market
    """`on_demand` or `spot`."""
    source: str
    """Where the price is from."""
    as_of: Time
    """When it held."""
    basis: str
    """`listed`, `derived`, `recalled`."""
    old: bool
    """It is more than 180 days old."""
    uncertain: str | None
    """Why a spot price may not hold any more; null: none."""
    legacy: str | None
    """Why it can hardly be launched any more."""


class RentedMachine(TypedDict):
    """What is rented."""

    gpu: str | None
    """Its GPU; null: not said."""
    instead_of: str | None
    """The GPU that was named, where no cloud lists it and this one stands in; null: none."""
    matching_gpus: list[str]
    """What the name that was typed may mean."""
    gpus: int
    """How many it has."""
    usd_per_hour: Usd
    """What an hour of the machine costs."""
    offer: CatalogOffer | None
    """Where that price is from; null: it was typed."""


class Usage(TypedDict):
    """How much of the time."""

    typed: str
    """As it was typed."""
    bound: UseBound
    """`at`, `under`, `over` or `between`."""


class SpeedRatio(SpeedBounds):
    """How fast a GPU of the desktop is compared with a rented one."""

    ratio: float
    """How many hours of the rented GPU an hour of one of the desktop's does."""


class DearerAgain(TypedDict):
    """When a desktop that was replaced is more expensive again."""

    from_days: float
    """From this day on, as one has come to the end of its life."""
    until_days: float | None
    """Up to this day; null: it stays so for 30 years."""


class OwnedParts(TypedDict):
    """What desktops cost, part by part; a part of documents, not one of its own."""

    purchase_usd: Usd
    """What was paid for them."""
    electricity_usd: Usd
    """Electricity."""
    maintenance_usd: Usd
    """Maintenance."""
    worth_usd: Usd
    """What they are still worth, where depreciation is counted."""


class CurvePoint(OwnedParts):
    """What both have cost after some time."""

    days: float
    """After so many days."""
    cloud_usd: Usd
    """What the cloud has cost."""
    desktop_usd: Usd
    """What desktops have: the next three less the fourth."""
    flat_year_usd: Usd
    """Purchase and all begun years' electricity and maintenance, as published examples count."""
    sold_for_usd: Usd
    """What desktops of that age would sell for."""
    net_usd: Usd
    """What desktops have cost once they are sold then."""


class Outcome(TypedDict):
    """What comes of one case."""

    desktops: int
    """How many do the work."""
    desktop_hours_per_day: float
    """For how long they work, added up."""
    kwh_per_year: float
    """The energy."""
    electricity_usd_per_year: Usd
    """What it costs."""
    break_even_days: float | None
    """When the cloud has cost as much; null: not within 30 years."""
    break_even_days_by_flat_year: float | None
    """The same with each year's electricity on its first day; null: not in the first life."""
    desktop_costs_more_again: DearerAgain | None
    """When a desktop that was replaced is more expensive again; null: never."""
    break_even_utilization_percent: float | None
    """From which use on a desktop is cheaper over its life; null: from none."""
    break_even_usd_per_hour: Usd | None
    """From which price on; null: nothing is used."""
    curve: list[CurvePoint]
    """What both have cost after some times."""


class Outcomes(TypedDict):
    """Of the three, `low` is for the cloud, `high` for the desktop."""

    utilization_percent: float
    """For how much of the time a machine is used; above 100: several."""
    hours_per_day: float
    """The same in hours."""
    low: Outcome
    """At the desktop's lowest speed."""
    expected: Outcome
    """At the likely one."""
    high: Outcome
    """At its highest."""


class ScaledOutcomes(TypedDict):
    """The outcomes with what is known of both GPUs."""

    speed: SpeedRatio
    """How fast a GPU of the desktop is."""
    answers: list[Outcomes]
    """One for each bound of the use."""


class OverYears(TypedDict):
    """What either costs over the years that were named, the desktop being sold at their end."""

    utilization_percent: float
    """For how much of the time a machine is used."""
    cloud_usd: Usd
    """What the cloud costs."""
    paid_usd: Usd
    """What is paid for desktops, electricity and maintenance."""
    sold_for_usd: Usd
    """What desktops of that age sell for."""
    desktop_usd: Usd
    """What desktops cost: what is paid, less what they sell for."""
    cheaper: str
    """`desktop` or `cloud`."""
    difference_usd: Usd
    """How much more the other costs."""
    desktop_cheaper_from_days: float | None
    """From when on the desktop is the cheaper one, if it is sold when the work ends; null: not within 30 years."""
    paid_off_unsold_days: float | None
    """When the cloud has cost as much as a desktop that is never sold; null: not within 30 years."""


class TimelinePoint(TypedDict):
    """What both have cost by a time, for drawing."""

    years: float
    """After so many years."""
    cloud_usd: Usd
    """What the cloud has cost."""
    sold_usd: Usd
    """What desktops have cost if they are sold then."""
    unsold_usd: Usd
    """What desktops have cost if they are never sold."""


class CalculatedDocument(TypedDict):
    """Also with `--price` or `--hours-per-day`: from a price and a use, without a ledger."""

    mode: Literal["calculator"]
    """`calculator`."""
    as_of: Time
    """When it was computed."""
    currency: ExchangeRate | None
    """In what the sentences show amounts; null: US dollars."""
    desktop: DesktopProfile
    """The desktop."""
    cloud: RentedMachine
    """What is rented."""
    usage: Usage
    """How much of the time."""
    work: Work | None
    """`training` or `inference`: speeds are compared by that; null: GPUs count as equal."""
    speed: SpeedRatio
    """How fast a GPU of the desktop is compared with a rented one."""
    fits: bool | None
    """What fits the rented GPU's memory fits the desktop's; null: not known."""
    answers: list[Outcomes]
    """One for each bound of the use."""
    with_known_speeds: ScaledOutcomes | None
    """Where GPUs count as equal: with what is known of both."""
    why_they_differ: str | None
    """Why published examples have another day. Null: they have none, or the same, or leave out a desktop's value."""
    assumptions: list[str]
    """What the comparison rests on, and what it leaves out."""
    years: float
    """For how many years both are compared."""
    verdict: str
    """`buy` or `rent`, whichever is cheaper over these years; `either`: it depends on the use."""
    over_years: list[OverYears]
    """What either costs over these years; one for each bound of the use."""
    timeline: list[TimelinePoint]
    """What both have cost over these years, in even steps, at the last of the uses."""
    interest_percent: float
    """The cost of capital a year; 0: none is counted."""
    price_drift_percent: float
    """How cloud prices change a year; 0: they stay."""
    vat_percent: float
    """VAT on all that is bought; 0: none is added."""
    resale_source: str | None
    """What the resale of a used desktop rests on, where none was given; null: nothing is sold."""
    break_even_sentence: str
    """When both have cost the same, the desktop counted as it is paid."""
    sentence: str
    """The answer in words: what either costs over these years, who is cheaper, and by how much."""
    crossing: str
    """From when on the desktop is cheaper; empty where nothing is used."""
    remarks: list[str]
    """What is compared in place of what was named, what does not fit, and what money does over time."""


class DesktopsDocument(TypedDict):
    """The desktops that can be named."""

    desktops: list[DesktopProfile]
    """Every desktop that can be named."""
