"""The document of `compare` from a ledger."""

from typing import Annotated, Literal, TypedDict

from cloudgpu.views.documents.money.rent_or_buy import DesktopComparison, OwnedParts
from cloudgpu.views.documents.parts import (
    Cases,
    DecimalText,
    MaybePriced,
    NamedMachine,
    Price,
    SpeedBounds,
    Time,
    Usd,
    Work,
)


class ScaledGpu(SpeedBounds):
    """How the desktop compares with a GPU of the cloud."""

    gpu: str
    """The GPU, as launches named it."""
    memory_gib: float | None
    """Memory per GPU."""
    hours: DecimalText
    """Hours of work of one such GPU, as expected."""
    ratio: float
    """How many of them an hour of one of the desktop's GPUs does."""
    fits: bool | None
    """The desktop's GPU has as much memory; null: not known."""


class CloudCost(MaybePriced):
    """What the cloud has cost, and how long it was used."""

    billed_hours: DecimalText
    """Hours of machines that were billed: those of the next four keys together."""
    gpu_hours: DecimalText
    """With a busy GPU."""
    used_hours: DecimalText
    """Otherwise in use."""
    idle_hours: DecimalText
    """Idle."""
    unknown_hours: DecimalText
    """Hours of which nothing is known."""
    unpriced: list[str]
    """What has no price, and is in no sum."""


class OwnedCost(OwnedParts):
    """What desktops would have cost."""

    desktops: int
    """How many desktops do the work in that time."""
    hours: DecimalText
    """Hours for which one desktop works."""
    kwh: DecimalText
    """The energy."""
    total_usd: Usd
    """Purchase, electricity and maintenance, less what the desktops are still worth."""
    utilization_percent: float
    """The share of the time in which they work."""


class OwnedCases(Cases[OwnedCost]):
    """What desktops would have cost in the three cases."""


class TimeCases(Cases[Time | None]):
    """A time in the three cases; null: never."""


# A key that is a keyword of Python, which no class can declare.
_CostlierPeriodKeywords = TypedDict("_CostlierPeriodKeywords", {"from": Annotated[Time, "Since when."]})


class CostlierPeriod(_CostlierPeriodKeywords):
    """A time in which a desktop that was replaced at the end of its life has cost more than the cloud again."""

    until: Time | None
    """Until when; null: it stays so."""


class CostlierCases(Cases[CostlierPeriod | None]):
    """When the desktop costs more again, in the three cases; null: it does not."""


class NumberCases(Cases[float | None]):
    """A number in the three cases; null: never."""


class BreakEven(TypedDict):
    """When both have cost the same."""

    past: TimeCases
    """When the cloud had first cost as much as the desktop, at the end of a day; null: it has not."""
    cloud_costs_more_since: TimeCases
    """Since when the cloud has cost more; null: it has cost less by now."""
    projected: TimeCases
    """When the cloud will have cost as much; null: it has, it never will, or there is no [pace](#paces)."""
    desktop_costs_more_again: CostlierCases
    """`from` and `until` when the desktop, replaced, costs more again after that; null: it does not."""
    utilization_percent: NumberCases
    """The use at which a desktop costs as much over its life as the cloud does; null: never."""
    price_usd_per_hour: Usd | None
    """The cloud price of an hour of the desktop's work at which both cost the same, at the present use."""
    paid_usd_per_hour: Usd | None
    """What an hour of that work has cost on the cloud."""


class DailyPace(TypedDict):
    """The cost and the work of a day."""

    usd_per_day: Usd
    """What the cloud costs."""
    hours_per_day: DecimalText
    """For how many hours one desktop works."""


class Paces(Cases[DailyPace | None]):
    """The pace at which the projection continues, in the three cases.

    `low` is that of the week in which the cloud cost least, `expected` that of the last 30 days, `high` that of the
    week in which the cloud cost most. Null: less than a day of history, or the period is over.
    """


class ResaleValue(TypedDict):
    """What a desktop could be sold for."""

    usd: Usd
    """What it could be sold for."""
    by: str
    """The depreciation method."""


class RentalAlternative(TypedDict):
    """Where the same work could have been rented."""

    provider: str
    """The provider of the cheapest on-demand offer."""
    instance_type: str
    """Its type."""
    region: str
    """Its region."""
    gpu: str
    """Its GPU: the same, or where no cloud lists that, the one that does the work cheapest."""
    usd_per_gpu_hour: Usd
    """The price of an hour of one of these."""
    ratio: float
    """How many hours of it replace an hour of this machine's GPU."""
    price: Price
    """The price of the type, with its source and date."""


class OwnMachine(NamedMachine):
    """One of the user's own machines."""

    gpu: str | None
    """Its GPU; null: none, or not known."""
    gpus: float
    """How many."""
    hours: DecimalText
    """Hours of work."""
    gpu_hours: DecimalText
    """The same for each GPU that worked; where they were not counted, for all of them."""
    unknown_hours: DecimalText
    """Hours without any data, in no figure here."""
    kwh: DecimalText | None
    """The energy that its GPUs used, as its agent measured it; null: not measured."""
    assumed: bool
    """Its price is based on typical watts or a typical tariff, as its settings have none."""
    electricity_usd: Usd | None
    """What it cost in the period, as `cost` shows it; null: a part has no price."""
    cloud_usd: Usd | None
    """What the same work would have cost on a cloud; null: no price is known."""
    offer: RentalAlternative | None
    """Where that would have been."""


class ComparedDay(TypedDict):
    """What both had cost by the end of a day."""

    day: str
    """A day of the time zone."""
    cloud_usd: Usd | None
    """What the cloud had cost by its end; null: nothing has a price."""
    desktop_usd: Usd
    """What the desktops had cost by then, in the expected case."""


class CompareDocument(DesktopComparison):
    """The cloud compared with a desktop, from the ledger.

    Of the three cases `low` favours the cloud and `high` the desktop: [compare.md](../compare.md#three-cases).
    """

    mode: Literal["ledger"]
    """`ledger`: by the hours that the ledger recorded."""
    as_of: Time
    """The time up to which running machines are counted."""
    since: Time | None
    """The start of the period, else of the first usage; null: there is none."""
    until: Time | None
    """Its end, which is not in it; null: up to now."""
    tz: str
    """The time zone in which days begin."""
    work: Work
    """`training` or `inference`: the work by which GPUs are compared."""
    speeds: list[ScaledGpu]
    """Each GPU of the cloud."""
    cloud: CloudCost
    """What the cloud has cost, and how its machines were used."""
    owned: OwnedCases | None
    """What desktops would have cost; null: nothing was billed."""
    break_even: BreakEven
    """When, and at which utilization and price, both cost the same."""
    pace: Paces | None
    """The pace at which the projection continues; null: nothing was billed."""
    resale_value: ResaleValue
    """What a desktop could be sold for now."""
    own_machines: list[OwnMachine]
    """The user's own machines (`ssh`)."""
    own_machines_sentence: str | None
    """The work of these machines, in words."""
    paid_usd: Usd | None
    """The cloud's cost and the electricity of these machines; null: one of these amounts is not known."""
    cautions: list[str]
    """What may make the sums wrong: no price, or a clock that is behind."""
    sentence: str
    """The comparison in words."""
    curve: list[ComparedDay]
    """What both cost by the end of each day; if more than 400 days, some are left out."""
