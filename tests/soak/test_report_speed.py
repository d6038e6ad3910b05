"""A report of a hundred thousand charges is small, and takes at most three times the time of reading its rows."""

from __future__ import annotations

import statistics

import pytest

from benchmarks import report as benchmark

pytestmark = pytest.mark.soak


def test_a_hundred_thousand_charges(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    benchmark.fill(home)
    ours, against, size, number = benchmark.in_turns(str(home), 3)
    assert number >= benchmark.CHARGES
    assert size < benchmark.MOST_BYTES
    assert statistics.median(ours) <= benchmark.AIM * statistics.median(against)
