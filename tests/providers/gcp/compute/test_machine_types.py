"""Machine types of Google's without a GPU, which the catalogue lacks: found by their name, on our model."""

from __future__ import annotations

import pytest

from cloudgpu.core.model.offers import Basis, Market, Requirements
from cloudgpu.core.values.money import Money
from cloudgpu.errors import InvalidRequest
from cloudgpu.providers.gcp.compute.machine_types import architecture
from tests.clouds.gcp.fixtures import gcp, gcp_process
from tests.providers.gcp.accounts import account, calls
from tests.providers.gcp.attempts import resolved

__all__ = ["gcp", "gcp_process"]


@pytest.fixture
def cloud(gcp, tmp_path):
    return account(gcp, tmp_path, regions=["us-central1", "us-east4"])


def test_one_call_tells_every_zone_that_has_it(gcp, cloud):
    with calls(gcp) as asked:
        found = cloud.available(Requirements(instance_type="e2-small")).items
    assert asked == ["compute.machineTypes.aggregatedList"]
    assert {item.region for item in found} == {"us-central1", "us-east4"}
    assert {(item.accelerators, item.vcpus, item.memory_gib) for item in found} == {((), 2, 2)}


def test_a_small_one_has_a_price_from_memory_where_it_is_remembered(cloud):
    found = cloud.available(Requirements(instance_type="e2-small", market=Market.SPOT, or_on_demand=True)).items
    known = {(item.region, item.market): price for item, price in zip(found, cloud.prices(found), strict=True) if price}
    assert list(known) == [("us-central1", Market.ON_DEMAND)]
    (price,) = known.values()
    assert (price.per_hour, price.basis) == (Money.usd("0.016751"), Basis.UNVERIFIED)


def test_its_call_has_no_accelerator_and_a_plain_image(cloud):
    call = resolved(cloud, "e2-small").call
    assert (call["machine_type"], call["accelerators"], call["installs_driver"]) == ("e2-small", 0, False)
    assert "ubuntu-os-cloud" in call["image"]


@pytest.mark.parametrize("name", ["e2-smal", "n1-standard-4+v100:3", "no type", "g2-standard-5"])
def test_a_type_that_nobody_has_is_refused_with_the_near_one(cloud, name):
    with pytest.raises(InvalidRequest, match="has no machine type") as refused:
        cloud.available(Requirements(instance_type=name))
    assert (refused.value.field, bool(refused.value.next)) == ("--instance-type", True)


def test_one_with_gpus_is_the_catalogues_to_know(gcp, cloud):
    with calls(gcp) as asked, pytest.raises(InvalidRequest):
        cloud.available(Requirements(instance_type="e2-small", gpu="t4"))
    assert asked == []


@pytest.mark.parametrize(("name", "machine"), [("e2-small", "x86_64"), ("t2a-standard-1", "arm64")])
def test_the_processor_follows_from_the_series(name, machine):
    assert architecture(name) == machine
