"""Prices that nobody said are marked wherever they are shown: in `ls`, `show` and `regions`."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from cloudgpu.cli.machine_text import machine_details
from cloudgpu.cli.machines.listing import _text
from cloudgpu.control.catalog.regions import price_sources
from cloudgpu.views.machines import machine_document
from tests.ledger.lines import PRICE
from tests.views.ledger_of_all import filled, launched, looked

NOW = datetime(2026, 12, 1, 1, tzinfo=UTC)
AT = "2026-12-01T00:00:00.000000Z"
KINDS = [("derived", "~", "~ derived: computed"), ("unverified", "?", "? unverified: from memory")]


@pytest.fixture
def value(tmp_path):
    """What a machine is with a price of this basis."""

    def found(basis):
        drafts = [launched("cg-1", AT, price=PRICE | {"basis": basis}), looked("cg-1", AT)]
        (row,) = filled(tmp_path / basis, drafts, NOW).ledger.machines()
        return machine_document(row, NOW)

    return found


def listed(*values):
    return _text(
        {"machines": list(values), "clusters": [], "credits": [], "view_as_of": AT, "foreign": []}, NOW, lambda: True
    )


@pytest.mark.parametrize(("basis", "mark", "legend"), KINDS)
def test_ls_marks_a_price_and_says_what_the_mark_means(value, basis, mark, legend):
    said = listed(value(basis), value("listed"))
    assert f"$0.5260{mark} " in said
    assert "$0.5260  " in said
    assert legend in said
    assert max(map(len, said.splitlines())) <= 80


def test_ls_says_nothing_of_marks_where_there_are_none(value):
    said = listed(value("listed"), value("quoted"))
    assert "derived" not in said
    assert "unverified" not in said


def test_ls_names_the_cluster_of_nodes_that_are_shut_down_and_still_billed(value):
    """`stop` takes no node of a cluster by itself."""
    shut_down = value("listed") | {"state": "stopped", "billed": True}
    nodes = [shut_down | {"name": f"train-{node}", "cluster": {"name": "train"}} for node in (0, 1)]
    said = " ".join(listed(shut_down, *nodes).split())
    assert f"still billed until cloudgpu stop {shut_down['name']}." in said
    assert said.count("still billed until cloudgpu stop train.") == 1
    assert "cloudgpu stop train-" not in said


@pytest.mark.parametrize("basis", ["derived", "unverified"])
def test_show_says_it_in_a_word(value, basis):
    assert f"as of 2026-11-20, {basis}" in " ".join(machine_details(value(basis), NOW).split())


def test_regions_says_it_beside_the_source():
    rows = [
        {"price": {"source": "a list", "as_of": AT, "basis": basis}} for basis in ("listed", "derived", "unverified")
    ]
    assert price_sources(rows) == [
        "a list (2026-12-01, derived)",
        "a list (2026-12-01)",
        "a list (2026-12-01, unverified)",
    ]
