"""The report as one HTML file: no script, nothing fetched, dark and light; from its document alone."""

from __future__ import annotations

from decimal import Decimal
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from cloudgpu.report import page
from cloudgpu.report.wording import NOT_KNOWN, Amounts, Clock, hours_text, number_text, visible

if TYPE_CHECKING:
    from collections.abc import Callable

    from jinja2 import Template

Document = dict[str, Any]
MARK = "<!-- cloudgpu report -->"  # on the second line of each: what is not ours is never written over
OPTIONAL = ("owned", "curve", "assumptions")  # what a comparison of nothing lacks
DEAR = 20  # machines that are listed without being asked for


def to_html(document: Document) -> str:
    """Return the report as a page of its own. Every text of the document is shown as text, whatever it holds.

    A key that the page needs and the document lacks is `jinja2.UndefinedError` or KeyError: a fault of ours.
    """
    from markupsafe import Markup

    document = {**document, "comparison": dict.fromkeys(OPTIONAL) | document["comparison"]}
    amounts, clock = Amounts(document), Clock(document["tz"])
    charts = {
        "curve": page.curve_chart(document["comparison"], amounts, clock),
        "spend": page.spending_chart(document, amounts, clock),
        "hours": page.hours_chart(document, amounts),
    }
    return _template().render(
        doc=document,
        amount=amounts,
        said=amounts.said,
        time=clock,
        day=clock.day,
        last_day=clock.last_day,
        first=_first(document, clock),
        last=_last(document, clock),
        rate=amounts.rate,
        unit=amounts.unit,
        charts=charts,
        svg={name: Markup(chart.svg) for name, chart in charts.items()},  # noqa: S704  (escaped as it was made)
        shares=page.shares(document["projects"]),
        monthly=page.monthly(document["leftovers"]),
        folded=len(document["machines"]) > DEAR,
    )


def _first(document: Document, clock: Clock) -> str | None:
    """Return the first day of the report; None where nothing was ever launched."""
    since = document["since"] or document["about"]["begin"]
    return None if since is None else clock.day(since)


def _last(document: Document, clock: Clock) -> str:
    """Return its last day: the end of the period is not in it."""
    until = document["until"]
    return clock.day(document["as_of"]) if until is None or until > document["as_of"] else clock.last_day(until)


@cache
def _template() -> Template:
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, finalize=_finalized, trim_blocks=True, lstrip_blocks=True
    )
    filters: dict[str, Callable[..., Any]] = {
        "hours": hours_text,
        "number": number_text,
        "positive": _is_positive,
        "spent_share": page.spent_share,
    }
    environment.filters.update(filters)
    environment.globals |= {"cases": page.CASES, "css": Markup(_file("report.css")), "mark": Markup(MARK)}  # noqa: S704  (ours)
    return environment.from_string(_file("report.html.j2"))


def _file(name: str) -> str:
    return files("cloudgpu.report").joinpath(name).read_text("utf-8")


def _is_positive(amount: str | None) -> bool:
    return amount is not None and Decimal(amount) > 0


def _finalized(value: object) -> object:
    """Show nothing as not known, and every sign of a text; what is SVG or escaped already stays."""
    if value is None:
        return NOT_KNOWN
    if isinstance(value, str) and not hasattr(value, "__html__"):
        return visible(value)
    return value
