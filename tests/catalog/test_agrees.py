"""The catalogue says what the facts say, row by row, and a sample agrees with a second source."""

from __future__ import annotations

import csv
from decimal import Decimal
from pathlib import Path

import pytest

from cloudgpu import catalog
from cloudgpu.catalog.rules import PRICED_EVERYWHERE, REGIONS
from cloudgpu.core.model.offers import Basis, Market
from cloudgpu.core.values.money import Money

CHECKOUT = Path(__file__).parents[2]
BESIDE = CHECKOUT.parent / "shared" / "facts"  # where the figures were compiled, if they are here
COMMITTED = CHECKOUT / "cloudgpu" / "catalog" / "facts"
FACTS = BESIDE if BESIDE.is_dir() else COMMITTED
CLOUDS = ("aws", "gcp", "azure")


def rows(name, directory=FACTS, clouds=CLOUDS):
    with (directory / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        found = list(csv.DictReader(file))
    return [row for row in found if row.get("cloud", "aws") in clouds and "gov" not in row.get("region", "")]


def without_source(table):
    return [{key: text for key, text in row.items() if "source" not in key} for row in table]


@pytest.mark.parametrize("name", ["gpus", "gpu_instances", "prices", "storage_prices"])
def test_the_committed_facts_are_the_compiled_ones(name):
    assert without_source(rows(name, COMMITTED)) == without_source(rows(name))


def test_every_price_of_the_facts_is_in_the_catalogue_and_no_other():
    known = {(one.provider, one.name) for one in catalog.instance_types()}
    listed = {
        (offer.type.provider, offer.type.name, offer.listed.region, offer.listed.market): offer.listed.price.per_hour
        for offer in catalog.offers(with_legacy=True)
        if "+" not in offer.type.name
    }
    expected = {}
    for row in rows("prices"):
        for market, column in ((Market.ON_DEMAND, "price_on_demand_usd_hr"), (Market.SPOT, "price_spot_usd_hr")):
            if row[column] and (row["cloud"], row["instance_type"]) in known:
                expected[row["cloud"], row["instance_type"], row["region"], market] = Money.usd(row[column])
    assert listed == expected
    assert len(listed) > 2500


def test_a_cloud_with_one_price_everywhere_has_it_in_every_region_with_its_date_and_source():
    found = rows("flat_price_clouds", COMMITTED, ("lambda",))
    assert len(found) == 17
    for row in found:
        offers = [one.listed for one in catalog.offers(row["cloud"]) if one.type.name == row["instance_type"]]
        assert {one.price.per_hour for one in offers} == {Money.usd(row["price_on_demand_usd_hr"])}
        assert {one.region for one in offers} == set(REGIONS[row["cloud"]])
        assert {(one.price.source, one.as_of_text) for one in offers} == {(row["source"], row["as_of"])}


def test_a_price_that_is_not_offered_says_why():
    known = {(one.provider, one.name) for one in catalog.instance_types()}
    missing = {
        row["instance_type"]
        for row in rows("prices")
        if (row["cloud"], row["instance_type"]) not in known and not row["instance_type"].startswith(("n1-", "acc"))
    }
    left_out = catalog.omitted_types()
    assert missing == {name for name in left_out if not name.startswith("accelerator:")}
    assert all(left_out.values())


def test_every_type_of_the_facts_is_in_the_catalogue():
    for row in rows("gpu_instances"):
        if not row["accelerator"] or row["instance_type"].startswith("n1+"):
            continue
        one = catalog.instance_type(row["cloud"], row["instance_type"])
        assert (one.gpu.name, one.vcpus) == (row["accelerator"], int(row["vcpus"]))
        assert one.memory_gib == float(row["mem_gib"])
        partition = row["accelerator"] == "MI25"  # the row gives the whole GPU for its partitions
        assert partition or one.gpu.count * one.gpu.share == pytest.approx(float(row["accel_count"]), abs=1e-4)
        assert partition or one.gpu.memory_gib == float(row["accel_mem_gib_each"])


def test_every_gpu_of_the_facts_is_in_the_catalogue():
    for row in rows("gpus"):
        spec = catalog.gpu_by_name(row["gpu"])
        assert row["mem_gib"].startswith(f"{spec.memory_gib:g}")
        assert spec.bandwidth_gbs == float(row["mem_bw_gbs"])
        assert spec.trains_vs_h100 == (float(row["rel_train_vs_H100SXM"]) if row["rel_train_vs_H100SXM"] else None)
        assert spec.tensor_tflops == (
            float(row["fp16_tensor_dense_tflops"]) if row["fp16_tensor_dense_tflops"] else None
        )
        assert spec.fp8_tflops == (float(row["fp8_dense_tflops"]) if row["fp8_dense_tflops"] else None)


def test_every_disk_price_of_the_facts_is_in_the_catalogue():
    for row in rows("storage_prices"):
        if row["region"].endswith("*") or "/" in row["region"]:
            continue
        found = catalog.disk_price(row["cloud"], row["region"], row["type"])
        assert (found.price, found.unit, found.upper_bound) == (Money.usd(row["price_usd"]), row["unit"], False)


@pytest.mark.parametrize("cloud", CLOUDS)
def test_every_region_with_gpu_machines_has_a_price_for_what_is_billed_beside_them(cloud):
    regions = {offer.listed.region for offer in catalog.offers(cloud, with_legacy=True)}
    assert len(regions) > 15
    for region in regions:
        for kind in PRICED_EVERYWHERE[cloud]:
            found = catalog.disk_price(cloud, region, kind)
            assert not found.upper_bound, f"{cloud} {region} has no price of {kind}"
            assert found.as_of is not None


def test_a_price_compiled_by_region_is_that_of_its_row():
    for row in rows("storage_regions", COMMITTED):
        for region in row["region"].split("/"):
            found = catalog.disk_price(row["cloud"], region.replace("*", "x"), row["type"])
            assert (found.price, found.unit, found.upper_bound) == (Money.usd(row["price_usd"]), row["unit"], False)
            assert found.low == (Money.usd(row["low_usd"]) if row["low_usd"] else None)
            assert found.source == row["source"]
            assert (found.basis is Basis.DERIVED) == row["confidence"].startswith("derived")


def test_a_confirmed_price_has_the_date_and_the_name_of_the_newer_source():
    seen = 0
    for row in rows("confirmations", COMMITTED):
        for one in row["prices"].split():
            name, _, usd = one.partition("=")
            if name.startswith("accelerator:"):
                continue
            price = catalog.listed_price(row["cloud"], name, row["region"], Market(row["market"]))
            assert (price.per_hour, price.source) == (Money.usd(usd), row["source"])
            assert f"{price.as_of:%Y-%m-%d}" == row["as_of"]
            seen += 1
    assert seen > 800


SIZES = ("4 32 GiB", "10 128 GiB", "30 1024 GiB", "50 4096 GiB")


@pytest.mark.parametrize("region", sorted({offer.listed.region for offer in catalog.offers("azure", with_legacy=True)}))
def test_a_standard_ssd_costs_the_ratio_of_the_standard_hdd_listed_or_derived(region):
    """The rule of the derived ones: it holds in all five regions whose prices are listed, too."""
    hdd, base = (price("azure", one, "S10 128 GiB") for one in (region, "northeurope"))
    for size in SIZES:
        expected = price("azure", "northeurope", f"E{size}") * hdd / base
        assert float(price("azure", region, f"E{size}")) == pytest.approx(float(expected), rel=2e-3)


@pytest.mark.parametrize("region", sorted({offer.listed.region for offer in catalog.offers("gcp", with_legacy=True)}))
def test_hyperdisk_balanced_costs_the_dearer_of_two_ratios(region):
    ratios = [
        price("gcp", region, kind) / price("gcp", "us-central1", kind) for kind in ("pd-balanced", "hyperdisk-extreme")
    ]
    found = catalog.disk_price("gcp", region, "hyperdisk-balanced")
    low = found.low or found.price
    assert float(found.price.dollars) == pytest.approx(0.08 * float(max(ratios)), abs=1e-4)
    assert float(low.dollars) == pytest.approx(0.08 * float(min(ratios)), rel=0.021)


def price(provider, region, kind):
    return catalog.disk_price(provider, region, kind).price.dollars


def test_a_derived_spot_price_is_the_list_price_less_the_savings():
    derived = [row for row in rows("prices") if row["spot_basis"].startswith("derived")]
    assert len(derived) > 500
    for row in derived:
        savings = int(row["spot_basis"].split("savings ")[1].removesuffix("%)"))
        price = catalog.listed_price("aws", row["instance_type"], row["region"], Market.SPOT)
        expected = Decimal(row["price_on_demand_usd_hr"]) * (100 - savings) / 100
        assert abs(price.per_hour.dollars - expected) <= Decimal("0.00005")
        assert price.basis is Basis.DERIVED


SECOND = list(csv.DictReader((Path(__file__).parent / "second_source.csv").open(encoding="utf-8", newline="")))


@pytest.mark.parametrize("row", SECOND, ids=lambda row: row["instance_type"])
def test_a_sampled_price_agrees_with_a_second_source(row):
    found = catalog.listed_price(row["provider"], row["instance_type"], row["region"], Market.ON_DEMAND)
    # Google's tables differ in the sixth digit.
    assert float(found.per_hour.dollars) == pytest.approx(float(row["usd_per_hour"]), rel=1e-4)
    assert found.basis is Basis.LISTED


def test_twenty_prices_and_more_were_sampled():
    assert len({(row["provider"], row["instance_type"]) for row in SECOND}) >= 20
