"""docs/focus.md names the columns that are written, the validator's slips and the reasons of a gap."""

from __future__ import annotations

import re
from pathlib import Path

from cloudgpu.core.reconciliation.reconcile import Part
from cloudgpu.views.exports import focus, plain as exports
from tests.views.test_validator import SLIPS

ROOT = Path(__file__).parents[3]


def first_cells(heading):
    page = (ROOT / "docs" / "focus.md").read_text()
    section = page.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    cells = re.findall(r"^\| (`[^|]*) \|", section, re.MULTILINE)
    return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]


def test_every_column_of_focus_stands_there_in_its_order():
    assert first_cells("Columns") == [*focus.COLUMNS, *focus.OWN_COLUMNS]


def test_every_plain_column_stands_there():
    assert sorted(first_cells("Plain CSV and JSON")) == sorted(exports.COLUMNS)


def test_the_slips_are_those_that_the_validator_makes():
    assert set(first_cells("The validator")) == SLIPS


def test_every_reason_is_explained():
    source = (ROOT / "cloudgpu" / "core" / "reconciliation" / "reconcile.py").read_text()
    kinds = set(re.findall(r'GapReason\(\s*"([a-z ]+)"', source)) | {str(part) for part in Part}
    assert set(first_cells("Why they differ")) == kinds
