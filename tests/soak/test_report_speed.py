"""A report of a hundred thousand charges is small, and counts them all; benchmarks/report.py says how quick it is."""

from __future__ import annotations

from decimal import Decimal

import pytest

from benchmarks import report as benchmark
from cloudgpu.control.cost.cost import cost_document
from cloudgpu.control.cost.report import report_document
from cloudgpu.views.report.html import to_html

pytestmark = pytest.mark.soak


def test_a_hundred_thousand_charges_are_one_small_page(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    benchmark.fill(home)
    session = benchmark.opened(str(home))
    document = report_document(session)
    assert len(to_html(document).encode()) < benchmark.MOST_BYTES
    assert document["about"]["machines"] == benchmark.MACHINES
    spent = cost_document(session)["total_usd"]
    assert document["total"]["usd"] == spent
    assert sum(Decimal(one["usd"]) for one in document["days"]) == Decimal(spent)
