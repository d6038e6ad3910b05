"""The charts and key figures of the report's page, made from its document alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from cloudgpu.core.values.naming import counted
from cloudgpu.views.report.charts import (
    ACTIVITIES,
    BreakEvenDay,
    Layer,
    MachineBar,
    Point,
    Step,
    cost_curves,
    machine_bars,
    spending_bars,
)
from cloudgpu.views.report.formatting import Amounts, ZoneFormat, escape_invisible, hours_text
from cloudgpu.views.report.svg import day_text

if TYPE_CHECKING:
    from cloudgpu.views.documents.money.compare import BreakEven, ComparedDay, CompareDocument
    from cloudgpu.views.documents.money.cost import BudgetForecast
    from cloudgpu.views.documents.money.report import IdleResource, ProjectSum, ReportDay, ReportDocument, ReportMachine

MAX_PROJECTS = 8  # with a colour of their own; further ones are one layer
MAX_BARS = 120  # days with a bar each
MAX_MACHINES = 20  # with a bar
MAX_ROWS = 62  # days in a curve's table; for a longer time it has the ends of months
NO_PROJECT = "no project"
CASES = ("low", "expected", "high")


class LegendEntry(NamedTuple):
    """An entry of a chart's legend: its CSS class, its name, and the value beside the name."""

    css_class: str
    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart with its legend, and its values as a table."""

    svg: str
    legend: Sequence[LegendEntry] = ()
    bar_unit: str = ""  # the period of each bar; where bars are machines, how many there are
    head: Sequence[str] = ()  # of the table's columns
    rows: Sequence[Sequence[str]] = ()


def spending_chart(document: ReportDocument, amounts: Amounts, zone_format: ZoneFormat) -> Chart:
    """Return what each period cost, by project: the most expensive ones and the others; the table has all days."""
    days = document["days"]
    names, other_names = _projects_of_layers(document)
    step, periods = _periods([(zone_format.date(day["day"]), day["projects"]) for day in days], document["step"])
    all_names = (*names, *other_names)
    sums_by_period = [
        [sum(map(amounts.to_float, sums.get(name, ()))) for name in all_names] for sums in periods.values()
    ]
    layers = [
        Layer(escape_invisible(name or NO_PROJECT), [period_sums[index] for period_sums in sums_by_period])
        for index, name in enumerate(names)
    ]
    if other_names:
        layers.append(
            Layer(f"{len(other_names)} others", [sum(period_sums[len(names) :]) for period_sums in sums_by_period])
        )
    description = f"Bars of {counted(len(periods), step)}, in {amounts.unit}. The same is in the table below the chart."
    svg = spending_bars(list(periods), layers, f"Spending per {step} by project", description, step=step)
    rows = [_spending_row(day, names, other_names, amounts, zone_format) for day in days]
    head = [document["step"].capitalize(), "In all", *(layer.name for layer in layers)]
    return Chart(svg, _spending_legend(document, names, other_names, amounts), step, head, rows)


def _periods(
    days: Sequence[tuple[date, Mapping[str, str]]], step: Step
) -> tuple[Step, dict[date, dict[str, list[str]]]]:
    """Return the periods that have a bar, with each project's amounts: weeks, if there are too many days."""
    if step == "day" and days and (days[-1][0] - days[0][0]).days >= MAX_BARS:
        step, days = "week", [(day - timedelta(days=day.weekday()), projects) for day, projects in days]
    periods: dict[date, dict[str, list[str]]] = {}
    for begin, projects in days:
        period = periods.setdefault(begin, {})
        for name, usd in projects.items():
            period.setdefault(name, []).append(usd)
    return step, periods


def _projects_of_layers(document: ReportDocument) -> tuple[list[str], list[str]]:
    """Return the projects with a layer of their own, the most expensive first, and the others."""
    names = [project["name"] for project in document["projects"]]
    listed = set(names)
    names += sorted({name for day in document["days"] for name in day["projects"]} - listed)
    layer_count = len(names) if len(names) <= MAX_PROJECTS + 1 else MAX_PROJECTS
    return names[:layer_count], names[layer_count:]


def _spending_row(
    day: ReportDay, names: Sequence[str], other_names: Sequence[str], amounts: Amounts, zone_format: ZoneFormat
) -> list[str]:
    cells = [amounts(day["projects"].get(name, "0")) for name in names]
    if other_names:
        cells.append(amounts(_sum(day["projects"].get(name) for name in other_names)))
    day_label = day["day"][:7] if len(day["day"]) < len("2026-11-01") else day_text(zone_format.date(day["day"]))
    return [day_label, amounts(day["usd"]), *cells]


def _spending_legend(
    document: ReportDocument, names: Sequence[str], other_names: Sequence[str], amounts: Amounts
) -> list[LegendEntry]:
    sums = {project["name"]: project["usd"] for project in document["projects"]}
    entries = [
        LegendEntry(f"p{number}", name or NO_PROJECT, amounts(sums.get(name))) for number, name in enumerate(names, 1)
    ]
    if other_names:
        total = amounts(_sum(sums.get(name) for name in other_names))
        entries.append(LegendEntry(f"p{len(names) + 1}", f"{len(other_names)} others", total))
    return entries


def _sum(texts: Iterable[str | None]) -> str:
    """Return the exact sum of decimal texts; missing ones are skipped."""
    return f"{sum((Decimal(text) for text in texts if text), Decimal(0)):f}"


def curve_chart(compare: CompareDocument, amounts: Amounts, zone_format: ZoneFormat) -> Chart:
    """Return what cloud and desktop had cost day by day, with the break-even point where there is one."""
    days = [point for point in compare["curve"] if point["cloud_usd"] is not None]
    points = [
        Point(zone_format.date(day["day"]), amounts.to_float(day["cloud_usd"]), amounts.to_float(day["desktop_usd"]))
        for day in days
    ]
    if not points:
        return Chart("")
    break_even_day = _break_even_date(compare["break_even"], zone_format)
    last = days[-1]
    description = (
        f"Two curves from {day_text(points[0].day)} to {day_text(points[-1].day)}. The cloud ends at "
        f"{amounts.prose(last['cloud_usd'])}, the desktop at {amounts.prose(last['desktop_usd'])}. "
        f"{_met_text(break_even_day)}"
    )
    legend = [
        LegendEntry("k-cloud", "Cloud", amounts(last["cloud_usd"])),
        LegendEntry("k-desktop", "Desktop", amounts(last["desktop_usd"])),
    ]
    svg = cost_curves(points, break_even_day, "Cloud and desktop: what they have cost in all", description)
    rows = [
        [day_text(zone_format.date(day["day"])), amounts(day["cloud_usd"]), amounts(day["desktop_usd"])]
        for day in (days if len(days) <= MAX_ROWS else _month_ends(days))
    ]
    return Chart(svg, legend, "day", ["At the end of", "Cloud", "Desktop"], rows)


def _break_even_date(break_even: BreakEven, zone_format: ZoneFormat) -> BreakEvenDay | None:
    """Return the day of the projected break-even, or the last day of a past one, as `compare` says it."""
    since, projected = (cases["expected"] for cases in (break_even["cloud_costs_more_since"], break_even["projected"]))
    if projected is not None:
        return BreakEvenDay(zone_format.date(projected), projected=True)
    return None if since is None else BreakEvenDay(zone_format.last_date(since), projected=False)


def _met_text(break_even_day: BreakEvenDay | None) -> str:
    if break_even_day is None:
        return "They do not meet."
    return f"They {'would meet about' if break_even_day.projected else 'met on'} {day_text(break_even_day.day)}."


def _month_ends(days: Sequence[ComparedDay]) -> list[ComparedDay]:
    ends = [day for day, next_day in pairwise(days) if day["day"][:7] != next_day["day"][:7]]
    return [*ends, days[-1]]


def hours_chart(document: ReportDocument, amounts: Amounts) -> Chart:
    """Return a bar for each of the most expensive machines that were billed."""
    machines = [machine for machine in document["machines"] if machine["billed_s"]][:MAX_MACHINES]
    bars = [_bar(machine, amounts) for machine in machines]
    description = f"One bar for each of {len(bars)} machines, the most expensive first, as long as its billed time."
    sums = [sum(bar.seconds[index] for bar in bars) for index in range(4)]
    names = ("GPU busy", "in use otherwise", "idle", "not known")
    legend = [
        LegendEntry(f"p-{activity}", name, f"{hours_text(seconds)} h")
        for activity, name, seconds in zip(ACTIVITIES, names, sums, strict=True)
    ]
    return Chart(
        machine_bars(bars, "Machines: what was done in their billed hours", description), legend, f"{len(bars)}"
    )


def _bar(machine: ReportMachine, amounts: Amounts) -> MachineBar:
    seconds = machine["gpu_s"], machine["used_s"], machine["idle_s"], machine["unknown_s"]
    name = escape_invisible(machine["name"] or "")
    tooltip = "GPU busy {} h, in use otherwise {} h, idle {} h, not known {} h".format(*map(hours_text, seconds))
    label = f"{hours_text(machine['billed_s'])} h · {amounts.prose(machine['usd'])}"
    return MachineBar(name, label, seconds, f"{name}: {tooltip}")


def project_shares(projects: Sequence[ProjectSum]) -> dict[str, float]:
    """Return each project's share of the total, for its bar."""
    total = sum(float(project["usd"]) for project in projects if project["usd"])
    return {
        project["name"]: float(project["usd"]) / total if project["usd"] and total > 0 else 0.0 for project in projects
    }


def monthly_idle_cost(idle: Sequence[IdleResource]) -> tuple[str, int]:
    """Return the monthly cost of idle resources with a known price, and the number of those without one."""
    prices = [resource["usd_per_month"] for resource in idle]
    return _sum(prices), prices.count(None)


def spent_share(budget: BudgetForecast) -> float | None:
    """Return the share of a budget that is spent; None for a limit of 0."""
    limit = Decimal(budget["limit_usd"])
    return float((limit - Decimal(budget["remaining_usd"])) / limit) if limit > 0 else None
