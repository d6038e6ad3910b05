"""The role under which machines say when they were last in use: an IAM role, its policy, an instance profile.

All three bear one name. What bears that name and not our tag is somebody else's: never changed, never removed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from cloudgpu.core.facts import MachineRole, RolePart
from cloudgpu.errors import InvalidRequest, ProviderUnavailable
from cloudgpu.providers.aws.client import Aws

NAME = "cloudgpu-machine"
TAG, VALUE = "cloudgpu-made-by", "init"
SHOWN_WITHIN_S = 20
TRUST = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}],
}
ROLE, POLICY, PROFILE = "IAM role", "policy of the role", "instance profile"
_WHY = "Lets a GPU machine write its own cloudgpu-last-active tag, and nothing else"


def look(aws: Aws, document: str) -> MachineRole:
    """Return what there is of the role, and in which account. Three calls; changes nothing."""
    with aws.said("sts:GetCallerIdentity", aws.options.home_region):
        caller = aws.client("sts", aws.options.home_region).get_caller_identity()
    role, profile = _role(aws), _profile(aws)
    same = role is not None and _is_ours(role) and _policy(aws) == json.loads(document)
    return MachineRole(
        where=f"AWS account {caller['Account']}, as {caller['Arn']}",
        parts=(
            RolePart(ROLE, NAME, there=role is not None, ours=role is None or _is_ours(role)),
            RolePart(POLICY, NAME, there=same, ours=role is None or _is_ours(role)),
            RolePart(PROFILE, NAME, there=_joined(profile), ours=profile is None or _is_ours(profile)),
        ),
        options={"instance_profile": NAME},
    )


def make(aws: Aws, document: str) -> None:
    """Make what is missing and put the policy right. Idempotent, and may run beside itself.

    Raises InvalidRequest for a role or profile of this name that is not ours, AuthFailed naming the action.
    """
    role = _role(aws) or _made(aws, "CreateRole", _role, RoleName=NAME, AssumeRolePolicyDocument=json.dumps(TRUST),
                               Description=_WHY)  # fmt: skip
    _check_ours(ROLE, role)
    if _policy(aws) != json.loads(document):
        _do(aws, "PutRolePolicy", RoleName=NAME, PolicyName=NAME, PolicyDocument=document)
    profile = _profile(aws) or _made(aws, "CreateInstanceProfile", _profile, InstanceProfileName=NAME)
    _check_ours(PROFILE, profile)
    if not _joined(profile):
        _do(aws, "AddRoleToInstanceProfile", unless="LimitExceeded", InstanceProfileName=NAME, RoleName=NAME)


def remove(aws: Aws) -> None:
    """Take the role, its policy and the profile away, where they are ours. Idempotent.

    Raises InvalidRequest where AWS keeps one, because somebody attached something else to it.
    """
    profile, role = _profile(aws), _role(aws)
    if profile is not None and _is_ours(profile):
        for one in profile["Roles"]:
            _do(aws, "RemoveRoleFromInstanceProfile", unless="NoSuchEntity", InstanceProfileName=NAME,
                RoleName=one["RoleName"])  # fmt: skip
        _do(aws, "DeleteInstanceProfile", unless="NoSuchEntity", InstanceProfileName=NAME)
    if role is not None and _is_ours(role):
        _do(aws, "DeleteRolePolicy", unless="NoSuchEntity", RoleName=NAME, PolicyName=NAME)
        _do(aws, "DeleteRole", unless="NoSuchEntity", RoleName=NAME)


def _role(aws: Aws) -> dict[str, Any] | None:
    answer = _do(aws, "GetRole", unless="NoSuchEntity", RoleName=NAME)
    return None if answer is None else dict(answer["Role"])


def _profile(aws: Aws) -> dict[str, Any] | None:
    answer = _do(aws, "GetInstanceProfile", unless="NoSuchEntity", InstanceProfileName=NAME)
    return None if answer is None else dict(answer["InstanceProfile"])


def _policy(aws: Aws) -> Any:
    answer = _do(aws, "GetRolePolicy", unless="NoSuchEntity", RoleName=NAME, PolicyName=NAME)
    return None if answer is None else answer["PolicyDocument"]


def _made(aws: Aws, action: str, look: Callable[[Aws], dict[str, Any] | None], **asked: Any) -> dict[str, Any]:
    """Make a tagged part; one that somebody made meanwhile is read back, so that its tag is checked too."""
    tags = [{"Key": TAG, "Value": VALUE}]
    if _do(aws, action, unless="EntityAlreadyExists", Tags=tags, **asked) is not None:
        return {"Tags": tags}
    for _ in range(SHOWN_WITHIN_S):  # what was made a moment ago may not be shown at once
        found = look(aws)
        if found is not None:
            return found
        aws.pause(1)
    raise ProviderUnavailable(f"AWS says that {NAME} exists and does not show it.", field="provider", next="Try again.")


def _do(aws: Aws, action: str, *, unless: str | None = None, **asked: Any) -> Any:
    """Call IAM; return None where it answers with the error `unless`."""
    region = aws.options.home_region  # IAM has one endpoint for all of them
    client = aws.client("iam", region)
    from botocore import xform_name
    from botocore.exceptions import ClientError

    with aws.said(f"iam:{action}", region, value=NAME):
        try:
            return getattr(client, xform_name(action))(**asked)
        except ClientError as error:
            if unless is None or error.response["Error"]["Code"] != unless:
                raise
            return None


def _is_ours(part: dict[str, Any]) -> bool:
    return {"Key": TAG, "Value": VALUE} in part.get("Tags", [])


def _joined(profile: dict[str, Any] | None) -> bool:
    return profile is not None and any(one["RoleName"] == NAME for one in profile.get("Roles", []))


def _check_ours(what: str, part: dict[str, Any]) -> None:
    if not _is_ours(part):
        raise InvalidRequest(
            f"There is an {what} called {NAME} already that cloudgpu init has not made (it lacks the tag {TAG}).",
            field="instance_profile",
            value=NAME,
            next=f"Remove or rename it, or tag it {TAG}={VALUE} if it is meant for this.",
        )
