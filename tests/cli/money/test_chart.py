"""Charts in the terminal: what every width shows, without colours, and where no block can be printed."""

from __future__ import annotations

import io
import subprocess
import sys
from datetime import UTC, date

import pytest

from cloudgpu.cli.money.chart import axis_end, column_chart, gauge, line_chart, sparkline
from cloudgpu.cli.money.compare_text import compare_text
from tests.views.pages import comparison, curve

WIDTHS = (60, 80, 120, 160)
MONTH = [3.1, 0, 0, 12.4, 8, 2, 1, 0, 0, 5.5, 4.4, 9, 17, 3, 2, 1, 0, 0, 0, 2.5, 8, 9, 4, 3, 2, 0.05, 0, 0, 1, 1, 3]


@pytest.fixture(autouse=True)
def in_unicode(monkeypatch):
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="utf-8"))


def test_a_sparkline_tells_a_day_without_anything_from_a_cheap_one():
    assert sparkline([0, 0.01, 4, 8]) == "·▁▄█"
    assert sparkline([]) == ""


@pytest.mark.parametrize(
    ("used", "reserved", "bar"),
    [
        (0, 0, "░░░░░░░░░░"),
        (0.01, 0, "█░░░░░░░░░"),
        (30, 20, "███▒▒░░░░░"),
        (99.9, 0, "█████████░"),  # it is full when it is full
        (99.9, 5, "█████████▒"),
        (100, 0, "██████████"),
        (250, 10, "██████████"),
    ],
)
def test_a_gauge_shows_what_was_used_and_is_full_only_from_the_limit_on(used, reserved, bar):
    assert gauge(used, 100, 10, reserved) == bar


def test_a_gauge_without_a_limit_is_full_once_anything_is_used():
    assert gauge(0, 0, 4) == "░░░░"
    assert gauge(1, 0, 4) == "████"


@pytest.mark.parametrize("width", WIDTHS)
def test_a_month_by_day_fits_every_width(width):
    drawn = column_chart([str(day + 1) for day in range(31)], MONTH, width).splitlines()
    assert max(map(len, drawn)) <= width
    assert len(drawn) == 10
    assert [line[:3] for line in drawn if "$" in line] == ["$20", "$10", " $0"]
    assert drawn[-1].split()[0] == "1"
    each = drawn[-2].count("─") // 31
    starts = [line[5:].ljust(31 * each) for line in drawn[:8]]
    shown = [any(line[day * each] != " " for line in starts) for day in range(31)]
    assert shown == [spent > 0 for spent in MONTH]  # five cents show, nothing does not


@pytest.mark.parametrize("width", WIDTHS)
def test_lines_fit_every_width_without_colours_and_each_has_its_own_mark(width):
    series = {"rent": [(x, x * 100.0) for x in range(25)], "buy": [(x, 1500.0 + x) for x in range(25)]}
    drawn = line_chart(series, width)
    assert "\x1b" not in drawn
    assert max(map(len, drawn.splitlines())) <= width
    assert {"•• rent", "xx buy"} <= {line.strip(" │").split("┤")[-1].strip(" │") for line in drawn.splitlines()}
    assert "$4,000┤" in drawn
    assert line_chart({}, width) == ""


def comparison_by_day(points):
    document = comparison(points) | {"owned": None, "own_machines": [], "cautions": []}
    return compare_text(document, None, UTC, verbose=False, chart=True)


def test_a_long_comparison_that_leaves_out_days_is_drawn_by_its_days():
    drawn = comparison_by_day(curve(date(2024, 1, 1), 1200, 3.0)[::3])
    assert "1198.0" in drawn.split("US dollars by day")[0].splitlines()[-1]


def test_a_cloud_whose_cost_is_not_known_has_no_line():
    drawn = comparison_by_day([day | {"cloud_usd": None} for day in curve(date(2024, 1, 1), 30, 3.0)])
    assert "• desktop" in drawn
    assert "• cloud" not in drawn


def test_without_unicode_charts_are_ascii(monkeypatch):
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    drawn = [sparkline([0, 1, 8]), gauge(3, 10, 10, 2), column_chart(["1"], [1], 60)]
    assert all(one.isascii() for one in drawn)
    assert drawn[1] == "###==....."


def test_an_axis_ends_at_a_round_number():
    assert [axis_end(one) for one in (0, 0.003, 1, 17, 21, 41, 99)] == [1, 0.004, 1, 20, 40, 50, 100]


def test_only_lines_load_plotext():
    script = "import sys; from cloudgpu.cli.money import chart; chart.column_chart(['1'], [1.0], 60); "
    script += "sys.exit('plotext' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
