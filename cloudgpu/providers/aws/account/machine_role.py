"""The role under which machines say when they were last in use: an IAM role, its policy, an instance profile.

All three bear one name. What bears that name and not our tag is somebody else's: never changed, never removed.
"""

from __future__ import annotations

from typing import Any

from cloudgpu.core.model.account import MachineRole, RolePart
from cloudgpu.providers.aws.account import iam
from cloudgpu.providers.aws.client import Aws

NAME = "cloudgpu-machine"
TRUST = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}],
}
PROFILE = "instance profile"
_WHY = "Lets a GPU machine write its own cloudgpu-last-active tag, and nothing else"


def read_role(aws: Aws, document: str) -> MachineRole:
    """Return what there is of the role, and in which account. Four calls; changes nothing."""
    number, who = iam.caller(aws)
    parts, profile = iam.read_parts(aws, NAME, document), _profile(aws)
    joined = RolePart(PROFILE, NAME, exists=_joined(profile), is_ours=profile is None or iam.is_ours(profile))
    return MachineRole(f"AWS account {number}, as {who}", (*parts, joined), {"instance_profile": NAME})


def make(aws: Aws, document: str) -> None:
    """Make what is missing and put the policy right. Idempotent, and may run beside itself.

    Raises InvalidRequest for a role or profile of this name that is not ours, AuthFailed naming the action.
    """
    iam.make_role(aws, NAME, TRUST, _WHY, document)
    made = _profile(aws) or iam.create_part(
        aws, "CreateInstanceProfile", lambda: _profile(aws), InstanceProfileName=NAME
    )
    iam.check_ours(PROFILE, NAME, made)
    if not _joined(made):
        named = {"InstanceProfileName": NAME, "RoleName": NAME}
        iam.call_iam(aws, "AddRoleToInstanceProfile", NAME, unless="LimitExceeded", **named)


def remove(aws: Aws) -> None:
    """Take the role, its policy and the profile away, where they are ours. Idempotent.

    Raises InvalidRequest where AWS keeps one, because somebody attached something else to it.
    """
    profile = _profile(aws)
    if profile is not None and iam.is_ours(profile):
        for one in profile["Roles"]:
            named = {"InstanceProfileName": NAME, "RoleName": one["RoleName"]}
            iam.call_iam(aws, "RemoveRoleFromInstanceProfile", NAME, unless="NoSuchEntity", **named)
        iam.call_iam(aws, "DeleteInstanceProfile", NAME, unless="NoSuchEntity", InstanceProfileName=NAME)
    iam.remove_role(aws, NAME)


def _profile(aws: Aws) -> dict[str, Any] | None:
    answer = iam.call_iam(aws, "GetInstanceProfile", NAME, unless="NoSuchEntity", InstanceProfileName=NAME)
    return None if answer is None else dict(answer["InstanceProfile"])


def _joined(profile: dict[str, Any] | None) -> bool:
    return profile is not None and any(one["RoleName"] == NAME for one in profile.get("Roles", []))
