"""What each kind of GPU machine at Google needs, on our model of it: its disk, its driver, a shielded boot."""

from __future__ import annotations

import pytest

from cloudgpu.core.model.launch import Setup, Volume
from cloudgpu.core.model.offers import Market
from cloudgpu.errors import InvalidRequest
from tests.clouds.gcp.fixtures import gcp, gcp_process
from tests.providers.gcp.accounts import account, calls
from tests.providers.gcp.attempts import USUAL, attempt_at, offered, resolved, soon

__all__ = ["gcp", "gcp_process"]
DEEP, PLAIN_24, PLAIN_22 = "common-cu129-ubuntu-2404-nvidia-580", "ubuntu-2404-lts-amd64", "ubuntu-2204-lts"
PERSISTENT, HYPER = "pd-balanced", "hyperdisk-balanced"


@pytest.fixture
def cloud(gcp, tmp_path):
    return account(gcp, tmp_path)


@pytest.mark.parametrize(
    ("name", "zone", "disk", "image", "driver"),
    [
        ("n1-standard-4+k80:1", "us-central1-a", PERSISTENT, PLAIN_22, "cuda-drivers-470"),
        ("n1-standard-4+p4:1", "us-central1-a", PERSISTENT, PLAIN_24, "cuda-drivers-580"),
        ("n1-standard-4+p100:1", "us-central1-c", PERSISTENT, PLAIN_24, "cuda-drivers-580"),
        ("a2-ultragpu-1g", "us-central1-a", PERSISTENT, DEEP, None),
        ("a3-ultragpu-8g", "us-central1-b", HYPER, DEEP, None),
        ("a4-highgpu-8g", "us-central1-b", HYPER, DEEP, None),
    ],
)
def test_a_kind_of_machine_is_launched_with_the_disk_and_the_driver_that_it_takes(
    gcp, cloud, name, zone, disk, image, driver
):
    item = offered(cloud, name, zone=zone, market=Market.SPOT)
    found = resolved(cloud, name, zone=zone, market=Market.SPOT)
    assert (found.driver or {}).get("driver") == driver
    assert found.attached[0].stored_as == disk
    assert any("takes hyperdisk-balanced disks alone" in said for said in found.remarks) == (disk == HYPER)
    cloud.launch(attempt_at(cloud, item), deadline=soon(cloud))
    asked = gcp.called("compute.instances.insert")[-1].body
    made = asked["disks"][0]["initializeParams"]
    assert made["diskType"] == f"zones/{zone}/diskTypes/{disk}"
    assert f"/images/{image}-v" in made["sourceImage"]
    assert asked["shieldedInstanceConfig"]["enableVtpm"] is True


@pytest.mark.soak
def test_a_volume_of_a_kind_that_the_machine_does_not_take_is_refused_before_the_launch(gcp, cloud):
    zone, more = "us-central1-b", {"market": Market.SPOT}
    setup = Setup(network=USUAL.network, volume=Volume("data", 20))
    old = cloud.launch(attempt_at(cloud, offered(cloud, zone=zone), setup=setup), deadline=soon(cloud))
    cloud.attach(old.id, Volume("data", 20), old.tags)
    cloud.terminate(old.id)
    with calls(gcp) as asked, pytest.raises(InvalidRequest) as refused:
        resolved(cloud, "a4-highgpu-8g", zone=zone, setup=setup, **more)
    assert (refused.value.field, "pd-balanced" in refused.value.message) == ("--volume", True)
    assert not [one for one in asked if one.endswith("insert")]
    new = cloud.launch(
        attempt_at(cloud, offered(cloud, "a4-highgpu-8g", zone=zone, **more), key="new"), deadline=soon(cloud)
    )
    cloud.attach(new.id, Volume("fast", 20), new.tags)
    cloud.terminate(new.id)
    with pytest.raises(InvalidRequest, match="hyperdisk-balanced"):
        resolved(cloud, zone=zone, setup=Setup(network=USUAL.network, volume=Volume("fast", 20)))
