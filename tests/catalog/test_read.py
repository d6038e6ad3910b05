"""The catalogue's answers: shares, legacy types, bases, dates, disks, spellings, refusals."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime
from fractions import Fraction

import pytest
from hypothesis import given, strategies as st

from cloudgpu import catalog
from cloudgpu.core.catalog.catalog import matching_gpus
from cloudgpu.core.model.offers import Basis, Market
from cloudgpu.core.values.money import Money
from cloudgpu.errors import InvalidRequest

LEGACY = (
    "aws/p2.xlarge aws/p3.2xlarge aws/g3.4xlarge aws/g2.2xlarge aws/g4ad.xlarge azure/Standard_NC6 "
    "azure/Standard_NC6s_v2 azure/Standard_NC6s_v3 azure/Standard_NV6s_v2 azure/Standard_NV12s_v3 "
    "azure/Standard_NV4as_v4 azure/Standard_ND40rs_v2 gcp/n1-standard-4+k80:1"
).split()
CURRENT = "aws/p3dn.24xlarge aws/g4dn.xlarge aws/g5.xlarge azure/Standard_NV6ads_A10_v5 gcp/n1-standard-4+t4:1".split()


@pytest.mark.parametrize("name", LEGACY)
def test_a_legacy_type_says_why_and_is_offered_only_when_asked_for(name):
    provider, _, kind = name.partition("/")
    assert len(catalog.instance_type(provider, kind).legacy_reason) > 10
    assert kind not in {offer.type.name for offer in catalog.offers(provider)}


@pytest.mark.parametrize("name", CURRENT)
def test_a_current_type_is_offered(name):
    provider, _, kind = name.partition("/")
    assert catalog.instance_type(provider, kind).legacy_reason == ""
    assert kind in {offer.type.name for offer in catalog.offers(provider)}


@pytest.mark.parametrize(
    ("provider", "name", "share", "memory", "unverified"),
    [
        ("azure", "Standard_NV6ads_A10_v5", Fraction(1, 6), 4, ("share",)),
        ("azure", "Standard_NV12ads_A10_v5", Fraction(1, 3), 8, ("share",)),
        ("azure", "Standard_NV18ads_A10_v5", Fraction(1, 2), 12, ("share",)),
        ("azure", "Standard_NV36ads_A10_v5", 1, 24, ()),
        ("azure", "Standard_NV4as_v4", Fraction(1, 8), 2, ("share",)),
        ("azure", "Standard_NV32as_v4", 1, 16, ("share",)),
        ("aws", "g6f.large", Fraction(1, 8), 2.8, ()),
        ("gcp", "g4-standard-24", Fraction(1, 2), 48, ()),
    ],
)
def test_a_fraction_of_a_gpu_is_one_gpu_with_a_share_and_the_shares_memory(provider, name, share, memory, unverified):
    one = catalog.instance_type(provider, name)
    assert one.gpu.count == 1
    assert one.gpu.share == pytest.approx(float(share), abs=1e-6)
    assert one.gpu.memory_gib == memory
    assert one.unverified == unverified


def test_googles_attached_gpus_are_priced_with_their_host_and_dated_by_the_older_part():
    price = catalog.listed_price("gcp", "n1-standard-4+t4:2", "us-central1", Market.ON_DEMAND)
    assert Money.usd("0.8899") < price.per_hour < Money.usd("0.8901")  # 0.19 for the host, 0.35 for each T4
    assert price.basis is Basis.DERIVED
    assert price.as_of == datetime(2026, 6, 23, tzinfo=UTC)


def test_a_host_carries_no_more_gpus_than_it_may_and_is_itself_none():
    names = {one.name for one in catalog.instance_types("gcp")}
    assert {"n1-standard-8+v100:1", "n1-standard-16+v100:8"} <= names
    assert not {"n1-standard-16+v100:1", "n1-standard-4+v100:8", "n1-standard-8", "n1+nvidia-tesla-t4"} & names


def test_what_is_sold_only_as_spot_has_no_on_demand_offer():
    markets = {offer.listed.market for offer in catalog.offers("gcp", gpu="h100") if offer.type.name == "a3-highgpu-1g"}
    assert markets == {Market.SPOT}
    with_all = catalog.offers("gcp", gpu="h100", with_legacy=True)
    assert Market.ON_DEMAND in {offer.listed.market for offer in with_all if offer.type.name == "a3-highgpu-1g"}


def test_every_offer_has_a_positive_price_a_source_a_date_and_a_basis():
    for offer in catalog.offers(with_legacy=True):
        price = offer.listed.price
        assert price.per_hour > Money(0)
        assert price.source
        assert price.as_of.tzinfo
        assert price.as_of <= catalog.compiled_on()
        assert price.basis in (Basis.LISTED, Basis.DERIVED, Basis.UNVERIFIED)


def test_ec2_spot_is_derived_and_googles_is_listed():
    assert {offer.listed.price.basis for offer in catalog.offers("aws", market=Market.SPOT)} == {Basis.DERIVED}
    whole = [offer for offer in catalog.offers("gcp", market=Market.SPOT) if "+" not in offer.type.name]
    assert {offer.listed.price.basis for offer in whole} == {Basis.LISTED}


def test_what_has_no_price_is_not_free():
    assert catalog.listed_price("aws", "p5e.48xlarge", "us-east-1", Market.ON_DEMAND) is None
    assert catalog.listed_price("aws", "g4dn.xlarge", "nowhere", Market.ON_DEMAND) is None
    assert catalog.listed_price("acme", "gpu_1x_a10", "us-east-1", Market.ON_DEMAND) is None
    assert catalog.listed_price("lambda", "gpu_1x_a10", "us-east-1", Market.SPOT) is None


def test_offers_fit_every_wish():
    found = catalog.offers("aws", "eu-west-1", Market.SPOT, "a100")
    assert found
    for offer in found:
        assert (offer.type.provider, offer.listed.region, offer.listed.market) == ("aws", "eu-west-1", Market.SPOT)
        assert offer.type.gpu.name.startswith("A100")


@pytest.mark.parametrize(
    ("provider", "region", "kind", "usd", "upper_bound"),
    [
        ("aws", "us-east-1", "gp3", "0.08", False),
        ("aws", "sa-east-1", "gp3", "0.152", False),
        ("aws", "xx-east-9", "gp3", "0.152", True),
        ("aws", "sa-east-1", "public_ipv4", "0.005", False),
        ("gcp", "us-west1", "static_ip_unused", "0.01", False),
        ("gcp", "asia-east9", "static_ip_unused", "0.016", True),
        ("azure", "westeurope", "P4 32 GiB", "5.8072", False),
        ("azure", "japaneast", "P4 32 GiB", "6.072", False),
        ("azure", "nowhere", "P4 32 GiB", "6.3879", True),
        ("azure", "japaneast", "snapshot", "0.05", False),
        ("azure", "eastus", "P1 4 GiB", "5.2795", True),  # at most what the next larger class costs: P4
        ("azure", "eastus", "E3 16 GiB", "2.4", True),  # E4
    ],
)
def test_a_missing_disk_price_is_the_dearest_known_and_marked(provider, region, kind, usd, upper_bound):
    found = catalog.disk_price(provider, region, kind)
    assert (found.price, found.upper_bound) == (Money.usd(usd), upper_bound)


def test_a_size_class_above_all_that_have_a_price_has_none():
    with pytest.raises(InvalidRequest):
        catalog.disk_price("azure", "eastus", "P60 8192 GiB")
    assert catalog.counted_price("azure", "eastus", "P60 8192 GiB").upper_bound


def test_a_size_class_counts_as_the_next_larger_one_and_half_more_where_that_has_no_price_either():
    counted = catalog.counted_price("azure", "eastus", "P1 4 GiB")
    assert (counted.price, counted.kind, counted.upper_bound) == (Money.usd("5.2795"), "P1 4 GiB", True)
    counted = catalog.counted_price("azure", "nowhere", "P1 4 GiB")
    larger = catalog.counted_price("azure", "nowhere", "P4 32 GiB")
    assert (counted.price, counted.kind, counted.upper_bound) == (larger.price, "P1 4 GiB", True)
    assert larger.price == Money.usd("9.58185")  # 6.3879 and half of it
    assert "known of the next larger one, P4 32 GiB, times 1.5" in counted.source


def test_an_unverified_disk_price_says_so_and_has_no_date():
    found = catalog.disk_price("azure", "eastus", "egress_internet")
    assert (found.basis, found.as_of) == (Basis.UNVERIFIED, None)


@pytest.mark.parametrize(
    ("provider", "region", "kind", "usd", "low"),
    [
        ("gcp", "us-east4", "hyperdisk-balanced", "0.088", "0.08"),  # by pd-balanced, and by hyperdisk-extreme
        ("gcp", "us-west1", "hyperdisk-balanced", "0.08", None),  # both ways agree
        ("azure", "australiaeast", "E10 128 GiB", "15.36", "9.6"),
        ("azure", "westus3", "P10 128 GiB", "19.71", "17.92"),
    ],
)
def test_a_derived_disk_price_is_the_dearer_of_two_ways_and_has_the_other(provider, region, kind, usd, low):
    found = catalog.disk_price(provider, region, kind)
    assert (found.basis, found.upper_bound) == (Basis.DERIVED, False)
    assert (found.price, found.low) == (Money.usd(usd), None if low is None else Money.usd(low))
    assert catalog.counted_price(provider, region, kind).price == found.price  # a budget counts the dearer


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        ("v100", ["V100-16GB", "V100-32GB"]),
        ("V100 32GB", ["V100-32GB"]),
        ("nvidia-tesla-v100", ["V100-16GB", "V100-32GB"]),
        ("tesla v100-sxm2-16gb", ["V100-16GB"]),
        ("a100-80gb", ["A100-80GB", "A100-80GB-PCIe"]),
        ("A100-SXM4-80GB", ["A100-80GB"]),
        ("a100-40g", ["A100-40GB"]),
        ("rtx3090", ["RTX3090"]),
        ("GeForce RTX 3090", ["RTX3090"]),
        ("rtx-4090", ["RTX4090"]),
        ("gtx 1080 ti", ["GTX1080Ti"]),
        ("RTX A6000", ["A6000"]),
        ("rtx pro 6000", ["RTXPRO6000"]),
        ("quadro rtx 6000", ["QuadroRTX6000"]),
        ("a10", ["A10"]),
        ("a10g", ["A10G"]),
        ("l4", ["L4"]),
        ("t4", ["T4"]),
        ("t4-16gb", ["T4"]),
        ("h100-nvl", ["H100-NVL"]),
        ("h100-pcie", ["H100-PCIe"]),
        ("h100-sxm5", ["H100"]),
        ("amd instinct mi300x", ["MI300X"]),
    ],
)
def test_usual_spellings_are_understood(asked, names):
    assert [spec.name for spec in matching_gpus(asked, catalog.gpus())] == names


@pytest.mark.parametrize(
    ("asked", "near"), [("v10", "v100"), ("h1000", "h100"), ("a101", "a10"), ("rtx 309", "rtx3090"), ("80gb", "a100")]
)
def test_an_unknown_gpu_is_refused_with_the_near_one(asked, near):
    with pytest.raises(InvalidRequest) as refused:
        matching_gpus(asked, catalog.gpus())
    assert refused.value.value == asked
    assert near in refused.value.next


@pytest.mark.parametrize("asked", ["", "  ", "nvidia", "gb", "zzzzzz", "???"])
def test_what_names_no_gpu_is_refused(asked):
    with pytest.raises(InvalidRequest):
        matching_gpus(asked, catalog.gpus())


WORDS = st.sampled_from(["v100", "a100", "nvidia", "80gb", "rtx", "3090", "-", " ", "_", "pcie", "sxm4", "32g", "x"])


@given(st.one_of(st.text(max_size=60), st.lists(WORDS, max_size=6).map("".join)))
def test_whatever_is_typed_means_a_gpu_or_is_refused_with_a_way_out(asked):
    found, refused = answer(asked)
    if refused is None:
        assert found
        assert len({spec.name for spec in found}) == len(found)
    else:
        assert (refused.field, refused.value) == ("--gpu", asked)
        assert refused.next.startswith(("Run: cloudgpu gpus", "See all: cloudgpu gpus"))


def answer(asked):
    try:
        return matching_gpus(asked, catalog.gpus()), None
    except InvalidRequest as refused:
        return [], refused


def test_one_gpu_is_not_guessed_among_two():
    assert catalog.gpu("v100-32gb").memory_gib == 32
    with pytest.raises(InvalidRequest, match="V100-16GB or V100-32GB"):
        catalog.gpu("v100")


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: catalog.offers("amazon"), "no provider 'amazon'"),
        (lambda: catalog.offers(region="us-eastt-1"), "did you mean 'us-east-1'"),
        (lambda: catalog.offers("gcp", "us-east-2"), "is a region of aws, not of gcp"),
        (lambda: catalog.instance_type("aws", "g4dn.xlrage"), "did you mean 'g4dn.xlarge'"),
        (lambda: catalog.disk_price("aws", "us-east-1", "gp4"), "did you mean 'gp"),
        (lambda: catalog.disk_price("oracle", "x", "gp3"), "no provider 'oracle'"),
    ],
)
def test_an_unknown_name_is_refused_with_the_near_one(call, says):
    with pytest.raises(InvalidRequest) as refused:
        call()
    assert says in refused.value.message
    assert refused.value.next


def test_importing_the_catalogue_reads_nothing_yet():
    code = (
        "import sys, builtins, pathlib; real = pathlib.Path.read_text\n"
        "def noticed(self, *a, **k): print(self.name); return real(self, *a, **k)\n"
        "pathlib.Path.read_text = noticed\n"
        "from cloudgpu import catalog; print('imported'); catalog.gpus()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ)
    assert done.stdout.splitlines() == ["imported", "catalog.json"]


@pytest.mark.parametrize(
    ("name", "market", "codes"),
    [
        ("n1-standard-16+t4:4", Market.ON_DEMAND, [("NVIDIA_T4_GPUS", 4), ("GPUS_ALL_REGIONS", 4)]),
        ("a2-ultragpu-8g", Market.SPOT, [("PREEMPTIBLE_NVIDIA_A100_80GB_GPUS", 8), ("GPUS_ALL_REGIONS", 8)]),
        ("g4-standard-48", Market.ON_DEMAND, [("GPUS_ALL_REGIONS", 1)]),  # nobody has listed that of its GPU
        ("e2-small", Market.ON_DEMAND, []),
    ],
)
def test_quotas_of_google_count_gpus_by_kind_and_all_together(name, market, codes):
    found = catalog.quotas_of("gcp", name, market)
    assert [(one.code, one.amount_of(catalog.instance_type("gcp", name))) for one in found] == codes
    regional = catalog.quota_of("gcp", name, market)
    assert regional is None or not regional.is_overall


def test_every_gpu_that_google_sells_counts_against_the_limit_on_all_regions():
    for shape in catalog.instance_types("gcp"):
        assert catalog.quotas_of("gcp", shape.name, Market.SPOT)[-1].is_overall


def test_a_card_that_is_sold_apart_has_its_prices_with_their_date_and_others_have_none():
    card = catalog.gpu("rtx3090").card_prices
    assert (card.at_launch, card.new, card.used) == (Money.usd(1499), Money.usd(762), Money.usd(537))
    assert (card.dated, f"{card.as_of:%Y-%m-%d}") == ("2025 (undated table)", "2025-01-01")
    assert catalog.gpu("rtx5090").card_prices is None  # its price is unverified in the facts, so none is listed
    assert catalog.gpu("t4").card_prices is None
