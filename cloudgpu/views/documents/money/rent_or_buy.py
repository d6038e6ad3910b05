"""Documents of `compare` from a price and a utilization, and of the known desktops."""

from typing import Annotated, Literal, TypedDict

from cloudgpu.core.advice.desktop import Depreciation as _Depreciation
from cloudgpu.core.advice.rent_or_buy import Bound as _Bound
from cloudgpu.views.documents.parts import (
    Cases,
    DatedDesktop,
    DecimalText,
    DesktopFigures,
    ExchangeRate,
    OfferHead,
    SpeedBounds,
    Time,
    Usd,
    Work,
)

UseBound = Annotated[str, _Bound]
DepreciationMethod = Annotated[str, _Depreciation]


class QuotedPrice(ExchangeRate):
    """A price in another currency."""

    amount: DecimalText
    """The price in its currency."""


class DesktopProfile(DatedDesktop, DesktopFigures):
    """A desktop."""

    name: str
    """The desktop's name."""
    gpus: int
    """The number of GPUs."""
    boxes: int
    """The number of computers that they are in."""
    purchase_usd: Usd
    """Its price."""
    quoted: QuotedPrice | None
    """The price in the currency of its source; null: it is in US dollars."""
    gpu_watts: float
    """The power of one of its cards at work."""
    system_watts: float
    """The power of the rest of it then."""
    pue: float
    """Power usage effectiveness: kilowatt-hours, with those for cooling, for each one that it uses itself; 1: none."""
    maintenance_usd_per_year: Usd
    """Maintenance."""
    resale_usd: Usd
    """What it is sold for at the end of its life."""
    depreciation: DepreciationMethod
    """How its value is counted: `none`, `straight-line`, `declining`."""
    yearly_loss_percent: float
    """The share of its value that it loses each year, if `declining`."""
    changed: list[str]
    """The options that replaced its figures."""


class CatalogOffer(OfferHead):
    """The offer that a price is from."""

    source: str
    """Where the price is from."""
    as_of: Time
    """When it held."""
    basis: str
    """`listed`, `derived`, `unverified`."""
    uncertain: str | None
    """Why a spot price may not hold any more; null: no reason is known."""
    legacy: str | None
    """Why it can probably not be launched any more."""


class RentedMachine(TypedDict):
    """What is rented."""

    gpu: str | None
    """Its GPU; null: not given."""
    instead_of: str | None
    """The requested GPU, if no cloud lists it and this one replaces it; null: it was not replaced."""
    matching_gpus: list[str]
    """The GPUs that the typed name may mean."""
    gpus: int
    """The number of GPUs that it has."""
    usd_per_hour: Usd
    """What an hour of the machine costs."""
    offer: CatalogOffer | None
    """Where that price is from; null: it was typed."""


class Usage(TypedDict):
    """For how much of the time a machine is used."""

    typed: str
    """As it was typed."""
    bound: UseBound
    """`at`, `under`, `over` or `between`."""


class SpeedRatio(SpeedBounds):
    """How fast a GPU of the desktop is compared with a rented one."""

    ratio: float
    """How many hours of the rented GPU an hour of one of the desktop's GPUs replaces."""


class ReplacementPeriod(TypedDict):
    """When a desktop that was replaced is more expensive again."""

    from_days: float
    """From this day on, on which a desktop is replaced at the end of its life."""
    until_days: float | None
    """Until this day; null: it stays so for 30 years."""


class OwnedParts(TypedDict):
    """What desktops cost, part by part; a part of documents, not one of its own."""

    purchase_usd: Usd
    """What was paid for them."""
    electricity_usd: Usd
    """Electricity."""
    maintenance_usd: Usd
    """Maintenance."""
    worth_usd: Usd
    """Their remaining value, where depreciation is counted."""


class CurvePoint(OwnedParts):
    """What both have cost after some time."""

    days: float
    """The time in days."""
    cloud_usd: Usd
    """What the cloud has cost."""
    desktop_usd: Usd
    """What desktops have cost: purchase, electricity and maintenance, minus `worth_usd`."""
    flat_year_usd: Usd
    """Purchase, and electricity and maintenance of all years begun, counted as the article in docs/compare.md does."""
    sold_for_usd: Usd
    """What desktops of that age would sell for."""
    net_usd: Usd
    """What desktops have cost once they are sold then."""


class Outcome(TypedDict):
    """The result of one case."""

    desktops: int
    """The number of desktops that do the work."""
    desktop_hours_per_day: float
    """Hours a day for which all of them together work."""
    kwh_per_year: float
    """The energy."""
    electricity_usd_per_year: Usd
    """What it costs."""
    break_even_days: float | None
    """When the cloud has cost as much; null: not within 30 years."""
    break_even_days_by_flat_year: float | None
    """The same with each year's electricity on its first day; null: not in the first life."""
    desktop_costs_more_again: ReplacementPeriod | None
    """When a desktop that was replaced is more expensive again; null: never."""
    break_even_utilization_percent: float | None
    """The utilization from which on a desktop is cheaper over its life; null: it never is."""
    break_even_usd_per_hour: Usd | None
    """The cloud price from which on a desktop is cheaper; null: nothing is used."""
    curve: list[CurvePoint]
    """What both have cost at several times."""


class Outcomes(Cases[Outcome]):
    """The results at one utilization: `low` is at the lowest speed of the desktop, `high` at its highest."""

    utilization_percent: float
    """For how much of the time a machine is used; above 100: several."""
    hours_per_day: float
    """The same in hours."""


class ScaledOutcomes(TypedDict):
    """The results with the known speeds of both GPUs."""

    speed: SpeedRatio
    """How fast a GPU of the desktop is."""
    answers: list[Outcomes]
    """One for each bound of the utilization."""


class OverYears(TypedDict):
    """What each costs over the requested years, if the desktop is sold at their end."""

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
    """How much more the other one costs."""
    desktop_cheaper_from_days: float | None
    """From when on the desktop is the cheaper one, if it is sold when the work ends; null: not within 30 years."""
    paid_off_unsold_days: float | None
    """When the cloud has cost as much as a desktop that is never sold; null: not within 30 years."""


class TimelinePoint(TypedDict):
    """What both have cost by a time, for drawing."""

    years: float
    """The time in years."""
    cloud_usd: Usd
    """What the cloud has cost."""
    sold_usd: Usd
    """What desktops have cost if they are sold then."""
    unsold_usd: Usd
    """What desktops have cost if they are never sold."""


class DesktopComparison(TypedDict):
    """The desktop of a comparison, and its assumptions; a part of documents, not one of its own."""

    currency: ExchangeRate | None
    """The currency of amounts in sentences; null: US dollars."""
    desktop: DesktopProfile
    """The desktop."""
    assumptions: list[str]
    """The assumptions of the comparison, and what it leaves out."""


class RentOrBuyDocument(DesktopComparison):
    """Rent or buy by hours that were given, without a ledger: with `--price`, `--utilization` or `--hours-per-day`."""

    mode: Literal["calculator"]
    """`calculator`: by the hours that were given, without the ledger."""
    as_of: Time
    """When it was computed."""
    cloud: RentedMachine
    """What is rented."""
    usage: Usage
    """For how much of the time a machine is used."""
    work: Work | None
    """`training` or `inference`: the work by which speeds are compared; null: GPUs count as equally fast."""
    speed: SpeedRatio
    """How fast a GPU of the desktop is compared with a rented one."""
    fits: bool | None
    """The desktop's GPU has at least the memory of the rented one; null: not known."""
    answers: list[Outcomes]
    """One for each bound of the utilization."""
    with_known_speeds: ScaledOutcomes | None
    """If GPUs count as equally fast: the results with the known speeds."""
    why_they_differ: str | None
    """Why the article in docs/compare.md has another break-even. Null: it has not, or depreciation is counted."""
    years: float
    """For how many years both are compared."""
    verdict: str
    """`buy` or `rent`, whichever is cheaper over these years; `either`: it depends on the utilization."""
    over_years: list[OverYears]
    """What each costs over these years; one for each bound of the utilization."""
    timeline: list[TimelinePoint]
    """What both have cost over these years, in equal steps, at the last bound of the utilization."""
    interest_percent: float
    """The yearly cost of capital in percent; 0: none is counted."""
    price_drift_percent: float
    """The yearly change of cloud prices in percent; 0: they stay."""
    vat_percent: float
    """VAT in percent on everything that is bought; 0: none is added."""
    resale_source: str | None
    """The source of a used desktop's price, where none was given; null: nothing is sold."""
    break_even_sentence: str
    """The break-even in words, without a sale of the desktop."""
    sentence: str
    """The answer in words: what each costs over these years, which one is cheaper, and by how much."""
    crossing: str
    """From when on the desktop is cheaper; empty where nothing is used."""
    remarks: list[str]
    """Notes on replaced GPUs, on memory that does not fit, and on interest, prices and VAT."""


class DesktopsDocument(TypedDict):
    """The desktops that can be named."""

    desktops: list[DesktopProfile]
    """Every desktop that can be named."""
