"""The role under which EventBridge Scheduler stops and ends machines of cloudgpu's when their time is over."""

from __future__ import annotations

from typing import Any

from cloudgpu.core.model.account import MachineRole
from cloudgpu.providers.aws.account import iam
from cloudgpu.providers.aws.client import Aws
from cloudgpu.providers.aws.compute.schedules import GROUP

NAME = "cloudgpu-timer"
_WHY = "Lets EventBridge Scheduler stop and end machines that bear a cloudgpu-id, and nothing else"


def read_role(aws: Aws, document: str) -> MachineRole:
    """Return what there is of the role, and in which account. Three calls; changes nothing."""
    number, who = iam.caller(aws)
    arn = f"arn:{_partition(who)}:iam::{number}:role/{NAME}"
    return MachineRole(f"AWS account {number}, as {who}", iam.read_parts(aws, NAME, document), {"timer_role": arn})


def make(aws: Aws, document: str) -> None:
    """Make what is missing and put the policy right. Idempotent. Raises InvalidRequest for somebody else's role."""
    number, who = iam.caller(aws)
    iam.make_role(aws, NAME, trust(number, _partition(who)), _WHY, document)


def remove(aws: Aws) -> None:
    """Take the role and its policy away, where they are ours. Idempotent."""
    iam.remove_role(aws, NAME)


def trust(number: str, partition: str) -> dict[str, Any]:
    """Return who may take the role: schedules of our group in this account alone, whoever else uses the service.

    Source: EventBridge Scheduler user guide, Confused deputy prevention ("must be a schedule group").
    """
    ours = {
        "StringEquals": {"aws:SourceAccount": number},
        "ArnLike": {"aws:SourceArn": f"arn:{partition}:scheduler:*:{number}:schedule-group/{GROUP}"},
    }
    service = {"Service": "scheduler.amazonaws.com"}
    statement = {"Effect": "Allow", "Principal": service, "Action": "sts:AssumeRole", "Condition": ours}
    return {"Version": "2012-10-17", "Statement": [statement]}


def _partition(arn: str) -> str:
    """Return the part of AWS that an ARN lies in: `aws`, `aws-cn`, `aws-us-gov`."""
    return arn.split(":")[1]
