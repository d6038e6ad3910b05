"""The report as one HTML file and as a message, made from its document alone.

The file has no script, fetches nothing, and has a dark and a light theme. The message has a subject, the summary as
text, and the name of the file that is attached.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta, tzinfo
from decimal import Decimal
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from cloudgpu.core.alerts.findings import month_name, whole_month
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.printable import one_line
from cloudgpu.core.values.times import from_iso
from cloudgpu.views.report import page
from cloudgpu.views.report.formatting import (
    NOT_KNOWN,
    SMALL_TOTAL,
    Amounts,
    ZoneFormat,
    currency_of,
    escape_invisible,
    hours_text,
    job_rows,
    number_text,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from jinja2 import Template

    from cloudgpu.views.documents.money.report import ReportDocument

MARK = "<!-- cloudgpu report -->"  # on the second line of each report: another file is never overwritten
MACHINES_SHOWN = 20  # machines of a table that is not folded


def to_html(document: ReportDocument) -> str:
    """Return the report as a page of its own. Every text of the document is shown as text, whatever it holds.

    Raises `jinja2.UndefinedError` or KeyError if the document lacks a key: a defect of cloudgpu.
    """
    from markupsafe import Markup

    amounts, zone_format = Amounts(document), ZoneFormat(document["tz"])
    charts = {
        "curve": page.curve_chart(document["comparison"], amounts, zone_format),
        "spend": page.spending_chart(document, amounts, zone_format),
        "hours": page.hours_chart(document, amounts),
    }
    return _template().render(
        doc=document,
        amount=amounts,
        said=amounts.prose,
        time=zone_format,
        day=zone_format.day,
        last_day=zone_format.last_day,
        first=_first_day(document, zone_format),
        last=_final_day(document, zone_format),
        rate=amounts.rate,
        unit=amounts.unit,
        charts=charts,
        svg={name: Markup(chart.svg) for name, chart in charts.items()},  # noqa: S704  (escaped as it was made)
        jobs=job_rows(document["jobs"], MACHINES_SHOWN),
        shares=page.project_shares(document["projects"]),
        monthly=page.monthly_idle_cost(document["idle_resources"]),
        folded=len(document["machines"]) > MACHINES_SHOWN,
    )


def _first_day(document: ReportDocument, zone_format: ZoneFormat) -> str | None:
    """Return the first day of the report; None where nothing was ever launched."""
    since = document["since"] or document["about"]["since"]
    return None if since is None else zone_format.day(since)


def _final_day(document: ReportDocument, zone_format: ZoneFormat) -> str:
    """Return its last day: the end of the period is not in it."""
    until = document["until"]
    return (
        zone_format.day(document["as_of"])
        if until is None or until > document["as_of"]
        else zone_format.last_day(until)
    )


@cache
def _template() -> Template:
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, finalize=_html_value, trim_blocks=True, lstrip_blocks=True
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
    return files("cloudgpu.views.report").joinpath(name).read_text("utf-8")


def _is_positive(amount: str | None) -> bool:
    return amount is not None and Decimal(amount) > 0


def _html_value(value: object) -> object:
    """Return `not known` for None, and a text with its invisible characters shown; SVG and escaped HTML stay."""
    if value is None:
        return NOT_KNOWN
    if isinstance(value, str) and not hasattr(value, "__html__"):
        return escape_invisible(value)
    return value


@dataclass(frozen=True, slots=True)
class ReportMessage:
    """A report that is sent. `file` is the name of the attached file.

    `text` refers to that file; `text_without_file` says how to make it.
    """

    subject: str
    file: str
    text: str
    text_without_file: str


def report_message(document: ReportDocument, zone: tzinfo) -> ReportMessage:
    """Return the message for a report's document, with days in `zone`."""
    since, until = (None if at is None else from_iso(at) for at in (document["since"], document["until"]))
    as_of = from_iso(document["as_of"]).astimezone(zone).date()
    file = file_name(document, zone)
    subject = f"cloudgpu: report {_period_text(since, until, as_of, zone)}: {amount_text(document)}"
    sentences = [one_line(sentence) for sentence in document["summary"]]
    file_note = f"The whole report is in the file {file}, which a browser shows, where this service takes files."
    command = f"cloudgpu report{_options(since, until, zone)}"
    return ReportMessage(
        subject,
        file,
        "\n\n".join([*sentences, f"{file_note} To make it again: {command}"]),
        "\n\n".join([*sentences, f"The whole report, as a page for a browser: {command}"]),
    )


def file_name(document: ReportDocument, zone: tzinfo) -> str:
    """Return the file name of a report: with its month, else with the day on which it was made."""
    times = (document["since"], document["until"], document["as_of"])
    since, until, as_of = (None if at is None else from_iso(at) for at in times)
    month = whole_month(since, until, zone)
    return f"cloudgpu-report-{month_name(month, zone) if month else _day(as_of, zone)}.html"


def amount_text(document: ReportDocument) -> str:
    """Return the total for a subject line, in the report's currency; `at least` that where a price is missing."""
    total, exchange_rate = document["total"], document["currency"]
    if total["usd"] is None:
        return "no price is known"
    amount = Money.usd(Decimal(total["usd"]))
    at_least = "at least " if total["without_price"] else ""
    if exchange_rate is None:
        return at_least + amount.text(2 if amount >= Money.usd(SMALL_TOTAL) or not amount else 4)
    return f"{at_least}{currency_of(exchange_rate).text(amount)} {exchange_rate['code']}"


def _period_text(since: datetime | None, until: datetime | None, as_of: date, zone: tzinfo) -> str:
    month = whole_month(since, until, zone)
    if month is not None:
        return f"of {month_name(month, zone)}"
    first, last = _day(since, zone), _last_day(until, zone) or as_of
    return f"up to {last}" if first is None else f"of {first} to {last}"


def _options(since: datetime | None, until: datetime | None, zone: tzinfo) -> str:
    month = whole_month(since, until, zone)
    if month is not None:
        return f" --month {month_name(month, zone)}"
    times_by_option = (("--since", since), ("--until", until))
    return "".join(
        f" {option} {at.astimezone(zone):%Y-%m-%dT%H:%M}" for option, at in times_by_option if at is not None
    )


def _day(at: datetime | None, zone: tzinfo) -> date | None:
    return None if at is None else at.astimezone(zone).date()


def _last_day(until: datetime | None, zone: tzinfo) -> date | None:
    return None if until is None else _day(until - timedelta(microseconds=1), zone)
