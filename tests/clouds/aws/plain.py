"""Plain boto3 for tests: clients that send once, the newest image, a launch, a look."""

from __future__ import annotations

import json
import os
from functools import cache

import boto3
from botocore.config import Config

from cloudgpu.config.files.user_files import data_dir
from cloudgpu.providers.aws.account.roles import timer_trust

ONCE = Config(retries={"total_max_attempts": 1})
UBUNTU_DLAMI = "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id"


def client(service="ec2", region="us-east-1"):
    """Return a client that sends each call once; to make one takes longer than its call."""
    return _client(service, region, os.environ.get("AWS_ENDPOINT_URL"), os.environ.get("AWS_ACCESS_KEY_ID"))


@cache
def _client(service, region, _endpoint, _key):
    return boto3.client(service, region_name=region, config=ONCE)


def image(region="us-east-1", parameter=UBUNTU_DLAMI):
    """Return the id that a public parameter has in a region."""
    return client("ssm", region).get_parameter(Name=parameter)["Parameter"]["Value"]


def launch(ec2, **more):
    """Launch one g4dn.xlarge, or what `more` says, and return it."""
    asked = {"InstanceType": "g4dn.xlarge", "MinCount": 1, "MaxCount": 1, **more}
    if "ImageId" not in asked:
        asked["ImageId"] = image(ec2.meta.region_name)
    return ec2.run_instances(**asked)["Instances"][0]


def look(ec2, instance_id):
    """Return a machine as DescribeInstances shows it."""
    return ec2.describe_instances(InstanceIds=[instance_id])["Reservations"][0]["Instances"][0]


def spot(**options):
    """Return the market options of a spot launch."""
    return {"MarketType": "spot", "SpotOptions": options}


def role_of_timers(name="cloudgpu-timer", **changed):
    """Make the role of timers, as `cloudgpu init aws` does, and return its ARN; `changed` is what is else of it."""
    document = changed.get("document") or (data_dir("policies") / "permissions" / "aws-timer.json").read_text()
    believed = json.dumps(changed.get("trust") or timer_trust("123456789012", "aws"))
    iam = client("iam")
    role = iam.create_role(RoleName=name, AssumeRolePolicyDocument=believed)["Role"]
    iam.put_role_policy(RoleName=name, PolicyName=name, PolicyDocument=document)
    return role["Arn"]
