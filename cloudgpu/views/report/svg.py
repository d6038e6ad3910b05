"""Pieces of SVG as text, with every name and text escaped; and which amounts and days an axis shows."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta
from html import escape
from itertools import accumulate, repeat, takewhile
from math import ceil, floor, log10

MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
MONTHS_PER_YEAR = 12
MIN_AMOUNT = 1e-12  # smaller amounts are rounding errors of floats
_MONTH_STEPS = (1, 2, 3, 6, 12, 24, 60, 120, 600)
_DAY_STEPS = (1, 2, 7, 14)


def tag(name: str, *children: str, **attributes: object) -> str:
    """Return an element; `class_` and `text_anchor` are the attributes `class` and `text-anchor`, None leaves one out.

    Children are SVG: use `escaped` for text.
    """
    attributes_text = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{attributes_text}>{''.join(children)}</{name}>" if children else f"<{name}{attributes_text}/>"


def escaped(text: str) -> str:
    """Return a text as the inside of an element."""
    return escape(text, quote=False)


def chart_svg(
    name: str, title: str, description: str, *parts: str, height: int, left: float = 0, right: int = 0
) -> str:
    """Return a chart as wide as the page, less `left` and `right` pixels, and `height` pixels high.

    A screen reader reads its title and description.
    """
    return tag(
        "svg",
        tag("title", escaped(title), id=f"{name}-title"),
        tag("desc", escaped(description), id=f"{name}-desc"),
        *parts,
        class_="chart",
        role="img",
        aria_labelledby=f"{name}-title {name}-desc",
        height=height,
        style=f"margin-left:{left:.0f}px;width:calc(100% - {left + right:.0f}px)",
    )


def percent(share: float) -> str:
    """Return a share of the width as SVG has it."""
    return f"{share * 100:.4g}%"


def axis_levels(highest: float, max_steps: int = 4) -> tuple[float, ...]:
    """Return round amounts from 0 to the first that is not below `highest`, in at most `max_steps` equal steps."""
    if not highest > MIN_AMOUNT:
        return (0.0, 1.0)
    magnitude = 10.0 ** floor(log10(highest / max_steps))
    step = next(
        factor * magnitude for factor in (1, 2, 5, 10) if factor * magnitude * max_steps >= highest * (1 - 1e-9)
    )
    return tuple(step * number for number in range(ceil(highest / step - 1e-9) + 1))


def axis_amounts(values: tuple[float, ...]) -> list[str]:
    """Return round amounts as labels of an axis, all with the same digits after the point."""
    step = values[1] - values[0]
    if step >= 1e6:  # noqa: PLR2004  (a word is shorter than six zeros)
        return [f"{value / 1e6:,g} million" if value else "0" for value in values]
    places = max(0, -floor(log10(step) + 1e-9))
    return [f"{value:,.{places}f}" if value else "0" for value in values]


def day_text(day: date) -> str:
    """Return a day as text: `3 Nov 2026`."""
    return f"{day.day} {MONTHS[day.month - 1]} {day.year}"


def axis_dates(first: date, last: date, max_labels: int = 5) -> list[tuple[date, str]]:
    """Return at most `max_labels` days of a period with their labels: days, first days of months, or years."""
    day_count = (last - first).days + 1
    step = next((days_apart for days_apart in _DAY_STEPS if ceil(day_count / days_apart) <= max_labels), None)
    if step is not None:
        days = [first + timedelta(days=number) for number in range(0, day_count, step)]
        return [(day, f"{day.day} {MONTHS[day.month - 1]}") for day in days]
    for months in _MONTH_STEPS:
        month_begins = list(_month_begins(first, last, months))
        if len(month_begins) <= max_labels:
            break
    return [(day, _month_text(day, months)) for day in month_begins]


def _month_begins(first: date, last: date, step: int) -> Iterator[date]:
    month_number = first.year * MONTHS_PER_YEAR + first.month - 1 + (first.day > 1)
    month_number += -month_number % step
    last_number = last.year * MONTHS_PER_YEAR + last.month - 1
    for number in takewhile(lambda number: number <= last_number, accumulate(repeat(step), initial=month_number)):
        yield date(number // MONTHS_PER_YEAR, number % MONTHS_PER_YEAR + 1, 1)


def _month_text(day: date, step: int) -> str:
    """Return a month's name, and for January the year that it begins."""
    return str(day.year) if step >= MONTHS_PER_YEAR or day.month == 1 else MONTHS[day.month - 1]
