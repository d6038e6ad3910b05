"""What Google has and what a launch there comes to, on our model: zones, types, images, networks, what is said."""

from __future__ import annotations

import pytest

from cloudgpu.core.model.launch import Network, Setup, Volume
from cloudgpu.core.model.offers import Market, Requirements
from cloudgpu.core.values.money import Money
from cloudgpu.errors import AuthFailed, InvalidRequest, NoCapacity, QuotaExceeded
from tests.clouds.gcp.fixtures import gcp, gcp_process
from tests.providers.gcp.accounts import account, calls
from tests.providers.gcp.attempts import CALLER, T4, USUAL, ZONE, offered, resolved

__all__ = ["gcp", "gcp_process"]
HERE = (CALLER,)


@pytest.fixture
def cloud(gcp, tmp_path):
    return account(gcp, tmp_path)


def zones(found):
    return {item.zone for item in found.items}


# Offers


def test_all_zones_are_asked_in_one_call(gcp, cloud):
    with calls(gcp) as asked:
        found = cloud.available(Requirements(gpu="t4"))
    assert asked == ["compute.acceleratorTypes.aggregatedList"]
    assert {item.region for item in found.items} == {
        "asia-east1",
        "europe-west4",
        "us-central1",
        "us-east1",
        "us-west1",
    }
    assert {item.instance_type for item in found.items} >= {T4, "n1-highmem-8+t4:1"}
    assert all(item.stoppable and item.accelerators[0].count == 1 for item in found.items)


@pytest.mark.parametrize(
    ("options", "want", "meant"),
    [
        ({"zones": ["us-central1-a", "us-central1-c"]}, {}, {"us-central1-a", "us-central1-c"}),
        ({"exclude_regions": ["us-central1", "us-east1"]}, {"region": "us-west1"}, {"us-west1-a", "us-west1-b"}),
        ({}, {"zone": "us-west1-b"}, {"us-west1-b"}),
    ],
)
def test_zones_are_those_of_the_settings_and_the_wish(gcp, tmp_path, options, want, meant):
    assert zones(account(gcp, tmp_path, **options).available(Requirements(instance_type=T4, **want))) == meant


def test_what_is_sold_on_spot_alone_is_not_offered_on_demand(cloud):
    assert cloud.available(Requirements(instance_type="a3-highgpu-1g")).items == ()
    spot = cloud.available(Requirements(instance_type="a3-highgpu-1g", market=Market.SPOT, or_on_demand=True))
    assert {item.market for item in spot.items} == {Market.SPOT}


def test_a_stop_that_erases_says_what(cloud):
    assert "402.7 GB of scratch disks" in offered(cloud, "a2-ultragpu-1g").stop_effect
    assert offered(cloud, "a3-highgpu-1g", market=Market.SPOT).stop_effect.startswith("erases its scratch disks")
    assert offered(cloud).stop_effect == "keeps its disk, and a stopped machine costs that disk alone"


def test_a_silent_zone_is_named(gcp, cloud):
    gcp.faults.offline(zone="us-west1-b")
    found = cloud.available(Requirements(instance_type=T4))
    assert [gap.scope for gap in found.unanswered] == ["us-west1-b"]
    assert "us-west1-b" not in zones(found)
    assert cloud.available(Requirements(instance_type=T4, region="us-central1")).unanswered == ()


@pytest.mark.parametrize("want", [{}, {"region": "us-central1"}, {"zone": "us-central1-a"}])
def test_a_list_that_lacks_something_is_named_whatever_place_is_asked_for(gcp, tmp_path, want):
    warning = {"code": "PARTIAL_SUCCESS", "message": "some"}
    gcp.faults.add("compute.acceleratorTypes.aggregatedList", status=200, body={"items": {}, "warning": warning})
    cloud = account(gcp, tmp_path, regions=["us-central1"])
    assert [gap.why for gap in cloud.available(Requirements(instance_type=T4, **want)).unanswered] == ["some"]


@pytest.mark.parametrize(
    ("want", "field"),
    [
        ({"instance_type": "n1-standard-4+t4:3"}, "--instance-type"),
        ({"gpu": "t4", "region": "us-central9"}, "--region"),
        ({"gpu": "t4", "zone": "us-central1-z"}, "--zone"),
        ({"gpu": "t4", "zone": "us-central1"}, "--zone"),
    ],
)
def test_what_does_not_exist_is_named(cloud, want, field):
    with pytest.raises(InvalidRequest) as refused:
        cloud.available(Requirements(**want))
    assert refused.value.field == field


def test_prices_are_those_of_the_dated_list(gcp, cloud):
    items = [offered(cloud), offered(cloud, market=Market.SPOT)]
    with calls(gcp) as asked:
        listed, spot = cloud.prices(items)
    assert asked == []
    assert Money.usd("0") < spot.per_hour < listed.per_hour
    assert listed.source
    assert listed.as_of


# What a launch comes to


def test_a_launch_is_made_exact_by_few_reads(gcp, cloud):
    offered(cloud)
    with calls(gcp) as asked:
        found = resolved(cloud)
    assert sorted(asked) == [
        "compute.firewalls.list",
        "compute.images.getFromFamily",
        "compute.machineTypes.get",
        "compute.networks.get",
        "compute.projects.get",
        "compute.regions.get",
    ]
    assert found.call["image"].startswith("projects/deeplearning-platform-release/global/images/common-cu129-ubuntu")
    assert found.call["callers"] == {"caller": CALLER}
    assert [one.stored_as for one in found.attached] == ["pd-balanced", "external_ip_on_standard_vm"]
    assert [one.while_stopped for one in found.attached] == [True, False]
    assert found.guards[-1].startswith("a timer in the cloud, Google's own maxRunDuration, stops it")
    assert found.left_out == ()


def test_a_family_that_is_gone_is_followed_by_the_next(gcp, cloud):
    gcp.faults.add("compute.images.getFromFamily", error="notFound", status=404, times=2)
    assert "cu128-ubuntu-2204-nvidia-570" in resolved(cloud).call["image"]


def test_without_any_image_with_a_driver_cloud_init_installs_it(gcp, cloud):
    gcp.faults.add("compute.images.getFromFamily", error="notFound", status=404, times=4)
    found = resolved(cloud)
    assert found.call["image"].startswith("projects/ubuntu-os-cloud/")
    assert found.driver == {}
    assert "cloud-init installs the driver" in found.remarks[0]


@pytest.mark.parametrize(
    ("name", "driver"), [("n1-standard-4+v100:1", "cuda-drivers-580"), ("n1-standard-4+k80:1", "cuda-drivers-470")]
)
def test_an_old_gpu_gets_the_last_driver_that_knows_it(cloud, name, driver):
    found = resolved(cloud, name)
    assert found.driver["driver"] == driver
    assert found.call["image"].startswith("projects/ubuntu-os-cloud/global/images/ubuntu-2")
    assert found.call["secure_boot"] is False
    assert driver in found.remarks[0]


@pytest.mark.parametrize(
    ("named", "meant"),
    [
        ("projects/debian-cloud/global/images/family/debian-12", "projects/debian-cloud/global/images/debian-12"),
        ("projects/ubuntu-os-cloud/global/images/family/ubuntu-2204-lts", "projects/ubuntu-os-cloud/global/images/"),
    ],
)
def test_an_image_is_named_as_google_names_it(cloud, named, meant):
    found = resolved(cloud, setup=Setup(image=named, network=Network(ssh_from=HERE)))
    assert found.call["image"].startswith(meant)
    debian = "debian" in named
    assert found.call["cloud_init"] is not debian
    assert found.left_out == (("cloud_init",) if debian else ())
    assert any("whether the image" in said for said in found.remarks)


@pytest.mark.parametrize(
    ("setup", "field"),
    [
        (Setup(image="no-such-image"), "--image"),
        (Setup(image="projects/nobody-knows/global/images/x"), "--image"),
        (Setup(disk_gb=10), "--disk"),
        (Setup(disk_gb=100_000), "--disk"),
        (Setup(network=Network(subnet="nowhere")), "--subnet"),
        (Setup(network=Network(subnet="Sub Net")), "--subnet"),
        (Setup(network=Network(subnet="projects/host/regions/us-east1/subnetworks/x")), "--subnet"),
        (Setup(network=Network(security_group="Lab SSH")), "--security-group"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_made(gcp, cloud, setup, field):
    with pytest.raises(InvalidRequest) as refused:
        resolved(cloud, setup=setup)
    assert refused.value.field == field
    assert not any(call.action.endswith(("insert", "patch")) for call in gcp.calls)


def test_a_network_that_is_not_there_is_named_with_the_way_out(gcp, tmp_path):
    with pytest.raises(InvalidRequest) as refused:
        resolved(account(gcp, tmp_path, network="lab-net"))
    assert refused.value.field == "accounts.lab.network"
    assert "gcloud compute networks create lab-net" in refused.value.next


def test_a_zone_that_lacks_the_machine_type_is_no_capacity(gcp, cloud):
    item = offered(cloud)
    gcp.faults.add("compute.machineTypes.get", error="notFound", status=404)
    with pytest.raises(NoCapacity):
        resolved(cloud)
    gcp.faults.deny("compute.machineTypes.get")
    assert any(f"whether {item.zone} has n1-standard-4" in said for said in resolved(cloud).remarks)


@pytest.mark.parametrize(("metric", "region"), [("NVIDIA_T4_GPUS", "us-central1"), ("GPUS_ALL_REGIONS", "")])
def test_a_quota_of_the_region_and_that_of_all_are_read_before(gcp, cloud, metric, region):
    gcp.limit(metric, 0, region)
    with pytest.raises(QuotaExceeded) as refused:
        resolved(cloud)
    assert metric in refused.value.next
    assert refused.value.next.startswith("Request more: https://console.cloud.google.com/")


def test_a_quota_that_cannot_be_read_is_said_and_keeps_nobody_from_launching(gcp, cloud):
    gcp.faults.deny("compute.regions.get")
    assert any("could not be read" in said for said in resolved(cloud).remarks)


def test_what_is_bound_lost_or_not_heard_is_said(gcp, cloud, tmp_path):
    setup = Setup(volume=Volume("data", 50), network=Network(ssh_from=HERE))
    found = resolved(cloud, setup=setup, market=Market.SPOT, max_price=Money.usd("9"))
    said = " ".join(found.remarks)
    assert "bound to us-central1-a" in said
    assert "takes no maximum price" in said
    assert "its disk stays" in said
    assert [one.stored_as for one in found.attached][1] == "external_ip_on_spot_vm"
    who = "worker@cloudgpu-test.iam.gserviceaccount.com"
    assert any(who in one for one in resolved(account(gcp, tmp_path, service_account=who)).remarks)


def test_a_fault_of_the_credential_is_not_hidden_by_the_other_looks(gcp, cloud):
    item = offered(cloud)
    gcp.faults.deny("compute.networks.get")
    with pytest.raises(AuthFailed) as refused:
        resolved(cloud, zone=item.zone)
    assert refused.value.value == "compute.networks.get"
    assert (ZONE, USUAL.network.ssh_from) == (item.zone, HERE)
