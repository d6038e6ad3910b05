"""Google's sustained use discount, by the provider's own examples."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given, strategies as st

from cloudgpu.core.billing.charges import MachineCharge, charge
from cloudgpu.core.billing.deductions import SustainedUseDiscount, sustained_use
from cloudgpu.core.billing.rules import PARTS_PER_NANO
from cloudgpu.core.model.facts import MachineGpus
from cloudgpu.core.model.usage import Usage
from cloudgpu.core.values.times import iso
from tests.core.bills import usd, use
from tests.core.machines import machine

NOVEMBER = datetime(2026, 11, 1, tzinfo=UTC)
DECEMBER = datetime(2026, 12, 1, tzinfo=UTC)
ROW = machine(account="lab", region="us-central1", accelerators=())
K80, T4 = (MachineGpus(f"NVIDIA {name}", 1, None, 1, None) for name in ("K80", "T4"))


def bill(*uses: Usage, row: dict | None = None) -> list[MachineCharge]:
    return [
        MachineCharge(ROW._replace(**row or {}), charge(one, DECEMBER, since=NOVEMBER, until=DECEMBER)) for one in uses
    ]


def run(begin: str, end: str, price: str = "1.00", kind: str = "n1-standard-1", **facts) -> Usage:
    return use("gcp", f"2026-{begin} 00:00", f"2026-{end} 00:00", price, kind=kind, **facts)


def off(*uses: Usage, row: dict | None = None) -> Decimal:
    return sum((usd(one.amount) for one in sustained_use(bill(*uses, row=row), NOVEMBER)), Decimal(0))


@pytest.mark.parametrize(
    ("until", "percent", "hours"),
    [
        ("11-08", 0, 168),  # less than a quarter of the month
        ("11-16", 10, 360),  # "if you use a virtual machine for 50% of the month, you get an effective discount of 10%"
        ("12-01", 30, 720),  # "for 100% of the month ... 30%"
    ],
)
def test_the_effective_discounts_of_the_page(until, percent, hours):
    """Sustained use discounts: quarters at 100, 80, 60 and 40 % of the base rate. November has 30 days."""
    assert off(run("11-01", until)) == Decimal(hours) * percent / 100


def test_75_percent_of_the_month_are_20_percent_off():
    """The page: 22.5 days of 30."""
    found = use("gcp", "2026-11-01 00:00", "2026-11-23 12:00", "1.00", kind="n1-standard-1")
    assert off(found) == Decimal(540) * 20 / 100


def test_the_golden_figure_of_a_k80_in_a_full_month():
    """0.45 $/h becomes 0.315 (a public test file of infracost): 30 % off."""
    row = {"accelerators": (K80,)}
    assert off(run("11-01", "12-01", "0.45"), row=row) == (Decimal("0.45") - Decimal("0.315")) * 720
    (line,) = sustained_use(bill(run("11-01", "12-01", "0.45"), row=row), NOVEMBER)
    assert (line.account, line.region, line.what, line.month) == ("lab", "us-central1", "N1 and NVIDIA K80", "2026-11")
    assert "estimated" in line.reason
    assert "self-serve" in line.reason


def test_machines_that_follow_one_another_count_as_one():
    """The provider's inferred instances: 4 vCPUs for the first half, 16 for the second are 4 for a month, 12 for half.

    By the hour 0.19 and 0.76: 30 % off 720 h x 0.19, 10 % off 360 h x 0.57.
    """
    small, large = run("11-01", "11-16", "0.19"), run("11-16", "12-01", "0.76", kind="n1-standard-4")
    expected = Decimal("0.30") * 720 * Decimal("0.19") + Decimal("0.10") * 360 * Decimal("0.57")
    assert off(small, large) == expected


def test_thirty_machines_for_a_day_one_after_the_other_get_what_one_gets_for_the_month():
    days = [run(f"11-{day:02}", f"11-{day + 1:02}" if day < 30 else "12-01") for day in range(1, 31)]
    assert off(*days) == off(run("11-01", "12-01"))


def test_thirty_machines_on_one_day_get_nothing():
    assert off(*[run("11-03", "11-04") for _ in range(30)]) == 0


@pytest.mark.parametrize(
    "without",
    [
        run("11-01", "12-01", kind="a2-highgpu-1g"),
        run("11-01", "12-01", kind="g2-standard-4"),
        run("11-01", "12-01", market="spot"),
        use("aws", "2026-11-01 00:00", "2026-12-01 00:00", "1", kind="n1-standard-1"),
        use("gcp", "2026-11-01 00:00", "2026-12-01 00:00", kind="n1-standard-1"),
    ],
)
def test_what_has_no_such_discount_gets_none(without):
    assert sustained_use(bill(without), NOVEMBER) == []


def test_regions_accounts_and_gpus_are_pooled_apart():
    one, other = run("11-01", "11-16"), run("11-16", "12-01")
    assert off(one, other) == Decimal(216)
    for row in ({"region": "europe-west4"}, {"account": "b"}, {"accelerators": (T4,)}):
        found = sustained_use([*bill(one), *bill(other, row=row)], NOVEMBER)
        assert [usd(line.amount) for line in found] == [Decimal(36), Decimal(36)]


def test_a_month_of_31_days_has_quarters_of_its_own():
    october = datetime(2026, 10, 1, tzinfo=UTC)
    found = use("gcp", "2026-09-20 00:00", None, "1.00", kind="n1-standard-1")
    line = MachineCharge(ROW, charge(found, NOVEMBER, since=october, until=NOVEMBER))
    (discount,) = sustained_use([line], october)
    assert usd(discount.amount) == Decimal("0.30") * 744
    assert discount.month == "2026-10"


@given(st.lists(st.tuples(st.integers(0, 719), st.integers(1, 300), st.integers(0, 5)), max_size=6))
def test_it_is_never_negative_never_more_than_30_percent_and_agrees_hour_by_hour(found):
    uses, cost = [], 0
    hours = [0] * 720
    for begin, length, price in found:
        end = min(720, begin + length)
        first, last = NOVEMBER + timedelta(hours=begin), NOVEMBER + timedelta(hours=end)
        uses.append(use("gcp", iso(first)[:16], iso(last)[:16], str(price), kind="n1-standard-1"))
        cost += price * (end - begin)
        for hour in range(begin, end):
            hours[hour] += price
    expected = Fraction(0)
    for dollar in range(max(hours)):  # each dollar of the hourly cost by itself
        held = sum(1 for hour in hours if hour > dollar)
        expected += sum(Fraction(max(0, held - quarter), 5) for quarter in (180, 360, 540))
    amounts: list[SustainedUseDiscount] = sustained_use(bill(*uses), NOVEMBER)
    assert Fraction(sum(one.amount for one in amounts), PARTS_PER_NANO) / 10**9 == expected
    assert 0 <= expected <= Fraction(3, 10) * cost
