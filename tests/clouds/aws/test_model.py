from __future__ import annotations

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ConnectionClosedError

ONCE = Config(retries={"total_max_attempts": 1})
TORCH = "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id"


def client(service="ec2", region="us-east-1"):
    return boto3.client(service, region_name=region, config=ONCE)


def image(region="us-east-1", parameter=TORCH):
    return client("ssm", region).get_parameter(Name=parameter)["Parameter"]["Value"]


def launch(ec2, **more):
    asked = {"InstanceType": "g4dn.xlarge", "MinCount": 1, "MaxCount": 1, **more}
    asked.setdefault("ImageId", image(ec2.meta.region_name))
    return ec2.run_instances(**asked)["Instances"][0]


def looked(ec2, instance_id):
    return ec2.describe_instances(InstanceIds=[instance_id])["Reservations"][0]["Instances"][0]


def test_the_same_token_launches_one_machine(aws):
    ec2 = client()
    first = launch(ec2, ClientToken="one")
    assert launch(ec2, ClientToken="one")["InstanceId"] == first["InstanceId"]
    assert len(aws.instances()) == 1


def test_a_lost_reply_can_be_asked_for_again(aws):
    ec2 = client()
    aws.faults.lose_reply("RunInstances")
    with pytest.raises(ConnectionClosedError):
        launch(ec2, ClientToken="one")
    (made,) = aws.instances()
    assert launch(ec2, ClientToken="one")["InstanceId"] == made.id
    assert [call.answered for call in aws.called("RunInstances")] == [False, True]


def test_spot_has_a_request_with_its_tags(aws):
    ec2 = client()
    tags = [{"ResourceType": "spot-instances-request", "Tags": [{"Key": "cloudgpu-id", "Value": "x"}]}]
    made = launch(ec2, InstanceMarketOptions={"MarketType": "spot"}, TagSpecifications=tags)
    assert made["InstanceLifecycle"] == "spot"
    (request,) = ec2.describe_spot_instance_requests()["SpotInstanceRequests"]
    assert (request["InstanceId"], request["SpotInstanceRequestId"]) == (
        made["InstanceId"],
        made["SpotInstanceRequestId"],
    )
    assert request["Tags"] == [{"Key": "cloudgpu-id", "Value": "x"}]


def test_addresses_are_of_this_machine(aws):
    ec2 = client()
    made = looked(ec2, launch(ec2)["InstanceId"])
    assert made["PublicIpAddress"].startswith("127.20.")
    assert made["PrivateIpAddress"].startswith("127.21.")
