"""What tests of the aws provider rest on: spot, images, disks, types and prices."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta

import pytest
from botocore.exceptions import ClientError

from cloudgpu.catalog import listed_price
from cloudgpu.core.model.offers import Market
from tests.clouds.aws.images import PUBLIC
from tests.clouds.aws.plain import client, image, launch, look, spot

ROOT = {"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": 64, "VolumeType": "gp3"}}


@pytest.fixture
def ec2(aws):
    return client()


def refused(call, **asked):
    with pytest.raises(ClientError) as said:
        call(**asked)
    return said.value.response["Error"]["Code"]


def request_of(ec2):
    (request,) = ec2.describe_spot_instance_requests()["SpotInstanceRequests"]
    return request


# Spot.


@pytest.mark.soak
def test_spot_has_a_request_with_its_tags(aws, ec2):
    tags = [
        {"ResourceType": kind, "Tags": [{"Key": "cloudgpu-id", "Value": kind}]}
        for kind in ("instance", "volume", "spot-instances-request")
    ]
    made = launch(ec2, InstanceMarketOptions={"MarketType": "spot"}, TagSpecifications=tags)
    assert made["InstanceLifecycle"] == "spot"
    assert request_of(ec2)["InstanceId"] == made["InstanceId"]
    assert request_of(ec2)["SpotInstanceRequestId"] == made["SpotInstanceRequestId"]
    assert request_of(ec2)["Tags"] == [{"Key": "cloudgpu-id", "Value": "spot-instances-request"}]
    assert look(ec2, made["InstanceId"])["Tags"] == [{"Key": "cloudgpu-id", "Value": "instance"}]
    found = ec2.describe_spot_instance_requests(Filters=[{"Name": "tag:cloudgpu-id", "Values": ["spot*"]}])
    assert len(found["SpotInstanceRequests"]) == 1
    (volume,) = ec2.describe_volumes()["Volumes"]
    assert volume["Tags"] == [{"Key": "cloudgpu-id", "Value": "volume"}]


def test_a_one_time_machine_cannot_be_stopped(aws, ec2):
    made = launch(ec2, InstanceMarketOptions=spot())["InstanceId"]
    ec2.describe_instances()
    assert refused(ec2.stop_instances, InstanceIds=[made]) == "UnsupportedOperation"
    ec2.terminate_instances(InstanceIds=[made])
    ec2.describe_instances()
    assert (request_of(ec2)["State"], request_of(ec2)["Type"]) == ("closed", "one-time")
    assert len(aws.instances()) == 1


def test_a_persistent_request_launches_again_until_it_is_cancelled(aws, ec2):
    how = spot(SpotInstanceType="persistent", InstanceInterruptionBehavior="stop")
    first = launch(ec2, InstanceMarketOptions=how)["InstanceId"]
    ec2.describe_instances()
    ec2.stop_instances(InstanceIds=[first])
    assert (look(ec2, first)["State"]["Name"], request_of(ec2)["State"]) == ("stopped", "disabled")
    ec2.start_instances(InstanceIds=[first])
    assert (look(ec2, first)["State"]["Name"], request_of(ec2)["State"]) == ("running", "active")
    ec2.terminate_instances(InstanceIds=[first])
    (second,) = aws.instances(live=True)
    assert second.id != first
    assert request_of(ec2)["InstanceId"] == second.id
    ec2.cancel_spot_instance_requests(SpotInstanceRequestIds=[request_of(ec2)["SpotInstanceRequestId"]])
    assert request_of(ec2)["Status"]["Code"] == "request-canceled-and-instance-running"
    ec2.terminate_instances(InstanceIds=[second.id])
    assert aws.instances(live=True) == []
    assert request_of(ec2)["State"] == "cancelled"


def test_a_machine_taken_back_leaves_the_root_that_was_to_stay(aws, ec2):
    kept = {**ROOT, "Ebs": {**ROOT["Ebs"], "DeleteOnTermination": False}}
    made = launch(ec2, InstanceMarketOptions=spot(), BlockDeviceMappings=[kept])["InstanceId"]
    launch(ec2)
    ec2.describe_instances()
    ec2.terminate_instances(InstanceIds=[one.id for one in aws.instances() if one.id != made])
    aws.interrupt(made)
    assert look(ec2, made)["State"]["Name"] == "terminated"
    assert request_of(ec2)["Status"]["Code"] == "instance-terminated-no-capacity"
    (volume,) = ec2.describe_volumes()["Volumes"]
    assert (volume["State"], volume["Size"], volume["Attachments"]) == ("available", 64, [])


def test_a_persistent_machine_taken_back_may_only_be_stopped(aws, ec2):
    how = spot(SpotInstanceType="persistent", InstanceInterruptionBehavior="stop")
    made = launch(ec2, InstanceMarketOptions=how)["InstanceId"]
    ec2.describe_instances()
    aws.interrupt(made)
    shown = look(ec2, made)
    assert (shown["State"]["Name"], shown["StateReason"]["Code"]) == ("stopped", "Server.SpotInstanceShutdown")
    assert request_of(ec2)["Status"]["Code"] == "instance-stopped-no-capacity"
    assert len(aws.instances()) == 1


def test_a_bid_below_the_price_is_refused(aws, ec2):
    aws.model.spot_prices["g4dn.xlarge", "us-east-1"] = 1
    how = spot(MaxPrice="0.5")
    assert refused(lambda: launch(ec2, InstanceMarketOptions=how)) == "SpotMaxPriceTooLow"
    assert ec2.describe_spot_instance_requests()["SpotInstanceRequests"] == []


def test_spot_prices_are_fresh_and_as_set(aws, ec2):
    aws.model.spot_prices["p3.2xlarge", "us-east-1b"] = 1
    asked = {"InstanceTypes": ["p3.2xlarge", "g4dn.xlarge"], "ProductDescriptions": ["Linux/UNIX"]}
    now = datetime.now(UTC)
    rows = ec2.describe_spot_price_history(**asked, StartTime=now)["SpotPriceHistory"]
    zones = [row["AvailabilityZone"] for row in rows if row["InstanceType"] == "p3.2xlarge"]
    assert zones == ["us-east-1b"]
    prices = {(row["InstanceType"], row["AvailabilityZone"]): float(row["SpotPrice"]) for row in rows}
    assert prices["p3.2xlarge", "us-east-1b"] == 1
    listed = listed_price("aws", "g4dn.xlarge", "us-east-1", Market.ON_DEMAND).per_hour.dollars
    assert prices["g4dn.xlarge", "us-east-1a"] == pytest.approx(float(listed) / 3, abs=1e-4)
    assert all(timedelta(0) < now - row["Timestamp"] < timedelta(hours=1) for row in rows)
    one = ec2.describe_spot_price_history(**asked, StartTime=now, AvailabilityZone="us-east-1b")["SpotPriceHistory"]
    assert {row["AvailabilityZone"] for row in one} == {"us-east-1b"}


def test_a_look_at_spot_prices_that_asks_for_too_much_gets_it(aws, ec2):
    rows = ec2.describe_spot_price_history(InstanceTypes=["p3.2xlarge"])["SpotPriceHistory"]
    assert len({row["ProductDescription"] for row in rows}) == 3
    assert len({row["Timestamp"] for row in rows}) == 2


# Images.


def test_public_parameters_name_images_that_are_there(aws):
    names = [f"{one.parameter}/latest/ami-id" for one in PUBLIC if "deeplearning" in one.parameter]
    names.append("/aws/service/canonical/ubuntu/server/24.04/stable/current/arm64/hvm/ebs-gp3/ami-id")
    for region in ("us-east-1", "eu-west-1"):
        found = client("ssm", region).get_parameters(Names=names)
        assert found["InvalidParameters"] == []
        ids = [one["Value"] for one in found["Parameters"]]
        assert len(client(region=region).describe_images(ImageIds=ids)["Images"]) == len(names)
    assert image("us-east-1") != image("eu-west-1")


def test_the_driver_for_old_gpus_is_found_by_name_and_owner(aws, ec2):
    wanted = "Deep Learning Base Proprietary Nvidia Driver AMI (Amazon Linux 2) Version *"
    found = ec2.describe_images(Owners=["amazon"], Filters=[{"Name": "name", "Values": [wanted]}])["Images"]
    newest = max(found, key=lambda one: one["CreationDate"])
    assert len(found) == 2
    assert newest["Name"].endswith("Version 71.6")
    assert newest["RootDeviceName"] == "/dev/xvda"
    assert (newest["OwnerId"], newest["Architecture"]) == ("898082745236", "x86_64")


def test_an_image_of_a_machine_takes_its_time_and_is_ours(aws, ec2):
    aws.dwell(snapshot=600)
    made = launch(ec2, BlockDeviceMappings=[ROOT])["InstanceId"]
    ec2.describe_instances()
    tags = [{"ResourceType": kind, "Tags": [{"Key": "cloudgpu-id", "Value": kind}]} for kind in ("image", "snapshot")]
    named = ec2.create_image(InstanceId=made, Name="mine", TagSpecifications=tags)["ImageId"]
    (shown,) = ec2.describe_images(Owners=["self"])["Images"]
    (snapshot,) = ec2.describe_snapshots(OwnerIds=["self"])["Snapshots"]
    assert (shown["State"], snapshot["State"]) == ("pending", "pending")
    assert refused(lambda: launch(ec2, ImageId=named)) == "InvalidAMIID.Unavailable"
    aws.advance(601)
    (shown,) = ec2.describe_images(ImageIds=[named])["Images"]
    (snapshot,) = ec2.describe_snapshots(OwnerIds=["self"])["Snapshots"]
    assert (shown["State"], snapshot["State"], snapshot["VolumeSize"]) == ("available", "completed", 64)
    assert shown["BlockDeviceMappings"][0]["Ebs"]["SnapshotId"] == snapshot["SnapshotId"]
    assert shown["Tags"][0]["Value"] == "image"
    assert snapshot["Tags"][0]["Value"] == "snapshot"
    assert refused(ec2.delete_snapshot, SnapshotId=snapshot["SnapshotId"]) == "InvalidSnapshot.InUse"
    assert refused(ec2.create_image, InstanceId=made, Name="mine") == "InvalidAMIName.Duplicate"
    launch(ec2, ImageId=named)
    ec2.deregister_image(ImageId=named)
    ec2.delete_snapshot(SnapshotId=snapshot["SnapshotId"])


def test_an_image_is_registered_only_of_a_complete_snapshot(aws, ec2):
    aws.dwell(snapshot=math.inf)
    volume = ec2.create_volume(AvailabilityZone="us-east-1a", Size=40, VolumeType="gp3")["VolumeId"]
    snapshot = ec2.create_snapshot(VolumeId=volume)["SnapshotId"]
    asked = {
        "Name": "back",
        "Architecture": "x86_64",
        "RootDeviceName": "/dev/sda1",
        "BlockDeviceMappings": [{"DeviceName": "/dev/sda1", "Ebs": {"SnapshotId": snapshot}}],
        "TagSpecifications": [{"ResourceType": "image", "Tags": [{"Key": "cloudgpu-id", "Value": "x"}]}],
    }
    assert refused(ec2.register_image, **asked) == "IncorrectState"
    aws.finish(snapshot)
    made = ec2.register_image(**asked)["ImageId"]
    (shown,) = ec2.describe_images(ImageIds=[made])["Images"]
    assert (shown["State"], shown["Architecture"], shown["Tags"][0]["Value"]) == ("available", "x86_64", "x")
    assert shown["BlockDeviceMappings"][0]["Ebs"]["VolumeSize"] == 40
    launch(ec2, ImageId=made)


# Disks.


def test_a_disk_is_attached_in_its_own_zone_to_one_machine(aws, ec2):
    aws.dwell(pending=10, creating=10)
    made = launch(ec2, Placement={"AvailabilityZone": "us-east-1b"})["InstanceId"]
    far, near = (ec2.create_volume(AvailabilityZone=zone, Size=20)["VolumeId"] for zone in ("us-east-1a", "us-east-1b"))
    asked = {"InstanceId": made, "Device": "/dev/sdf"}
    assert refused(ec2.attach_volume, VolumeId=near, **asked) == "IncorrectState"
    aws.finish(made)
    assert ec2.describe_volumes(VolumeIds=[near])["Volumes"][0]["State"] == "creating"
    assert refused(ec2.attach_volume, VolumeId=near, **asked) == "IncorrectState"
    aws.advance(11)
    assert refused(ec2.attach_volume, VolumeId=far, **asked) == "InvalidVolume.ZoneMismatch"
    ec2.attach_volume(VolumeId=near, **asked)
    assert refused(ec2.attach_volume, VolumeId=near, **asked) == "VolumeInUse"
    ec2.terminate_instances(InstanceIds=[made])
    shown = {one["VolumeId"]: one["State"] for one in ec2.describe_volumes()["Volumes"]}
    assert shown == {far: "available", near: "available"}


# Types and prices.


def test_a_v100_is_offered_in_two_zones_and_a_k80_nowhere(aws):
    found = []
    for region in ("us-east-1", "us-west-2", "eu-west-1"):
        wanted = [{"Name": "instance-type", "Values": ["p3.2xlarge", "p2.xlarge"]}]
        asked = {"LocationType": "availability-zone", "Filters": wanted}
        offers = client(region=region).describe_instance_type_offerings(**asked)["InstanceTypeOfferings"]
        found += [(one["InstanceType"], one["Location"]) for one in offers]
    assert found == [("p3.2xlarge", "us-east-1b"), ("p3.2xlarge", "us-west-2a")]


def test_types_are_those_of_the_region(aws, ec2):
    shown = ec2.describe_instance_types(InstanceTypes=["p3.2xlarge", "g4dn.xlarge"])["InstanceTypes"]
    gpus = {one["InstanceType"]: one["GpuInfo"]["Gpus"][0]["Name"] for one in shown}
    assert gpus == {"p3.2xlarge": "V100", "g4dn.xlarge": "T4"}
    wanted = [{"Name": "instance-type", "Values": ["g5.*", "p3.2xlarge"]}]
    found = {one["InstanceType"] for one in ec2.describe_instance_types(Filters=wanted)["InstanceTypes"]}
    assert {"g5.xlarge", "p3.2xlarge"} <= found
    abroad = client(region="eu-west-1")
    assert refused(abroad.describe_instance_types, InstanceTypes=["p3.2xlarge"]) == "InvalidInstanceType"


def test_a_cpu_machine_has_a_list_price(aws):
    fields = {"instanceType": "t3.small", "regionCode": "us-east-1"}
    asked = [{"Type": "TERM_MATCH", "Field": name, "Value": value} for name, value in fields.items()]
    (product,) = client("pricing").get_products(ServiceCode="AmazonEC2", Filters=asked)["PriceList"]
    (term,) = json.loads(product)["terms"]["OnDemand"].values()
    (dimension,) = term["priceDimensions"].values()
    assert float(dimension["pricePerUnit"]["USD"]) == 0.0208
