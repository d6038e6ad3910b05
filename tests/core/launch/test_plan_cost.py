"""What a launch costs up to a moment is the bill that it would have then, with all that is paid beside the machine."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from cloudgpu.core.billing.rates import Rate
from cloudgpu.core.launch.plan_cost import AddedCost, cost_between, costs_while_running
from cloudgpu.core.model.offers import Basis, Market, Offer, Requirements
from cloudgpu.core.model.usage import Per, Resource
from cloudgpu.core.values.money import ZERO, Money
from cloudgpu.testing import make_offer, pick
from cloudgpu.testing.fake.market import matching_offers

NOW = datetime(2026, 11, 20, 11, 0, tzinfo=UTC)
DAY = timedelta(days=1)


def offer(provider: str) -> Offer:
    found = make_offer(
        pick(matching_offers("lab", Requirements(market=Market.ON_DEMAND)), Market.ON_DEMAND), usd="3.00", now=NOW
    )
    return replace(found, configuration=replace(found.configuration, provider=provider))


def beside(kind: Resource, per: Per, usd: str | None, quantity: int = 1, why: str = "") -> AddedCost:
    price = None if usd is None else Money.usd(usd)
    rate = Rate(kind, str(kind), quantity, per, price, "a list", NOW, Basis.LISTED, why)
    return AddedCost(f"a {kind}", rate.per_month, kept=True, source="a list", upper_bound=bool(why), rate=rate)


DISK = beside(Resource.DISK, Per.MONTH, "0.08", 90)
ADDRESS = beside(Resource.ADDRESS, Per.HOUR, "0.005")


def test_disks_and_addresses_are_in_it_by_the_hours_of_the_month_that_it_is() -> None:
    found = cost_between(offer("aws"), [DISK, ADDRESS], NOW, NOW + DAY)
    assert found.machine == Money.usd("72")
    assert found.amount == Money.usd("72") + Money.usd("0.24") + Money.usd("0.12")  # 7.20 a month of 30 days
    assert (found.low, found.reasons, found.unpriced) == (found.amount, (), ())


def test_what_has_no_price_is_named_and_counted_as_nothing() -> None:
    found = cost_between(offer("aws"), [DISK, beside(Resource.ADDRESS, Per.MONTH, None)], NOW, NOW + DAY)
    assert (found.amount, found.unpriced) == (Money.usd("72.24"), ("a address",))


def test_what_may_cost_less_makes_a_range_with_its_reason() -> None:
    found = cost_between(offer("aws"), [replace(DISK, rate=None, upper_bound=True)], NOW, NOW + DAY)
    assert (found.low, found.amount) == (Money.usd("72"), Money.usd("72.24"))
    assert found.reasons == ("it may cost less than its price says",)


def test_a_system_that_is_billed_by_the_started_hour_costs_it_whole() -> None:
    most = NOW + timedelta(minutes=61)
    assert cost_between(offer("aws"), [], NOW, most, "suse").amount == Money.usd(6)
    rhel = cost_between(offer("aws"), [], NOW, most, "rhel")
    assert (rhel.low, rhel.amount) == (Money.usd("3.05"), Money.usd(6))


def test_a_month_that_may_be_shorter_counts_at_its_dearer_reading() -> None:
    found = cost_between(offer("azure"), [DISK], NOW, NOW + 31 * DAY)
    assert found.low < found.amount
    assert "730 hours" in found.reasons[0]


def test_nothing_is_paid_twice() -> None:
    parked, volume = replace(DISK, running=False), replace(DISK, named=True)
    assert list(costs_while_running([DISK, parked, volume], volume_there=True)) == [DISK]
    assert list(costs_while_running([DISK, parked, volume], volume_there=False)) == [DISK, volume]


def test_no_time_costs_at_most_the_minimum_of_a_start() -> None:
    found = cost_between(offer("aws"), [DISK], NOW, NOW)
    assert ZERO < found.amount < Money.usd("0.06")
