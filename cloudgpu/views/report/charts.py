"""The report's three charts as SVG: cloud against desktop, what each day cost, and what machines did with their hours.

They are as wide as the page. Amounts are floats, which are exact enough for pixels. Text is never stretched.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Literal

from cloudgpu.views.report.svg import axis_amounts, axis_dates, axis_levels, chart_svg, day_text, escaped, percent, tag

WIDTH = 1000  # units, which are stretched to the page's width
HEIGHT = 220  # pixels from the lowest to the highest grid line
TOP, FOOT = 20, 26  # pixels above and below the grid, for labels
END_MARK = 6  # pixels by which a mark at the right end may overlap the margin
ROW_HEIGHT = 38  # pixels for one machine
BAR_HEIGHT = 12  # pixels
DIGIT_WIDTH = 6.9  # pixels that a digit of an axis is wide, at most
MAX_NAME = 24  # characters of a machine's name above its bar
MIN_WIDTH = 260  # pixels of a chart on a telephone
MAX_POINTS = 400  # of a curve
FEW_BARS = 31  # up to here, labels stand below the middle of a bar
Step = Literal["day", "week", "month"]
ACTIVITIES = ("busy", "used", "idle", "unknown")


@dataclass(frozen=True, slots=True)
class Layer:
    """What one project cost in each period, as floats: one colour and pattern of a bar."""

    name: str
    values: Sequence[float]


@dataclass(frozen=True, slots=True)
class Point:
    """What cloud and desktop had cost at the end of a day."""

    day: date
    cloud: float
    desktop: float


@dataclass(frozen=True, slots=True)
class BreakEvenDay:
    """The day on which the cloud has cost as much as the desktop; `projected`: it is still to come."""

    day: date
    projected: bool


@dataclass(frozen=True, slots=True)
class MachineBar:
    """A machine's billed seconds by activity, and the text beside its bar."""

    name: str
    label: str
    seconds: tuple[float, float, float, float]  # in the order of ACTIVITIES
    tooltip: str


def spending_bars(
    first_days: Sequence[date], layers: Sequence[Layer], title: str, description: str, *, step: Step
) -> str:
    """Return stacked bars, one for each period that begins on one of `first_days`; the first layer is at the bottom.

    Empty without a period.
    """
    if not first_days:
        return ""
    first, period_count = first_days[0], _period_index(first_days[0], first_days[-1], step) + 1
    totals = [sum(values) for values in zip(*(layer.values for layer in layers), strict=True)]
    grid_lines = axis_levels(max(totals, default=0.0))
    slot_width = WIDTH / period_count
    bar_width = min(slot_width * 0.8, 60.0)
    left_edges = [_period_index(first, day, step) * slot_width + (slot_width - bar_width) / 2 for day in first_days]
    is_centred = (
        step == "month" or period_count <= FEW_BARS
    )  # then a day stands below its bar, else where its bar begins
    labels = axis_dates(first, first_days[-1])
    ticks = [((_period_index(first, day, step) + is_centred / 2) / period_count, text) for day, text in labels]
    paths = _stacked_paths(layers, left_edges, bar_width, HEIGHT / grid_lines[-1])
    return _with_axes("spend", title, description, grid_lines, ticks, _stretched_svg(*paths), is_centred=is_centred)


def _period_index(first: date, day: date, step: Step) -> int:
    """Return how many periods after the first one a day is."""
    if step == "month":
        return (day.year - first.year) * 12 + day.month - first.month
    return (day - first).days // (7 if step == "week" else 1)


def _stacked_paths(layers: Sequence[Layer], left_edges: Sequence[float], bar_width: float, scale: float) -> list[str]:
    """Return one path per layer: all of its bars."""
    bar_tops = [0.0] * len(left_edges)
    paths = []
    for number, layer in enumerate(layers, 1):
        commands = []
        for index, (left, value) in enumerate(zip(left_edges, layer.values, strict=True)):
            height = value * scale
            if height <= 0:
                continue
            gap = 0.8 if bar_tops[index] and height > 2 else 0.0  # noqa: PLR2004  (a line of the page between two)
            bottom = HEIGHT - bar_tops[index] - gap
            commands.append(f"M{left:.1f} {bottom:.1f}h{bar_width:.1f}v-{height - gap:.1f}h-{bar_width:.1f}z")
            bar_tops[index] += height
        paths.append(tag("path", tag("title", escaped(layer.name)), class_=f"layer p{number}", d="".join(commands)))
    return paths


def cost_curves(points: Sequence[Point], break_even_day: BreakEvenDay | None, title: str, description: str) -> str:
    """Return both curves from the first to the last day, and the break-even; empty for less than two days.

    A projected break-even that is further away than the curves are long is not drawn.
    """
    if len(points) < 2:  # noqa: PLR2004
        return ""
    drawn_points = _fewer_points(points)
    first, last = drawn_points[0].day, drawn_points[-1].day
    if break_even_day is not None and (
        break_even_day.day < first or break_even_day.day - last > max(last - first, timedelta(days=30))
    ):
        break_even_day = None
    break_even = None if break_even_day is None else _break_even_point(drawn_points, break_even_day)
    end = last if break_even_day is None else max(last, break_even_day.day)
    day_count = max(1, (end - first).days)
    grid_lines = axis_levels(
        max(max(point.cloud, point.desktop) for point in (*drawn_points, *([break_even] if break_even else ())))
    )
    scale = _Scale(first, day_count, HEIGHT / grid_lines[-1])
    parts = [*_curves(drawn_points, break_even if break_even_day and break_even_day.projected else None, scale)]
    ticks = [((day - first).days / day_count, text) for day, text in axis_dates(first, end)]
    marks = (
        _point_marks(break_even, scale, projected=break_even_day.projected)
        if break_even_day is not None and break_even is not None
        else ()
    )
    return _with_axes("curve", title, description, grid_lines, ticks, _stretched_svg(*parts), *marks)


@dataclass(frozen=True, slots=True)
class _Scale:
    """Where a day (as a share of the width) and an amount (in pixels from the top) are in a chart."""

    first: date
    days: int
    pixels_per_unit: float

    def width_share(self, day: date) -> float:
        return (day - self.first).days / self.days

    def pixels_down(self, amount: float) -> float:
        return HEIGHT - amount * self.pixels_per_unit

    def path(self, points: Sequence[tuple[date, float]]) -> str:
        return "M" + "L".join(
            f"{self.width_share(day) * WIDTH:.1f} {self.pixels_down(amount):.1f}" for day, amount in points
        )


def _fewer_points(points: Sequence[Point]) -> Sequence[Point]:
    step = -(-len(points) // MAX_POINTS)
    return points if step == 1 else [*points[:-1:step], points[-1]]


def _break_even_point(points: Sequence[Point], break_even_day: BreakEvenDay) -> Point:
    """Return the break-even point on the desktop's curve; a future one is extrapolated from the last month."""
    last = points[-1]
    if break_even_day.day <= last.day:
        next_point = points[bisect_left(points, break_even_day.day, key=lambda point: point.day)]
        return Point(break_even_day.day, next_point.desktop, next_point.desktop)
    month_earlier = points[max(0, bisect_left(points, last.day - timedelta(days=30), key=lambda point: point.day))]
    days = (last.day - month_earlier.day).days
    cost_per_day = (last.desktop - month_earlier.desktop) / days if days else 0.0
    amount = last.desktop + max(0.0, cost_per_day) * (break_even_day.day - last.day).days
    return Point(break_even_day.day, amount, amount)


def _curves(points: Sequence[Point], projected_point: Point | None, scale: _Scale) -> list[str]:
    cloud = [(point.day, point.cloud) for point in points]
    desktop = [(point.day, point.desktop) for point in points]
    lines = [("cloud", cloud), ("desktop", desktop)]
    if projected_point is not None:
        end = (projected_point.day, projected_point.cloud)
        lines += [("cloud to-come", [cloud[-1], end]), ("desktop to-come", [desktop[-1], end])]
    return [tag("path", class_=f"line {css_class}", d=scale.path(curve)) for css_class, curve in lines]


def _point_marks(break_even: Point, scale: _Scale, *, projected: bool) -> tuple[str, ...]:
    share, y = scale.width_share(break_even.day), TOP + scale.pixels_down(break_even.desktop)
    x = percent(share)
    is_left = share < 0.5  # noqa: PLR2004  (the words stand where there is more room)
    text = f"Break-even {'about ' if projected else ''}{day_text(break_even.day)}"
    return (
        tag("line", class_="meets", x1=x, x2=x, y1=TOP, y2=TOP + HEIGHT),
        tag("circle", class_="meets", cx=x, cy=f"{y:.1f}", r=5),
        tag("text", escaped(text), class_="said", x=x, dx=6 if is_left else -6, y=TOP - 7,
            text_anchor="start" if is_left else "end"),
    )  # fmt: skip


def machine_bars(machines: Sequence[MachineBar], title: str, description: str) -> str:
    """Return one bar per machine, as long as it was billed, by what was done in that time."""
    if not machines:
        return ""
    longest = max(sum(bar.seconds) for bar in machines) or 1.0
    rows = [
        element
        for number, machine_bar in enumerate(machines)
        for element in _hours_row(machine_bar, number * ROW_HEIGHT, longest)
    ]
    return chart_svg("hours", title, description, *rows, height=len(machines) * ROW_HEIGHT)


def _hours_row(bar: MachineBar, top: int, longest: float) -> list[str]:
    name = bar.name if len(bar.name) <= MAX_NAME else bar.name[: MAX_NAME - 1] + "…"
    parts = [
        tag("text", escaped(name), x=0, y=top + 14),
        tag("text", escaped(bar.label), class_="value", x="100%", y=top + 14, text_anchor="end"),
    ]
    seconds_before = 0.0
    for activity, seconds in zip(ACTIVITIES, bar.seconds, strict=True):
        if seconds > 0:
            position = {"x": percent(seconds_before / longest), "width": percent(seconds / longest)}
            parts.append(tag("rect", class_=f"p-{activity}", y=top + 20, height=BAR_HEIGHT, **position))
            seconds_before += seconds
    return [tag("g", tag("title", escaped(bar.tooltip)), *parts)]


def _stretched_svg(*parts: str) -> str:
    """Return parts that are drawn in units of WIDTH and HEIGHT, stretched to the chart's width."""
    return tag(
        "svg", *parts, x=0, y=TOP, width="100%", height=HEIGHT, viewBox=f"0 0 {WIDTH} {HEIGHT}",
        preserveAspectRatio="none", overflow="visible",
    )  # fmt: skip


def _with_axes(
    name: str,
    title: str,
    description: str,
    grid_lines: tuple[float, ...],
    ticks: Sequence[tuple[float, str]],
    *parts: str,
    is_centred: bool = False,
) -> str:
    """Return a chart's parts on labelled grid lines; labels of days are centred at their ticks, or right of them."""
    texts = axis_amounts(grid_lines)
    grid_parts = []
    for level, text in zip(grid_lines, texts, strict=True):
        y = TOP + HEIGHT - level / grid_lines[-1] * HEIGHT
        grid_parts.append(
            tag("line", class_="grid" if level else "base", x1=0, x2="100%", y1=f"{y:.1f}", y2=f"{y:.1f}")
        )
        grid_parts.append(tag("text", escaped(text), class_="axis", x=-8, y=f"{y + 4:.1f}", text_anchor="end"))
    label_parts = []
    for share, text in ticks:
        x = percent(share)
        label_parts.append(tag("line", class_="base", x1=x, x2=x, y1=TOP + HEIGHT, y2=TOP + HEIGHT + 5))
        if is_centred or share + len(text) * DIGIT_WIDTH / MIN_WIDTH <= 1:  # else the words would not fit
            anchor = "middle" if is_centred else None
            label_parts.append(tag("text", escaped(text), class_="axis", x=x, y=TOP + HEIGHT + 19, text_anchor=anchor))
    return chart_svg(
        name, title, description, *grid_parts, *parts, *label_parts,
        height=TOP + HEIGHT + FOOT, left=max(map(len, texts)) * DIGIT_WIDTH + 10, right=END_MARK,
    )  # fmt: skip
