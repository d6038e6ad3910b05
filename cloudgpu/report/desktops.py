"""A desktop as the plain values that `-o json` prints and the library returns."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from cloudgpu.core.advice.desktop import YEAR
from cloudgpu.report.values import usd

if TYPE_CHECKING:
    from cloudgpu.core.advice.desktop import Desktop
    from cloudgpu.core.values.currency import Currency

Document = dict[str, Any]


def desktop_value(desktop: Desktop, changed: Sequence[str] = ()) -> Document:
    """Return a desktop's facts with their source and date; `changed` are the options that gave it other figures."""
    quoted = desktop.quoted
    return {
        "name": desktop.name,
        "gpu": desktop.gpu,
        "gpus": desktop.gpus,
        "purchase_usd": usd(desktop.purchase),
        "quoted": None if quoted is None else {"amount": f"{quoted.value:f}", **rate_value(quoted.currency)},
        "life_years": number(Fraction(desktop.life / YEAR)),
        "gpu_watts": number(desktop.gpu_power.watts),
        "rest_watts": number(desktop.rest_power.watts),
        "idle_watts": number(desktop.idle_power.watts),
        "usd_per_kwh": usd(desktop.tariff.per_kwh),
        "pue": number(desktop.pue),
        "maintenance_usd_per_year": usd(desktop.maintenance),
        "resale_usd": usd(desktop.resale),
        "depreciation": str(desktop.depreciation),
        "yearly_loss_percent": number(desktop.yearly_loss * 100),
        "source": desktop.source,
        "as_of": desktop.as_of.isoformat(),
        "changed": list(changed),
    }


def rate_value(currency: Currency) -> Document:
    """Return a currency with its rate, and the rate's day and source."""
    return {
        "code": currency.code,
        "per_usd": f"{currency.per_usd:f}",
        "as_of": currency.as_of.isoformat(),
        "source": currency.source,
    }


def number(exact: Fraction, places: int = 6) -> float | int:
    """Return an exact number for a document, rounded to so many places; a whole one without a point."""
    found = round(float(exact), places)
    return int(found) if found == int(found) else found
