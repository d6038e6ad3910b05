"""Reads what `report` was asked for, typed or passed by a program: a period, a currency, a desktop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

from cloudgpu.control.cost_wish import CostWish, Moment, cost_wish
from cloudgpu.core.cost import By

if TYPE_CHECKING:
    from datetime import date, datetime
    from decimal import Decimal
    from pathlib import Path
    from typing import Unpack

    from cloudgpu.config.settings import Settings


class AskedOfReport(TypedDict, total=False):
    """What `report` takes. Text is read as the command line reads it."""

    since: Moment | None  # a duration counts back from now
    until: Moment | None
    tz: str | None  # None: the setting
    currency: str | None  # "KRW"; None: US dollars
    rate: str | float | Decimal | None
    rate_date: str | date | None
    desktop: str | Path | None  # a name, or a YAML file; None: the setting
    work: str | None  # "training", "inference"


@dataclass(frozen=True, slots=True)
class ReportWish:
    """What a report was asked for: its period, zone and currency, and what its comparison is with."""

    cost: CostWish
    compare: AskedOfReport


def report_wish(settings: Settings, now: datetime, **given: Unpack[AskedOfReport]) -> ReportWish:
    """Return what was asked for as one value; raise InvalidRequest that names the option of what cannot be."""
    unknown = given.keys() - AskedOfReport.__annotations__
    if unknown:
        raise TypeError(f"report() got an unexpected keyword argument {min(unknown)!r}")
    wish = cost_wish(
        settings,
        now,
        by=By.PROJECT,
        since=given.get("since"),
        until=given.get("until"),
        tz=given.get("tz"),
        currency=given.get("currency"),
        rate=given.get("rate"),
        rate_date=given.get("rate_date"),
    )
    return ReportWish(wish, given)
