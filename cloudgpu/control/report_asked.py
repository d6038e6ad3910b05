"""Reads what `report` was asked for, typed or passed by a program: a period, a currency, a desktop to compare with."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypedDict, cast

from cloudgpu.control.compare_asked import compare_wish
from cloudgpu.control.months import month_asked
from cloudgpu.core.billing.cost_groups import Asked, By
from cloudgpu.errors import InvalidRequest

if TYPE_CHECKING:
    from datetime import date, datetime
    from decimal import Decimal
    from pathlib import Path
    from typing import Unpack

    from cloudgpu.control.compare_asked import AskedOfCompare, CompareWish
    from cloudgpu.control.cost_wish import Moment
    from cloudgpu.control.session import Session


class AskedOfReport(TypedDict, total=False):
    """What `report` takes. Text is read as the command line reads it."""

    since: Moment | None  # a duration counts back from now
    until: Moment | None
    month: str | None  # "2026-10", or "last"; in place of both
    tz: str | None  # None: the setting
    currency: str | None  # "KRW"; None: US dollars
    rate: str | float | Decimal | None
    rate_date: str | date | None
    desktop: str | Path | None  # a name, or a YAML file; None: the setting
    work: str | None  # "training", "inference"


@dataclass(frozen=True, slots=True)
class ReportWish:
    """What a report was asked for: from `since` on; until when, in which zone and currency its comparison says.

    That is of the same period. That of a month is of all up to its end: nobody buys a desktop for a month.
    """

    compare: CompareWish
    since: datetime | None

    @property
    def period(self) -> Asked:
        """The period, with the zone in which its days begin."""
        wish = self.compare
        return Asked(By.INSTANCE, wish.zone, self.since, wish.until)


def report_wish(session: Session, **given: Unpack[AskedOfReport]) -> ReportWish:
    """Return what was asked for as one value; raise InvalidRequest that names the option of what cannot be."""
    unknown = given.keys() - AskedOfReport.__annotations__
    if unknown:
        raise TypeError(f"report() got an unexpected keyword argument {min(unknown)!r}")
    month = given.get("month")
    asked = cast("AskedOfCompare", {name: value for name, value in given.items() if name != "month"})
    if month is not None:
        _check_alone(month, given)
        meant = month_asked(month, session.clock(), given.get("tz") or session.settings.tz)
        asked["since"], asked["until"] = meant.begin, meant.end
    wish = compare_wish(session, **asked)
    return ReportWish(wish if month is None else replace(wish, since=None), wish.since)


def _check_alone(month: str, given: AskedOfReport) -> None:
    for option, value in (("--since", given.get("since")), ("--until", given.get("until"))):
        if value is not None:
            raise InvalidRequest(
                f"--month {month} is a whole period, and {option} is given too.",
                field=option,
                value=str(value),
                next="Name the month, or the period's two ends.",
            )
