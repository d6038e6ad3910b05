"""What is sent to AWS is counted as AWS counts it: each request, by its operation."""

from __future__ import annotations

from cloudgpu.providers.aws.client import Aws
from cloudgpu.providers.base import ProviderSettings
from cloudgpu.providers.shared.calls import request_counts
from cloudgpu.testing import ManualClock
from tests.clouds.aws.fixtures import aws, aws_process

__all__ = ["aws", "aws_process"]


def test_each_request_to_aws_is_counted_once_by_its_operation(aws, tmp_path):
    one = Aws(ProviderSettings("aws", {}, tmp_path, ManualClock(), lambda _: None, "ledger"))
    before = request_counts()
    assert one.regions()
    one.ec2("us-east-1").describe_instances()
    one.ec2("us-west-2").describe_instances()
    more = {name: count - before.get(name, 0) for name, count in request_counts().items()}
    assert {name: count for name, count in more.items() if count} == {
        ("aws", "DescribeRegions"): 1,
        ("aws", "DescribeInstances"): 2,
    }
