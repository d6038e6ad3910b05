"""Exact amounts and quantities as decimal text for files that other programs read."""

from __future__ import annotations

from datetime import UTC, datetime
from fractions import Fraction

from cloudgpu.core.values.money import NANO, Money

PLACES = 15  # of quantities: a price of a thousand dollars times the rest is less than a nano-dollar


def decimal(value: Fraction | Money | int) -> str:
    """Return plain decimal text, always with a point and never with an exponent; quantities to 15 places."""
    exact = Fraction(value.nanos, NANO) if isinstance(value, Money) else Fraction(value)
    parts = round(abs(exact) * 10**PLACES)
    whole, rest = divmod(parts, 10**PLACES)
    return f"{'-' if exact < 0 and parts else ''}{whole}.{f'{rest:0{PLACES}d}'.rstrip('0') or '0'}"


def second(moment: datetime) -> str:
    """Return a time as `YYYY-MM-DDTHH:mm:ssZ`, as FOCUS writes it; what is less than a second is left out."""
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}" if moment.year > 999 else moment.isoformat()  # noqa: PLR2004
