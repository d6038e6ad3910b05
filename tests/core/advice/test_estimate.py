"""What machines would cost: hours, runs and kept things by the rules of the bill, exact to the nano-dollar."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction

import pytest
from hypothesis import given, settings, strategies as st

from cloudgpu.core.advice.desktop import Committed, Term, percent_off
from cloudgpu.core.advice.estimate import (
    MONTH_US,
    YEAR_US,
    AttachedCostEstimate,
    ComputePrecision,
    Estimate,
    PaidWhile,
    PricedMachines,
    WeeklyHours,
    average_use,
    cheapest_first,
    cheapest_per_group,
    compute_hours,
    cost_parts,
    has_bf16,
    is_unverified,
    peak_tflops,
    use_of_job,
)
from cloudgpu.core.billing.rates import Rate
from cloudgpu.core.billing.rules import DAY_US
from cloudgpu.core.catalog.catalog import CatalogOffer, GpuSpec, InstanceType, ListedPrice
from cloudgpu.core.model.offers import Accelerator, Basis, Market, Price
from cloudgpu.core.model.usage import Per, Resource
from cloudgpu.core.values.money import HOUR_MICROS, Money
from tests.examples import some

AT = datetime(2026, 8, 3, tzinfo=UTC)
OFFICE = WeeklyHours(Fraction(8), Fraction(5))


def offer(price, *, provider="gcp", name="g2-standard-4", region="us-central1", gpu="L4", share=1.0):
    shape = InstanceType(
        provider, name, Accelerator(gpu, 1, 24.0, share), 4, 16.0, None, "x86_64", False, "", (), "", "a list", ""
    )
    listed = Price(Money.usd(price), "a list", AT, Basis.LISTED)
    return CatalogOffer(shape, ListedPrice(region, Market.ON_DEMAND, listed, "", ""))


def rate(resource, price, *, quantity=1, per=Per.MONTH):
    return Rate(resource, "kind", quantity, per, None if price is None else Money.usd(price), "a list")


def disk(price, gb=100):
    return AttachedCostEstimate("disk", rate(Resource.DISK, price, quantity=gb), PaidWhile.KEPT)


def address(price, paid=PaidWhile.RUNNING):
    return AttachedCostEstimate("address", rate(Resource.ADDRESS, price, per=Per.HOUR), paid)


def machines(price="1", *beside, **more):
    found = offer(price, **more)
    return PricedMachines(found, found.listed.price.per_hour, beside)


def usd(text):
    return Money.usd(text)


def test_a_month_that_runs_all_the_time_is_730_hours():
    found = cost_parts(machines("0.706832", disk("0.1"), address("0.005")), average_use(WeeklyHours(), MONTH_US))
    assert found.hours == 730
    assert (found.machine, found.disk, found.address) == (usd("515.98736"), usd("10"), usd("3.65"))
    assert found.total == usd("529.63736")


def test_office_hours_are_173_81_hours_a_month_and_the_disk_stays():
    found = cost_parts(machines("0.706832", disk("0.1"), address("0.005")), average_use(OFFICE, MONTH_US))
    assert found.hours == Fraction(8 * 5, 7) * Fraction(365, 12)
    # 0.706832 USD x 173.809523... hours; 100 GB x 0.1; 0.005 x 173.809523...
    assert (found.machine, found.disk, found.address) == (usd("122.854133333"), usd("10"), usd("0.869047619"))


def test_a_year_is_365_days_and_a_day_is_an_average_one():
    it = machines("3.65", disk("0.1"))
    parts = [cost_parts(it, average_use(OFFICE, length)) for length in (DAY_US, MONTH_US, YEAR_US)]
    assert [one.hours for one in parts] == [Fraction(40, 7), Fraction(40, 7) * 365 / 12, Fraction(40, 7) * 365]
    assert parts[2].machine == usd("7612.857142857")  # 3.65 x 40/7 x 365
    assert parts[2].disk == usd("120")
    assert parts[0].disk == Money(round(Fraction(120 * 10**9, 365)))


@pytest.mark.parametrize(
    ("provider", "seconds"),
    [("aws", 60), ("gcp", 60), ("azure", 60)],  # Azure: no source is sure of its minimum, so the dearer reading
)
def test_a_short_run_is_billed_with_its_minimum_each_time(provider, seconds):
    span = average_use(WeeklyHours(Fraction(1, 100), Fraction(7)), MONTH_US)  # 36 seconds a day
    found = cost_parts(machines("3600", provider=provider), span)
    assert found.machine == Money(round(seconds * Fraction(365, 12) * 10**9))


def test_a_started_second_is_billed_whole():
    work = Fraction(100, 1) + Fraction(1, 7200)  # half a second
    assert cost_parts(machines("3600"), use_of_job(WeeklyHours(), work)).machine == usd("360001")


def test_an_azure_disk_is_billed_by_the_started_hour_and_googles_by_the_second():
    ninety_minutes = use_of_job(WeeklyHours(), Fraction(3, 2))
    cost = {
        kind: cost_parts(machines("1", disk("7.30", 1), provider=kind), ninety_minutes).disk
        for kind in ("azure", "gcp")
    }
    assert cost == {"azure": usd("0.02"), "gcp": usd("0.015")}


def test_work_that_ends_keeps_its_disk_from_the_first_hour_to_the_last():
    always, office = use_of_job(WeeklyHours(), Fraction(100)), use_of_job(WeeklyHours(Fraction(8)), Fraction(100))
    assert (always.uptime_spans, always.disk_us) == (((100 * HOUR_MICROS, 1),), 100 * HOUR_MICROS)
    assert office.uptime_spans == ((8 * HOUR_MICROS, 12), (4 * HOUR_MICROS, 1))
    assert office.disk_us == (12 * 24 + 4) * HOUR_MICROS  # four hours of the thirteenth day, and no night after them
    assert use_of_job(WeeklyHours(Fraction(8)), Fraction(96)).disk_us == (11 * 24 + 8) * HOUR_MICROS
    assert use_of_job(OFFICE, Fraction(8)).disk_us == 8 * HOUR_MICROS  # one day's work is done on that day
    assert (
        use_of_job(OFFICE, Fraction(16)).disk_us == Fraction(7 * 24, 5) * HOUR_MICROS + 8 * HOUR_MICROS
    )  # two, an average day apart


def test_googles_static_address_costs_more_while_no_machine_uses_it():
    it = machines("1", address("0.005"), address("0.01", PaidWhile.IDLE))
    # 8 of 24 hours a day: 243.33 hours at 0.005 and 486.67 at 0.01
    assert cost_parts(it, average_use(WeeklyHours(Fraction(8)), MONTH_US)).address == usd("6.083333333")
    assert cost_parts(it, average_use(WeeklyHours(), MONTH_US)).address == usd("3.65")


def test_a_commitment_is_paid_for_every_hour():
    it = replace(machines("2"), committed=True, per_hour=usd("1.26"))
    assert cost_parts(it, average_use(OFFICE, MONTH_US)).machine == usd("919.8")
    assert cost_parts(it, average_use(OFFICE, MONTH_US)).hours == 730


def test_the_only_commitment_that_is_known_is_the_published_one():
    """Cyclenerd pricing.yml of 2025-03-06: 2681.57 USD a month are 1689.37 for one year and 938.57 for three."""
    it = offer("3.67339", name="a2-highgpu-1g")
    month = it.listed.price.per_hour.scaled(Fraction(730))
    assert abs(month.nanos - usd("2681.57").nanos) < usd("0.01").nanos
    for term, published in ((Term.ONE_YEAR, "1689.37"), (Term.THREE_YEARS, "938.57")):
        off = percent_off(Committed(term, None), it)
        paid = month.scaled(1 - off / 100)
        assert abs(paid.nanos - usd(published).nanos) < usd("0.03").nanos
    assert percent_off(Committed(Term.ONE_YEAR, None), offer("3.67", name="a2-highgpu-1g", region="us-east1")) is None
    assert percent_off(Committed(Term.ONE_YEAR, None), offer("3.67", name="a2-highgpu-2g")) is None
    assert percent_off(Committed(None, Fraction(12)), offer("1")) == 12


def test_what_has_no_price_is_in_no_sum_and_never_zero():
    found = cost_parts(machines("1", disk(None), address("0.005")), average_use(WeeklyHours(), MONTH_US))
    assert (found.disk, found.is_fully_priced, found.total) == (None, False, usd("733.65"))


whole = st.integers(1, 400)
hours = st.builds(
    WeeklyHours,
    st.fractions(Fraction(1, 10), 24, max_denominator=50),
    st.fractions(Fraction(1, 2), 7, max_denominator=20),
)
prices = st.integers(1, 10**12).map(lambda nanos: f"{nanos / 10**9:.9f}")


@given(prices, prices, hours, st.integers(2, 50), st.sampled_from(["aws", "gcp", "azure"]))
@settings(max_examples=some(60))
def test_cost_is_linear_in_the_number_of_machines(price, gb, often, number, provider):
    one = machines(price, disk(gb), address("0.005"), provider=provider)
    for span in (average_use(often, MONTH_US), use_of_job(often, Fraction(31, 3))):
        single, many = cost_parts(one, span), cost_parts(replace(one, number=number), span)
        assert many.total.nanos == single.total.nanos * number
        assert many.machine + many.disk + many.address == many.total


@given(prices, st.fractions(Fraction(1, 10), 24), st.fractions(Fraction(1, 10), 24), whole, whole)
@settings(max_examples=some(60))
def test_more_hours_never_cost_less(price, some, others, work, more):
    less, longer = sorted((some, others))
    it = machines(price, disk("0.1"), address("0.005"))
    month = [cost_parts(it, average_use(WeeklyHours(a_day), MONTH_US)).total for a_day in (less, longer)]
    assert month == sorted(month)
    job = [
        cost_parts(it, use_of_job(WeeklyHours(longer), Fraction(size))).total for size in sorted((work, work + more))
    ]
    assert job == sorted(job)


@given(st.lists(st.tuples(prices, st.booleans(), st.booleans()), min_size=1, max_size=12))
@settings(max_examples=some(60))
def test_the_cheapest_is_first_and_what_is_not_whole_or_may_not_fit_is_last(rows):
    found = []
    for number, (price, priced, fits) in enumerate(rows):
        it = machines(price, disk("0.1" if priced else None), name=f"type-{number}")
        found.append(
            Estimate(
                it, {"month": cost_parts(it, average_use(WeeklyHours(), MONTH_US))}, "month", has_enough_gpu_memory=fits
            )
        )
    order = cheapest_first(found)
    keys = [
        (not one.has_enough_gpu_memory, not one.ranking_cost.is_fully_priced, one.ranking_cost.total) for one in order
    ]
    assert keys == sorted(keys)


def estimate(price, **more):
    it = machines(price, **more)
    return Estimate(it, {"month": cost_parts(it, average_use(WeeklyHours(), MONTH_US))}, "month")


def test_one_line_stands_for_a_gpu_at_a_provider_and_shares_stand_apart():
    rows = [
        estimate("2", name="a"),
        estimate("1", name="b"),
        estimate("3", name="b", region="us-east1"),
        estimate("0.1", name="c", share=0.25),
        estimate("4", name="d", provider="aws"),
    ]
    chosen = [
        (one.machines.offer.type.name, one.machines.offer.listed.region)
        for one in cheapest_per_group(rows, one_row_per_type=False)
    ]
    assert chosen == [("c", "us-central1"), ("b", "us-central1"), ("d", "us-central1")]
    assert [one.machines.offer.type.name for one in cheapest_per_group(rows, one_row_per_type=True)] == [
        "c",
        "b",
        "a",
        "d",
    ]


def test_what_is_committed_stands_for_its_gpu():
    dear = estimate("3", name="known")
    rows = [estimate("2", name="other"), replace(dear, machines=replace(dear.machines, committed=True))]
    assert [one.machines.offer.type.name for one in cheapest_per_group(rows, one_row_per_type=False)] == ["known"]


V100 = GpuSpec("V100", 16, 2017, "Volta", "7.0", 900, 15.7, 125, 300, 0.187, "", "")


def test_operations_take_their_number_by_the_peak_that_is_reached():
    # 3.1e20 operations at 0.3 x 125 TFLOPs: 8,266,666.67 seconds
    found = compute_hours(Fraction(31 * 10**19), 125, Fraction(1), Fraction(3, 10))
    assert found == Fraction(24_800_000, 3) / 3600
    assert round(float(found), 2) == 2296.3
    assert compute_hours(Fraction(31 * 10**19), 125, Fraction(8), Fraction(3, 10)) == found / 8


def test_a_peak_is_that_of_the_precision():
    assert [peak_tflops(V100, one) for one in ComputePrecision] == [15.7, 125, None, None]
    ampere = replace(V100, compute_capability="8.0", fp8_tflops=300.0)
    assert [peak_tflops(ampere, one) for one in ComputePrecision] == [15.7, 125, 125, 300]
    assert has_bf16(replace(V100, compute_capability="gfx942"))


def test_a_note_about_one_precision_says_nothing_of_the_others():
    noted = replace(V100, notes="FP16 corroborated x1; FP8 recalled")
    assert [is_unverified(noted, one) for one in ComputePrecision] == [False, False, False, True]
    assert [is_unverified(replace(V100, notes="recalled"), one) for one in ComputePrecision] == [
        False,
        True,
        True,
        True,
    ]
