"""Budgets in files: read whole, each fault with its line, and never a rate of today."""

from __future__ import annotations

from decimal import Decimal

import pytest

from cloudgpu.config.budgets import load_budgets
from cloudgpu.core.budgets.budget import Action, BudgetPeriod, Scope
from cloudgpu.core.values.money import Money
from cloudgpu.errors import InvalidRequest


@pytest.fixture
def read(tmp_path):
    def read(text, name="lab"):
        (tmp_path / f"{name}.yaml").write_text(text)
        return load_budgets([tmp_path])

    return read


def test_a_file_is_a_budget_called_like_it(read):
    (found,) = read("""\
description: what the lab may spend
amount: 400000
currency: KRW
rate: 1385.2
rate_as_of: 2026-11-20
rate_source: Bank of Korea
period: rolling:30d
scope:
  project: vision
  owner: ada@example.org
thresholds: [100, 50]
forecast: none
action: [notify, stop]
tz: Asia/Seoul
allow_override: false
""")
    assert (found.name, found.period, found.scope) == (
        "lab", BudgetPeriod("rolling", 30), Scope(project="vision", owner="ada@example.org"),
    )  # fmt: skip
    assert found.quoted_limit.value == 400000
    assert (found.quoted_limit.currency.per_usd, str(found.quoted_limit.currency.as_of)) == (
        Decimal("1385.2"),
        "2026-11-20",
    )
    assert abs(found.limit.dollars - Decimal(400000) / Decimal("1385.2")) < Decimal("1e-8")
    assert (found.thresholds, found.forecast, found.allow_override) == ((50, 100), None, False)
    assert found.actions == {Action.NOTIFY, Action.STOP}
    assert str(found.zone) == found.tz == "Asia/Seoul"
    assert found.file.endswith("lab.yaml")


def test_what_a_file_leaves_out_is_as_usual(read):
    (found,) = read("amount: 99.50\nperiod: month\n")
    assert found.limit == Money.usd("99.5")
    assert (found.thresholds, found.forecast, found.scope, found.tz) == ((50, 80, 100), 100, Scope(), "UTC")
    assert found.refuses
    assert found.allow_override


@pytest.mark.parametrize(
    ("text", "field", "says"),
    [
        ("amount: free\nperiod: month\n", "lab.yaml:1: amount", "not an amount above zero"),
        ("period: month\namount: -3\n", "lab.yaml:2: amount", "not an amount above zero"),
        ("amount: true\nperiod: month\n", "lab.yaml:1: amount", "not an amount above zero"),
        ("amount: .nan\nperiod: month\n", "lab.yaml:1: amount", "not an amount above zero"),
        ("amount: 3\n", "lab.yaml:1: period", "is missing"),
        ("amount: 3\nperiod: moth\n", "lab.yaml:2: period", "did you mean 'month'"),
        ("amount: 3\nperiod: month\nscop: x\n", "lab.yaml:3: scop", "did you mean 'scope'"),
        ("amount: 3\nperiod: month\nscope:\n  projct: x\n", "lab.yaml:3: scope", "did you mean 'project'"),
        ("amount: 3\nperiod: month\nthresholds: [0]\n", "lab.yaml:3: thresholds", "not a percentage"),
        ("amount: 3\nperiod: month\naction: [refse]\n", "lab.yaml:3: action", "did you mean 'refuse'"),
        ("amount: 3\nperiod: month\ntz: Seoul\n", "lab.yaml:3: tz", "did you mean 'Asia/Seoul'"),
        ("amount: 3\nperiod: month\nallow_override: maybe\n", "lab.yaml:3: allow_override", "true or false"),
        ("amount: 3\nperiod: month\ncurrency: KRW\n", "lab.yaml:1: rate", "is missing for KRW"),
        ("amount: 3\nperiod: month\ncurrency: KRW\nrate: 1385\n", "lab.yaml:1: rate_as_of", "is missing"),
        ("amount: 3\nperiod: month\ncurrency: ZZZ\nrate: 3\nrate_as_of: 2026-11-20\n", "lab.yaml:4: rate", "ZZZ"),
        ("amount: 3\nperiod: month\ncurrency: KRW\nrate: 3\nrate_as_of: 2026-02-30\n", "lab.yaml:4: rate", "02-30"),
    ],
)
def test_a_fault_says_its_line_and_the_way_out(read, text, field, says):
    with pytest.raises(InvalidRequest) as refused:
        read(text)
    assert refused.value.field == field
    assert says in refused.value.message
    assert refused.value.message.startswith("lab.yaml:"), "the sentence alone is shown in a terminal"
    assert refused.value.next


def test_a_name_that_two_files_have_is_refused(tmp_path):
    for place in ("a", "b"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "lab.yaml").write_text("amount: 3\nperiod: month\n")
    with pytest.raises(InvalidRequest, match="is in two files"):
        load_budgets([tmp_path / "a", tmp_path / "b"])


def test_a_file_that_no_budget_can_be_called_like_is_refused(read):
    with pytest.raises(InvalidRequest, match=r"My Lab\.yaml"):
        read("amount: 3\nperiod: month\n", name="My Lab")


def test_a_file_counts_by_either_ending_of_yaml(tmp_path):
    (tmp_path / "lab.yml").write_text("amount: 3\nperiod: month\n")
    assert [one.name for one in load_budgets([tmp_path])] == ["lab"]
    (tmp_path / "lab.yaml").write_text("amount: 3\nperiod: month\n")
    with pytest.raises(InvalidRequest, match="is in two files"):
        load_budgets([tmp_path])


def test_what_an_editor_or_a_mac_lays_beside_a_budget_is_no_budget(tmp_path):
    (tmp_path / "lab.yaml").write_text("amount: 3\nperiod: month\n")
    (tmp_path / ".#lab.yaml").symlink_to("ada@desk.4711:1732790000")  # Emacs, while the file is edited
    (tmp_path / "._lab.yaml").write_bytes(b"\0\5\26\7\0\2\0\0Mac OS X")
    assert [one.name for one in load_budgets([tmp_path])] == ["lab"]


def test_no_directory_is_no_budget_and_one_that_cannot_be_listed_is_no_silence(tmp_path):
    assert load_budgets([tmp_path / "none"]) == ()
    (tmp_path / "budgets").write_text("")
    with pytest.raises(InvalidRequest, match=r"budgets cannot be read: not a directory"):
        load_budgets([tmp_path / "budgets"])
