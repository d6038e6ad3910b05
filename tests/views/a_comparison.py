"""A comparison from a ledger in which everything is said that can be."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction

from cloudgpu.core.advice.compare import History, OwnMachineWork, RentedMachine, UsedSeconds, comparisons
from cloudgpu.core.advice.desktop import YEAR, Desktop
from cloudgpu.core.billing.daily import CostRange
from cloudgpu.core.billing.rules import PARTS_PER_NANO
from cloudgpu.core.catalog.catalog import CatalogOffer, InstanceType, ListedPrice
from cloudgpu.core.catalog.gpus import RatioBasis, SpeedRatio, Workload
from cloudgpu.core.model.offers import Accelerator, Basis, Market, Price
from cloudgpu.core.values.currency import Currency
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.units import Energy, Power, QuotedAmount, Tariff
from cloudgpu.views.advice.compare import compare_document
from cloudgpu.views.advice.compare_sentences import CompareFacts

BEGIN = datetime(2026, 10, 1, tzinfo=UTC)
NOW = BEGIN + timedelta(days=40)
DAYS = [date(2026, 10, 1) + timedelta(days=number) for number in range(40)]
WON = Currency("KRW", Decimal(1400), date(2026, 11, 1), "a bank")
DESKTOP = Desktop(
    name="two",
    gpu="RTX 3090",
    gpus=2,
    purchase=Money.usd(7000),
    life=4 * YEAR,
    gpu_power=Power.of(350),
    rest_power=Power.of(150),
    idle_power=Power.of(60),
    tariff=Tariff(Money.usd("0.1")),
    source="a test",
    as_of=date(2026, 10, 1),
    maintenance=Money.usd(100),
    purchase_in_currency=QuotedAmount(Decimal(9_800_000), WON),
)


def _machine() -> RentedMachine:
    speed = SpeedRatio(Fraction(1, 2), Fraction(1, 4), Fraction(1), RatioBasis.BANDWIDTH)
    days = {day: UsedSeconds(36_000, 3600, 3600, 3600) for day in DAYS}
    return RentedMachine("big", "A100-80GB", 1.0, 80.0, speed, True, days)


def _own() -> OwnMachineWork:
    price = Price(Money.usd("0.4"), "a list", BEGIN, Basis.LISTED)
    shape = InstanceType(
        "gcp", "n1-t4", Accelerator("T4", 1, 16), 4, 15, None, "x86_64", False, "", (), "", "a list", "2026-10"
    )
    offer = CatalogOffer(shape, ListedPrice("us-central1", Market.ON_DEMAND, price, "", "2026-10"))
    energy = Energy(Fraction(30))
    return OwnMachineWork(
        "cg-own",
        "tower",
        "RTX3090",
        1.0,
        timedelta(hours=90),
        timedelta(hours=2),
        energy,
        Money.usd(3),
        offer=offer,
        ratio=Fraction(3),
    )


def a_story(**more) -> CompareFacts:
    cost = {day: CostRange(*(dollars * 10**9 * PARTS_PER_NANO for dollars in (20, 22, 25))) for day in DAYS}
    history = History(BEGIN, NOW, UTC, cost, [_machine()])
    facts = {
        "now": NOW,
        "desktop": DESKTOP,
        "desktop_memory": 24.0,
        "workload": Workload.TRAINING,
        "history": history,
        "cases": comparisons(history, DESKTOP, goes_on=True),
        "own_machines": [_own()],
        "unpriced": ["fox (disk)"],
        "since": None,
        "until": None,
        "is_ongoing": True,
        "resale_value": Money.usd(6800),
    }
    return CompareFacts(**(facts | more))


def a_comparison() -> dict:
    return compare_document(a_story(), "UTC", WON, ["purchase"])
