"""The report as Markdown, made from its document alone: the summary, then tables. Markup in a text is escaped."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Literal

from cloudgpu.core.values.naming import counted
from cloudgpu.views.report.formatting import (
    NOT_KNOWN,
    Amounts,
    ZoneFormat,
    escape_invisible,
    hours_text,
    job_rows,
    number_text,
)

if TYPE_CHECKING:
    from cloudgpu.views.documents.money.cost import CostSum, Projection
    from cloudgpu.views.documents.money.report import OwnerSum, ProjectSum, ReportDocument, ReportMachine

CaseName = Literal["low", "expected", "high"]
MARK = "<!-- cloudgpu report -->"  # the first line: another file is never overwritten
MAX_DAYS = 62  # days that are listed; for more, months are
MAX_ROWS = 20  # of machines or jobs; the others are one row, or counted
NO_NAME = "(none)"
_MARKUP = re.compile(r"([\\`*_{}\[\]<>|~#&])|(?<=http)(:)|(?<=https)(:)|(?<=www)(\.)", re.IGNORECASE)


def to_markdown(document: ReportDocument) -> str:
    """Return the report as Markdown with tables, as GitHub and most other readers support it."""
    amounts, zone_format = Amounts(document), ZoneFormat(document["tz"])
    parts = [
        MARK,
        *_heading_lines(document, amounts, zone_format),
        *_comparison_lines(document, amounts, zone_format),
        *_spending_lines(document, amounts),
        *_budget_lines(document, amounts, zone_format),
        *_job_lines(document, amounts),
        *_machine_lines(document, amounts),
        *_savings_lines(document, amounts),
        *_idle_cost_lines(document, amounts, zone_format),
        *_price_age_lines(document),
        *_assumption_lines(document),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def escaped(text: str) -> str:
    """Return a text so that Markdown shows it literally: no markup, no link, no HTML, on one line."""
    return _MARKUP.sub(lambda match: f"\\{match[0]}", escape_invisible(text))


def _heading_lines(document: ReportDocument, amounts: Amounts, zone_format: ZoneFormat) -> Iterator[str]:
    yield "# Cloud GPU report"
    since = document["since"] or document["about"]["since"]
    period_text = f"From {zone_format(since)}" if since else "Of all time"
    until = f" until {zone_format(document['until'])}" if document["until"] else ""
    yield (
        f"{period_text}{until}, as of {zone_format(document['as_of'])} ({escaped(document['tz'])}). "
        f"Amounts in {escaped(amounts.rate)}."
    )
    yield "\n".join(f"- {escaped(sentence)}" for sentence in document["summary"])


def _comparison_lines(document: ReportDocument, amounts: Amounts, zone_format: ZoneFormat) -> Iterator[str]:
    comparison = document["comparison"]
    yield "## Cloud or desktop"
    owned = comparison["owned"]
    if comparison["sentence"] and comparison["sentence"] not in document["summary"]:
        yield escaped(comparison["sentence"])
    elif not owned:
        yield "There is nothing to compare yet."
    if not owned:
        return
    cloud = comparison["cloud"]
    cases: tuple[CaseName, ...] = ("low", "expected", "high")
    rows = [
        ["the cloud", *(amounts(amount) for amount in (cloud["low_usd"], cloud["usd"], cloud["high_usd"]))],
        ["the desktop", *(amounts(owned[case]["total_usd"]) for case in cases)],
        ["of it electricity", *(amounts(owned[case]["electricity_usd"]) for case in cases)],
        ["desktop hours at work", *(number_text(owned[case]["hours"]) for case in cases)],
        ["break-even", *(_break_even_date(document, case, zone_format) for case in cases)],
    ]
    yield _table(["", "best for the cloud", "expected", "best for the desktop"], rows, right_aligned=3)
    desktop = comparison["desktop"]
    yield (
        f"The desktop: {escaped(desktop['name'])}, {desktop['gpus']} x {escaped(desktop['gpu'])}, "
        f"{amounts.prose(desktop['purchase_usd'])} ({escaped(desktop['source'])}, {desktop['as_of']})."
    )


def _break_even_date(document: ReportDocument, case: CaseName, zone_format: ZoneFormat) -> str:
    """Return the day of the break-even, projected or past, as the page shows it."""
    comparison = document["comparison"]
    since, projected = (
        cases[case]
        for cases in (comparison["break_even"]["cloud_costs_more_since"], comparison["break_even"]["projected"])
    )
    if projected is not None:
        return zone_format.day(projected)
    if since is not None:
        return zone_format.last_day(since)
    if comparison["pace"] is not None and comparison["pace"][case] is not None:
        return "never"
    until = document["until"]
    return "not by then" if until is not None and until <= document["as_of"] else NOT_KNOWN


def _spending_lines(document: ReportDocument, amounts: Amounts) -> Iterator[str]:
    if not document["projects"]:
        return
    yield "## Spent"
    rows = [[project["name"] or NO_NAME, *_amount_and_bounds(project, amounts)] for project in document["projects"]]
    rows.append(["in all", *_amount_and_bounds(document["total"], amounts)])
    yield _table(["project", "cost", "at least", "at most"], rows, right_aligned=3)
    if len(document["owners"]) > 1:
        owner_rows = [[owner["name"] or NO_NAME, *_amount_and_bounds(owner, amounts)] for owner in document["owners"]]
        yield _table(["owner", "cost", "at least", "at most"], owner_rows, right_aligned=3)
    step, days = _days_or_months(document)
    yield _table([step, "cost"], [[day, amounts(amount)] for day, amount in days], right_aligned=1)


def _days_or_months(document: ReportDocument) -> tuple[str, list[tuple[str, str]]]:
    days = [(entry["day"], entry["usd"]) for entry in document["days"]]
    if document["step"] == "month" or len(days) <= MAX_DAYS:
        return document["step"], days
    months: dict[str, Decimal] = {}
    for day, amount in days:
        months[day[:7]] = months.get(day[:7], Decimal(0)) + Decimal(amount)
    return "month", [(month, f"{amount:f}") for month, amount in months.items()]


def _budget_lines(document: ReportDocument, amounts: Amounts, zone_format: ZoneFormat) -> Iterator[str]:
    yield "## Budgets and what still costs money"
    rows = [
        [
            budget["name"],
            amounts(budget["limit_usd"]),
            amounts(budget["remaining_usd"]),
            zone_format(budget["exhausted_at"]) if budget["exhausted_at"] else "not in its period",
        ]
        for budget in document["budgets"]
    ]
    yield (
        _table(["budget", "limit", "left", "empty at this rate"], rows, right_aligned=2)
        if rows
        else "There is no budget."
    )
    burn, projected = document["burn"], document["projected"]
    if not Decimal(burn["usd_per_hour"]):
        return
    at_least = "at least " if burn["without_price"] else ""
    yield f"Now it costs {at_least}{amounts.prose(burn['usd_per_hour'], 2)} an hour."
    if projected is not None:
        projections = ((projected["end_of_day"], "day"), (projected["end_of_month"], "month"))
        rows = [
            [f"at the end of the {period}", *_amount_and_bounds(projection, amounts)]
            for projection, period in projections
        ]
        yield _table(["the sum", "expected", "at least", "at most"], rows, right_aligned=3)
        yield escaped(projected["assumption"])


def _job_lines(document: ReportDocument, amounts: Amounts) -> Iterator[str]:
    if document["jobs"]:
        yield "## Jobs"
        rows = [
            [job_row.name, job_row.state, hours_text(job_row.seconds), amounts(job_row.usd)]
            for job_row in job_rows(document["jobs"], MAX_ROWS)
        ]
        rows.append(["in all", "", "", amounts(document["total"]["usd"])])
        yield _table(["job", "state", "hours", "cost"], rows, right_aligned=2)


def _machine_lines(document: ReportDocument, amounts: Amounts) -> Iterator[str]:
    machines = document["machines"]
    yield "## Machines"
    if not machines:
        yield "No machine has cost anything."
        return
    rows = [
        [
            machine["name"] or machine["id"],
            machine["gpu"] or "no GPU",
            machine["provider"],
            amounts(machine["usd"]),
            *_hours_by_use(machine),
        ]
        for machine in machines[:MAX_ROWS]
    ]
    unlisted = len(machines) - MAX_ROWS + document["machines_left_out"]
    yield _table(["machine", "GPU", "where", "cost", *_HOURS_HEADERS], rows, right_aligned=6)
    if unlisted > 0:
        yield f"And {unlisted} more, each of which cost less."
    if document["named_resources"]["number"]:
        yield f"Named volumes and images cost {amounts.prose(document['named_resources']['usd'])} in all."


_HOURS_HEADERS = ("hours", "GPU work", "other use", "idle", "not known")


def _hours_by_use(machine: ReportMachine) -> list[str]:
    return [
        hours_text(seconds)
        for seconds in (
            machine["billed_s"],
            machine["gpu_s"],
            machine["used_s"],
            machine["idle_s"],
            machine["unknown_s"],
        )
    ]


def _savings_lines(document: ReportDocument, amounts: Amounts) -> Iterator[str]:
    if not document["machines"]:
        return
    idle, stops, spot = document["idle"], document["savings"]["stops"], document["savings"]["spot"]
    yield "## Idle, and saved"
    rows = [
        ["went into idle time", amounts(idle["usd"]), f"{number_text(idle['hours'])} hours"],
        [
            "the same, were all that is not known idle",
            amounts(idle["high_usd"]),
            f"{number_text(idle['unknown_hours'])} hours",
        ],
        ["saved at most by ends by rules", amounts(stops["usd"]), counted(stops["number"], "end")],
    ]
    if spot["usd"] is not None:
        rows.append(["spot machines, less than on demand", amounts(spot["usd"]), amounts(spot["on_demand_usd"])])
    yield _table(["", "amount", "of"], rows, right_aligned=2)
    yield escaped(stops["rule"]) if stops["number"] else ""


def _idle_cost_lines(document: ReportDocument, amounts: Amounts, zone_format: ZoneFormat) -> Iterator[str]:
    if document["idle_resources"]:
        yield "## What still costs money without a running machine"
        rows = [
            [
                idle_resource["name"] or "",
                idle_resource["kind"],
                idle_resource["provider"],
                amounts(idle_resource["usd_per_month"]),
                zone_format.day(idle_resource["since"]),
                idle_resource["why"],
            ]
            for idle_resource in document["idle_resources"]
        ]
        yield _table(["of", "what", "where", "a month", "since", "why"], rows, right_aligned=0)


def _price_age_lines(document: ReportDocument) -> Iterator[str]:
    if document["prices"]:
        yield "## Ages of listed prices"
        rows = [
            [
                price["provider"],
                price["newest"],
                price["oldest"],
                (price["refreshed_at"] or "never")[:10],
                f"{price['old']} of {price['items']}",
            ]
            for price in document["prices"]
        ]
        yield _table(["list of", "newest", "oldest", "refreshed", "older than 180 days"], rows, right_aligned=0)


def _assumption_lines(document: ReportDocument) -> Iterator[str]:
    lines = [f"Without a price, and in no sum: {name}." for name in document["unpriced"]]
    for gap in document["unmetered"]:
        until = f" until {gap['until'][:10]}" if gap["until"] else ""
        lines.append(f"Bytes out of {gap['name']} are not counted since {gap['since'][:10]}{until}.")
    lines += document["comparison"]["assumptions"]
    if lines:
        yield "## What this rests on"
        yield "\n".join(f"- {escaped(line)}" for line in dict.fromkeys(lines))


def _amount_and_bounds(costs: ProjectSum | OwnerSum | CostSum | Projection, amounts: Amounts) -> list[str]:
    return [amounts(amount) for amount in (costs["usd"], costs["low_usd"], costs["high_usd"])]


def _table(headers: Sequence[str], rows: Sequence[Sequence[str]], *, right_aligned: int) -> str:
    """Return a table; the last `right_aligned` columns hold numbers."""
    separators = ["---" if column < len(headers) - right_aligned else "---:" for column in range(len(headers))]
    lines = [headers, separators, *([escaped(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
