"""The report's three charts as SVG: cloud against desktop, what each day cost, and what machines did with their hours.

They are as wide as the page and drawn in floats, which are exact enough for pixels. No text is in what is stretched.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Literal

from cloudgpu.views.report.svg import dates, day_text, escaped, figures, levels, percent, picture, tag

WIDTH = 1000  # units of what is stretched to the page's width
HEIGHT = 220  # pixels between the lowest and the highest line
TOP, FOOT = 20, 26  # pixels above and below that, for words
END_MARK = 6  # pixels that a mark at the very end stands out
ROW = 38  # pixels for one machine
BAR_HEIGHT = 12  # pixels
DIGIT_WIDTH = 6.9  # pixels that a digit of an axis is wide, at most
MAX_NAME = 24  # characters of a name beside a bar
NARROWEST = 260  # pixels of a chart on a telephone
MAX_POINTS = 400
FEW_BARS = 31
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
    """The day on which the cloud has cost as much; `projected`: if things go on as they are."""

    day: date
    projected: bool


@dataclass(frozen=True, slots=True)
class MachineBar:
    """A machine's billed seconds by activity, and the text beside its bar."""

    name: str
    label: str
    seconds: tuple[float, float, float, float]  # as ACTIVITIES has them
    tooltip: str


def spending_bars(begins: Sequence[date], layers: Sequence[Layer], title: str, description: str, *, step: Step) -> str:
    """Return bars, one for each period that begins on these days, the layers upon each other, the first at the bottom.

    Empty where there is no period.
    """
    if not begins:
        return ""
    first, number = begins[0], _place(begins[0], begins[-1], step) + 1
    totals = [sum(values) for values in zip(*(layer.values for layer in layers), strict=True)]
    lines = levels(max(totals, default=0.0))
    each = WIDTH / number
    wide = min(each * 0.8, 60.0)
    lefts = [_place(first, day, step) * each + (each - wide) / 2 for day in begins]
    few = step == "month" or number <= FEW_BARS  # then a day stands below its bar, else where its bar begins
    named = dates(first, begins[-1])
    ticks = [((_place(first, day, step) + few / 2) / number, text) for day, text in named]
    drawn = _stacked_paths(layers, lefts, wide, HEIGHT / lines[-1])
    return _with_axes("spend", title, description, lines, ticks, _stretched_svg(*drawn), middle=few)


def _place(first: date, day: date, step: Step) -> int:
    """Return how many periods after the first one a day is."""
    if step == "month":
        return (day.year - first.year) * 12 + day.month - first.month
    return (day - first).days // (7 if step == "week" else 1)


def _stacked_paths(layers: Sequence[Layer], lefts: Sequence[float], wide: float, scale: float) -> list[str]:
    """Return one path per layer: all of its bars."""
    reached = [0.0] * len(lefts)
    paths = []
    for number, layer in enumerate(layers, 1):
        steps = []
        for place, (left, value) in enumerate(zip(lefts, layer.values, strict=True)):
            high = value * scale
            if high <= 0:
                continue
            gap = 0.8 if reached[place] and high > 2 else 0.0  # noqa: PLR2004  (a line of the page between two)
            steps.append(f"M{left:.1f} {HEIGHT - reached[place] - gap:.1f}h{wide:.1f}v-{high - gap:.1f}h-{wide:.1f}z")
            reached[place] += high
        paths.append(tag("path", tag("title", escaped(layer.name)), class_=f"layer p{number}", d="".join(steps)))
    return paths


def cost_curves(points: Sequence[Point], meeting: BreakEvenDay | None, title: str, description: str) -> str:
    """Return both curves from the first to the last day, and where they meet; two days at least make a curve.

    A projected meeting that is further away than the curves are long is not drawn.
    """
    if len(points) < 2:  # noqa: PLR2004
        return ""
    points_drawn = _fewer_points(points)
    first, last = points_drawn[0].day, points_drawn[-1].day
    if meeting is not None and (meeting.day < first or meeting.day - last > max(last - first, timedelta(days=30))):
        meeting = None
    met = None if meeting is None else _break_even_point(points_drawn, meeting)
    end = last if meeting is None else max(last, meeting.day)
    span = max(1, (end - first).days)
    lines = levels(max(max(one.cloud, one.desktop) for one in (*points_drawn, *([met] if met else ()))))
    place = _Place(first, span, HEIGHT / lines[-1])
    parts = [*_curves(points_drawn, met if meeting and meeting.projected else None, place)]
    ticks = [((day - first).days / span, text) for day, text in dates(first, end)]
    marked = _point_marks(met, place, projected=meeting.projected) if meeting is not None and met is not None else ()
    return _with_axes("curve", title, description, lines, ticks, _stretched_svg(*parts), *marked)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a day and an amount stand."""

    first: date
    span: int
    scale: float

    def across(self, day: date) -> float:
        return (day - self.first).days / self.span

    def down(self, amount: float) -> float:
        return HEIGHT - amount * self.scale

    def path(self, points: Sequence[tuple[date, float]]) -> str:
        return "M" + "L".join(f"{self.across(day) * WIDTH:.1f} {self.down(amount):.1f}" for day, amount in points)


def _fewer_points(points: Sequence[Point]) -> Sequence[Point]:
    step = -(-len(points) // MAX_POINTS)
    return points if step == 1 else [*points[:-1:step], points[-1]]


def _break_even_point(points: Sequence[Point], meeting: BreakEvenDay) -> Point:
    """Return the break-even point on the desktop's curve; a future one is extrapolated from the last month."""
    last = points[-1]
    if meeting.day <= last.day:
        after = points[bisect_left(points, meeting.day, key=lambda point: point.day)]
        return Point(meeting.day, after.desktop, after.desktop)
    month = points[max(0, bisect_left(points, last.day - timedelta(days=30), key=lambda point: point.day))]
    days = (last.day - month.day).days
    pace = (last.desktop - month.desktop) / days if days else 0.0
    amount = last.desktop + max(0.0, pace) * (meeting.day - last.day).days
    return Point(meeting.day, amount, amount)


def _curves(points: Sequence[Point], to_come: Point | None, place: _Place) -> list[str]:
    cloud = [(point.day, point.cloud) for point in points]
    desktop = [(point.day, point.desktop) for point in points]
    drawn = [("cloud", cloud), ("desktop", desktop)]
    if to_come is not None:
        end = (to_come.day, to_come.cloud)
        drawn += [("cloud to-come", [cloud[-1], end]), ("desktop to-come", [desktop[-1], end])]
    return [tag("path", class_=f"line {kind}", d=place.path(one)) for kind, one in drawn]


def _point_marks(met: Point, place: _Place, *, projected: bool) -> tuple[str, ...]:
    share, down = place.across(met.day), TOP + place.down(met.desktop)
    across = percent(share)
    left = share < 0.5  # noqa: PLR2004  (the words stand where there is more room)
    text = f"Break-even {'about ' if projected else ''}{day_text(met.day)}"
    return (
        tag("line", class_="meets", x1=across, x2=across, y1=TOP, y2=TOP + HEIGHT),
        tag("circle", class_="meets", cx=across, cy=f"{down:.1f}", r=5),
        tag("text", escaped(text), class_="said", x=across, dx=6 if left else -6, y=TOP - 7,
            text_anchor="start" if left else "end"),
    )  # fmt: skip


def machine_bars(machines: Sequence[MachineBar], title: str, description: str) -> str:
    """Return one bar per machine, as long as it was billed, by what was done in that time."""
    if not machines:
        return ""
    longest = max(sum(bar.seconds) for bar in machines) or 1.0
    rows = [piece for number, one in enumerate(machines) for piece in _hours_row(one, number * ROW, longest)]
    return picture("hours", title, description, *rows, height=len(machines) * ROW)


def _hours_row(bar: MachineBar, top: int, longest: float) -> list[str]:
    name = bar.name if len(bar.name) <= MAX_NAME else bar.name[: MAX_NAME - 1] + "…"
    parts = [
        tag("text", escaped(name), x=0, y=top + 14),
        tag("text", escaped(bar.label), class_="value", x="100%", y=top + 14, text_anchor="end"),
    ]
    reached = 0.0
    for activity, seconds in zip(ACTIVITIES, bar.seconds, strict=True):
        if seconds > 0:
            place = {"x": percent(reached / longest), "width": percent(seconds / longest)}
            parts.append(tag("rect", class_=f"p-{activity}", y=top + 20, height=BAR_HEIGHT, **place))
            reached += seconds
    return [tag("g", tag("title", escaped(bar.tooltip)), *parts)]


def _stretched_svg(*parts: str) -> str:
    """Return what is drawn in units of its own, stretched to the chart's width."""
    return tag(
        "svg", *parts, x=0, y=TOP, width="100%", height=HEIGHT, viewBox=f"0 0 {WIDTH} {HEIGHT}",
        preserveAspectRatio="none", overflow="visible",
    )  # fmt: skip


def _with_axes(
    name: str,
    title: str,
    description: str,
    lines: tuple[float, ...],
    ticks: Sequence[tuple[float, str]],
    *drawn: str,
    middle: bool = False,
) -> str:
    """Return what is drawn upon lines with their amounts, and the days below it: at their marks, or right of them."""
    texts = figures(lines)
    rows = []
    for line, text in zip(lines, texts, strict=True):
        down = TOP + HEIGHT - line / lines[-1] * HEIGHT
        rows.append(tag("line", class_="grid" if line else "base", x1=0, x2="100%", y1=f"{down:.1f}", y2=f"{down:.1f}"))
        rows.append(tag("text", escaped(text), class_="axis", x=-8, y=f"{down + 4:.1f}", text_anchor="end"))
    below = []
    for share, text in ticks:
        across = percent(share)
        below.append(tag("line", class_="base", x1=across, x2=across, y1=TOP + HEIGHT, y2=TOP + HEIGHT + 5))
        if middle or share + len(text) * DIGIT_WIDTH / NARROWEST <= 1:  # else the words would not fit
            anchor = "middle" if middle else None
            below.append(tag("text", escaped(text), class_="axis", x=across, y=TOP + HEIGHT + 19, text_anchor=anchor))
    return picture(
        name, title, description, *rows, *drawn, *below,
        height=TOP + HEIGHT + FOOT, left=max(map(len, texts)) * DIGIT_WIDTH + 10, right=END_MARK,
    )  # fmt: skip
