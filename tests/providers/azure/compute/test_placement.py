"""Where an image, a volume or a subnet of the user's ties a launch to at Azure."""

from __future__ import annotations

import pytest

from cloudgpu.core.model.instances import TAG_LEDGER
from cloudgpu.core.model.launch import Network, Setup, Volume
from cloudgpu.core.model.offers import MachineConfiguration, Market, Requirements
from cloudgpu.errors import InvalidRequest
from cloudgpu.providers.abilities import PlacementConstraint
from cloudgpu.providers.azure.compute import resolve
from cloudgpu.providers.azure.storage import disks
from tests.providers.azure.launched import GROUP, ID, launch
from tests.providers.azure.storage.test_disks import saved

SUBNET = f"/resourceGroups/{GROUP}/providers/Microsoft.Network/virtualNetworks/{GROUP}/subnets/inside"


@pytest.fixture
def kept(account, azure_arm, sdk):
    """Leave an image and a volume in eastus; return the account."""
    azure = account()
    launch(sdk)
    saved(azure, azure_arm)
    disks.attach(azure, ID, Volume("data", 64), {TAG_LEDGER: "led-1"})
    return azure


def at(azure, want=None, **setup):
    return resolve.constraint(azure, Setup(**setup), want or Requirements())


def test_nothing_of_the_users_ties_to_nothing_unasked(account, azure_arm):
    assert at(account()) == PlacementConstraint()
    assert azure_arm.calls == []


def test_an_image_ties_to_its_region_by_any_of_its_names(kept, account, azure_arm):
    (own,) = azure_arm.resources("Microsoft.Compute/images")
    for name in ("tuned", "tuned-1", own, "eastus/cloudgpu/images/tuned-1"):
        found = at(kept, image=name)
        assert (found.region, found.zone) == ("eastus", None)
        assert name in found.why
    with pytest.raises(InvalidRequest, match="no image"):
        at(account(ledger="led-2"), image="tuned")  # another ledger's is not meant by its name


def test_a_volume_ties_to_its_place_and_a_subnet_to_its_network(kept):
    found = at(kept, volume=Volume("data"))
    assert (found.region, found.zone) == ("eastus", "eastus")
    subnet = f"/subscriptions/{kept.subscription}{SUBNET}"
    assert at(kept, network=Network(subnet=subnet)).region == "eastus"


@pytest.mark.parametrize("image", ["microsoft-dsvm:ubuntu-hpc:2204:latest", "/subscriptions/x/galleries/y/images/z"])
def test_an_image_that_lies_everywhere_ties_to_nothing(account, image):
    assert at(account(), image=image) == PlacementConstraint()


ELSEWHERE = (
    ({"volume": Volume("data")}, Requirements(region="westus2"), "is in eastus"),
    ({"volume": Volume("data")}, Requirements(zone="eastus-1"), "is in eastus"),
    ({"volume": Volume("data", 65)}, Requirements(), "has 64 GB"),
    ({"volume": Volume("dada")}, Requirements(), "did you mean 'data'"),
    ({"volume": Volume("more", 40_000)}, Requirements(), "32,767 GB at most"),
    ({"image": "tuned"}, Requirements(region="westus2"), "is in eastus"),
    ({"image": "turned"}, Requirements(), "did you mean 'tuned'"),
    ({"network": Network(subnet="inside")}, Requirements(), "not an id of a subnet"),
)


def test_what_lies_elsewhere_or_nowhere_is_refused_with_the_way_out(kept):
    for setup, want, says in ELSEWHERE:
        with pytest.raises(InvalidRequest, match=says) as refused:
            at(kept, want, **setup)
        assert refused.value.next


def test_what_lies_apart_is_refused(kept, sdk):
    launch(sdk, "cloudgpu-55555555555555555555", "westus2")
    subnet = f"/subscriptions/{kept.subscription}{SUBNET}".replace(GROUP, "cloudgpu-55555555555555555555")
    with pytest.raises(InvalidRequest, match="image tuned is in eastus, and the subnet"):
        at(kept, image="tuned", network=Network(subnet=subnet))


def test_a_new_volume_ties_to_nothing_and_one_that_is_used_is_given_to_nobody_else(kept):
    assert at(kept, volume=Volume("more", 64)) == PlacementConstraint()
    item = MachineConfiguration("azure", "azure", "eastus", "eastus", "Standard_NC4as_T4_v3", Market.ON_DEMAND)
    assert resolve.data_volume(kept, item, None) is None
    assert resolve.data_volume(kept, item, Volume("more", 64)) is None
    with pytest.raises(InvalidRequest, match="used by the machine"):
        resolve.data_volume(kept, item, Volume("data"))
