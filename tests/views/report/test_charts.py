"""The charts: what is drawn is as large as what it stands for, and is well-formed whatever names are in it."""

from __future__ import annotations

import re
from datetime import date, timedelta
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings, strategies as st

from cloudgpu.views.report.charts import (
    HEIGHT,
    TOP,
    WIDTH,
    BreakEvenDay,
    Layer,
    MachineBar,
    Point,
    cost_curves,
    machine_bars,
    spending_bars,
)
from cloudgpu.views.report.svg import axis_amounts, axis_dates, axis_levels, escaped, tag
from tests.examples import some
from tests.views.pages import HOSTILE

FIRST = date(2026, 8, 24)
BAR = re.compile(r"M([\d.]+) ([\d.]+)h([\d.]+)v-([\d.]+)h-[\d.]+z")
amounts = st.floats(0, 1e12, allow_nan=False)


def read(svg):
    """Return the picture, which is well-formed: its names are in no space of names, as in a page."""
    return ET.fromstring(svg)  # noqa: S314  (we made it)


def bars(picture, number):
    """Return (left, bottom, width, height) of each bar of a layer."""
    (path,) = [one for one in picture.iter("path") if one.get("class") == f"layer p{number}"]
    return [tuple(map(float, found)) for found in BAR.findall(path.get("d"))]


def days(number, first=FIRST):
    return [first + timedelta(days=one) for one in range(number)]


def texts(picture, kind="axis"):
    return [one.text for one in picture.iter("text") if one.get("class") == kind]


@pytest.mark.parametrize(
    ("highest", "expected"),
    [
        (0, ["0", "1"]),
        (1, ["0", "0.5", "1.0"]),
        (0.0123, ["0", "0.005", "0.010", "0.015"]),
        (16.8, ["0", "5", "10", "15", "20"]),
        (3000, ["0", "1,000", "2,000", "3,000"]),
        (2.3e6, ["0", "1 million", "2 million", "3 million"]),
    ],
)
def test_an_axis_has_round_figures(highest, expected):
    assert axis_amounts(axis_levels(highest)) == expected


@settings(max_examples=some(50))
@given(amounts)
def test_an_axis_reaches_over_what_is_highest_by_less_than_a_step(highest):
    found = axis_levels(highest)
    assert 2 <= len(found) <= 5
    assert found[0] == 0
    assert found[-1] >= highest * (1 - 1e-9)
    assert highest < 1e-12 or found[-2] < highest


@settings(max_examples=some(50))
@given(st.dates(date(2020, 1, 1), date(2030, 1, 1)), st.integers(0, 4000))
def test_an_axis_names_few_days_of_its_period_in_order(first, span):
    last = first + timedelta(days=span)
    found = [day for day, _ in axis_dates(first, last)]
    assert len(found) <= 5
    assert found == sorted(set(found))
    assert all(first <= day <= last for day in found)
    assert found or span < 62, "two months have a first of a month between them"


def test_days_months_and_years_are_named_as_the_period_is_long():
    def named(span):
        return [text for _, text in axis_dates(date(2026, 11, 20), date(2026, 11, 20) + timedelta(days=span))]

    assert named(0) == ["20 Nov"]
    assert named(30) == ["20 Nov", "27 Nov", "4 Dec", "11 Dec", "18 Dec"]
    assert named(75) == ["Dec", "2027", "Feb"]
    assert named(1500) == ["2027", "2028", "2029", "2030"]


def test_names_and_attributes_are_text():
    for name in HOSTILE:
        made = tag("text", escaped(name), title=name)
        assert read(made).text == name
        assert read(made).get("title") == name
        assert "<script" not in made


def test_bars_stand_upon_each_other_and_are_as_high_as_their_amounts():
    layers = [Layer("one", [10.0, 0.0, 5.0]), Layer("two", [10.0, 4.0, 15.0])]
    picture = read(spending_bars(days(3), layers, "t", "d", step="day"))
    scale = HEIGHT / 20  # the axis ends at 20
    lower, upper = bars(picture, 1), bars(picture, 2)
    assert [height for *_, height in lower] == [10 * scale, 5 * scale]  # nothing is drawn of nothing
    assert [bottom for _, bottom, *_ in lower] == [HEIGHT, HEIGHT]
    # a line of the page is between two layers, and is not added to the sum
    assert [round(HEIGHT - bottom + height, 1) for _, bottom, _, height in upper] == [220, 4 * scale, 220]
    assert upper[1][1] == HEIGHT, "what stands on nothing stands on the line"
    assert [left for left, *_ in lower] == [upper[0][0], upper[2][0]]


@pytest.mark.parametrize(
    ("begins", "step", "places"),
    [
        ([date(2026, 1, 1), date(2026, 1, 5)], "day", (0, 4)),
        ([date(2026, 1, 5), date(2026, 1, 19)], "week", (0, 2)),
        ([date(2025, 11, 1), date(2026, 2, 1)], "month", (0, 3)),
    ],
)
def test_time_in_which_nothing_was_spent_has_its_place(begins, step, places):
    drawn = bars(read(spending_bars(begins, [Layer("one", [1.0, 1.0])], "t", "d", step=step)), 1)
    number = places[1] + 1
    for (left, _, width, _), place in zip(drawn, places, strict=True):
        assert left + width / 2 == pytest.approx((place + 0.5) * WIDTH / number, abs=0.2)


@settings(max_examples=some(50))
@given(st.lists(st.lists(amounts, min_size=3, max_size=3), min_size=1, max_size=9))
def test_no_bar_is_higher_than_the_chart(values):
    picture = read(spending_bars(days(3), [Layer("one", row) for row in values], "t", "d", step="day"))
    for number in range(1, len(values) + 1):
        for left, bottom, width, height in bars(picture, number):
            assert bottom - height >= -0.3
            assert left >= 0
            assert left + width <= WIDTH


def test_nothing_is_drawn_of_no_days_and_one_day_is_no_curve():
    assert spending_bars([], [], "t", "d", step="day") == ""
    assert cost_curves([], None, "t", "d") == ""
    assert cost_curves([Point(FIRST, 1.0, 2200.0)], None, "t", "d") == ""
    assert machine_bars([], "t", "d") == ""


def curves(number, per_day, electricity=1.0):
    return [Point(day, per_day * (n + 1), 2200 + electricity * (n + 1)) for n, day in enumerate(days(number))]


def mark(picture):
    """Return where the break-even point is: its part of the width, its pixels above the line, and what is said."""
    (circle,) = picture.iter("circle")
    (said,) = texts(picture, "said")
    return float(circle.get("cx").rstrip("%")) / 100, TOP + HEIGHT - float(circle.get("cy")), said


def test_where_the_curves_met_is_marked_on_both():
    # 100 days of $50: 44 days make $2,200, and 45 with the electricity: 2,250 against 2,245
    picture = read(cost_curves(curves(100, 50.0), BreakEvenDay(FIRST + timedelta(days=44), projected=False), "t", "d"))
    across, up, said = mark(picture)
    assert across == pytest.approx(44 / 99, abs=1e-3)
    assert up == pytest.approx(2245 / 6000 * HEIGHT, abs=0.1)  # the axis ends at 6,000
    assert said == "Break-even 7 Oct 2026"
    assert len([one for one in picture.iter("path") if "line" in one.get("class")]) == 2


def test_where_they_will_meet_is_marked_where_the_desktop_goes_on_to():
    picture = read(cost_curves(curves(90, 13.7), BreakEvenDay(date(2027, 1, 19), projected=True), "t", "d"))
    across, up, said = mark(picture)
    assert across == 1  # the axis goes on to that day
    assert up == pytest.approx((2290 + 59) / 3000 * HEIGHT, abs=0.1)  # 59 days more, a dollar each
    assert said == "Break-even about 19 Jan 2027"
    assert len([one for one in picture.iter("path") if "to-come" in one.get("class")]) == 2


@pytest.mark.parametrize(
    "meeting", [None, BreakEvenDay(date(2031, 1, 1), projected=True), BreakEvenDay(date(2020, 1, 1), projected=False)]
)
def test_what_is_too_far_away_is_not_drawn(meeting):
    picture = read(cost_curves(curves(90, 1.0), meeting, "t", "d"))
    assert not list(picture.iter("circle"))
    assert texts(picture)[-3:] == ["Sep", "Oct", "Nov"]


def test_a_long_curve_is_thinned_and_keeps_its_ends():
    picture = read(cost_curves(curves(3000, 3.0), None, "t", "d"))
    cloud = next(one.get("d") for one in picture.iter("path") if one.get("class") == "line cloud")
    points = cloud[1:].split("L")
    assert 300 < len(points) <= 401
    assert points[0].startswith("0.0 ")
    assert points[-1] == f"1000.0 {HEIGHT - 9000 / 10000 * HEIGHT:.1f}"


def test_a_machines_bar_is_as_long_as_it_was_billed_by_what_it_did():
    machines = [
        MachineBar("fox", "10 h", (18000, 9000, 4500, 4500), "fox: ..."),
        MachineBar("owl", "5 h", (0, 0, 18000, 0), ""),
    ]
    picture = read(machine_bars(machines, "t", "d"))
    found = [(one.get("class"), one.get("x"), one.get("width")) for one in picture.iter("rect")]
    assert found == [
        ("p-busy", "0%", "50%"), ("p-used", "50%", "25%"), ("p-idle", "75%", "12.5%"), ("p-unknown", "87.5%", "12.5%"),
        ("p-idle", "0%", "50%"),
    ]  # fmt: skip


def test_a_long_name_is_cut_beside_its_bar_and_whole_in_what_is_said_of_it():
    picture = read(machine_bars([MachineBar("x" * 300, "", (1.0, 0, 0, 0), "x" * 300)], "t", "d"))
    shown = next(picture.iter("text")).text
    assert shown == "x" * 23 + "…"
    assert "x" * 300 in [one.text for one in picture.iter("title")]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_chart_is_one_image_with_a_title_and_a_description_whatever_the_names(name):
    for svg in (
        spending_bars(days(2), [Layer(name, [1.0, 2.0])], name, name, step="day"),
        cost_curves(curves(2, 1.0), None, name, name),
        machine_bars([MachineBar(name, name, (1.0, 0, 0, 0), name)], name, name),
    ):
        picture = read(svg)
        assert picture.get("role") == "img"
        title, description = (picture.find(kind) for kind in ("title", "desc"))
        assert picture.get("aria-labelledby") == f"{title.get('id')} {description.get('id')}"
        assert (title.text, description.text) == (name, name)
        assert {one.tag for one in picture.iter()} <= set("svg title desc path line text rect g circle".split())
