"""IAM roles that cloudgpu creates: that of machines, which report when they were last in use, and that of timers.

A role and its policy have the same name, and the machines' instance profile, too. What has such a name but not our tag
is somebody else's: it is never changed or removed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from cloudgpu.core.model.account import ProviderRole, RolePart
from cloudgpu.errors import InvalidRequest, ProviderUnavailable
from cloudgpu.providers.aws.client import Aws, call_tolerating
from cloudgpu.providers.aws.compute.schedules import SCHEDULE_GROUP

TAG, VALUE = "cloudgpu-made-by", "init"  # the tag of what `cloudgpu init` created
MAX_READS = 20  # a second apart, until IAM shows what was just created
ROLE, POLICY, PROFILE = "IAM role", "policy of the role", "instance profile"
MACHINE_ROLE_NAME, TIMER_ROLE_NAME = "cloudgpu-machine", "cloudgpu-timer"  # the names of roles and what belongs to them
MACHINE_TRUST = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}],
}
_MACHINE_DESCRIPTION = "Lets a GPU machine write its own cloudgpu-last-active tag, and nothing else"
_TIMER_DESCRIPTION = "Lets EventBridge Scheduler stop and end machines that bear a cloudgpu-id, and nothing else"
Part = dict[str, Any]  # a role or an instance profile, as IAM returns it: what `cloudgpu init` creates


def caller_identity(aws: Aws) -> tuple[str, str]:
    """Return the account's number and the ARN of the caller. One call, which needs no permission."""
    with aws.calling("sts:GetCallerIdentity", aws.options.home_region):
        found = aws.client("sts", aws.options.home_region).get_caller_identity()
    return found["Account"], found["Arn"]


def _read_parts(aws: Aws, name: str, document: str) -> tuple[RolePart, RolePart]:
    """Return whether a role exists, and has the policy `document` (JSON). Two calls; changes nothing."""
    found = _role(aws, name)
    is_ours = found is None or _is_ours(found)
    is_current = found is not None and is_ours and _policy(aws, name) == json.loads(document)
    role = RolePart(ROLE, name, exists=found is not None, is_ours=is_ours)
    return role, RolePart(POLICY, name, exists=is_current, is_ours=is_ours)


def _make_role(aws: Aws, name: str, trust: Mapping[str, Any], description: str, document: str) -> None:
    """Create the role where there is none, and set its policy; `trust` is the document that says who may assume it."""
    role = _role(aws, name) or _create_part(
        aws,
        "CreateRole",
        lambda: _role(aws, name),
        RoleName=name,
        AssumeRolePolicyDocument=json.dumps(trust),
        Description=description,
    )
    _check_ours(ROLE, name, role)
    if _policy(aws, name) != json.loads(document):
        _call_iam(aws, "PutRolePolicy", name, RoleName=name, PolicyName=name, PolicyDocument=document)


def _remove_role(aws: Aws, name: str) -> None:
    """Delete the role and its policy, where they are ours."""
    found = _role(aws, name)
    if found is not None and _is_ours(found):
        _call_iam(aws, "DeleteRolePolicy", name, tolerated="NoSuchEntity", RoleName=name, PolicyName=name)
        _call_iam(aws, "DeleteRole", name, tolerated="NoSuchEntity", RoleName=name)


def _role(aws: Aws, name: str) -> Part | None:
    """Return the role of this name, None for none."""
    answer = _call_iam(aws, "GetRole", name, tolerated="NoSuchEntity", RoleName=name)
    return None if answer is None else dict(answer["Role"])


def _policy(aws: Aws, name: str) -> Any:
    answer = _call_iam(aws, "GetRolePolicy", name, tolerated="NoSuchEntity", RoleName=name, PolicyName=name)
    return None if answer is None else answer["PolicyDocument"]


def _create_part(aws: Aws, action: str, read: Callable[[], Part | None], **parameters: Any) -> Part:
    """Create a tagged part; one that somebody created meanwhile is read, so that its tag is checked too."""
    tags, name = [{"Key": TAG, "Value": VALUE}], parameters.get("RoleName") or parameters["InstanceProfileName"]
    if _call_iam(aws, action, name, tolerated="EntityAlreadyExists", Tags=tags, **parameters) is not None:
        return {"Tags": tags}
    for _ in range(MAX_READS):  # what was made a moment ago may not be shown at once
        part = read()
        if part is not None:
            return part
        aws.pause(1)
    raise ProviderUnavailable(f"AWS says that {name} exists and does not show it.", field="provider", next="Try again.")


def _call_iam(aws: Aws, action: str, name: str, *, tolerated: str = "", **parameters: Any) -> Any:
    """Call IAM about the role or profile `name`; return None where it answers with the error `tolerated`."""
    region = aws.options.home_region  # IAM has one endpoint for all of them
    found = call_tolerating(
        aws, aws.client("iam", region), action, region, f"iam:{action}", name, (tolerated,), **parameters
    )
    return None if found == tolerated else found


def _is_ours(part: Part) -> bool:
    """Say whether a part bears the tag of `cloudgpu init`."""
    return {"Key": TAG, "Value": VALUE} in part.get("Tags", [])


def _check_ours(part_kind: str, name: str, part: Part) -> None:
    """Raise InvalidRequest for a part of this name that is somebody else's."""
    if not _is_ours(part):
        raise InvalidRequest(
            f"There is an {part_kind} called {name} already that cloudgpu init did not create "
            f"(it lacks the tag {TAG}).",
            field="instance_profile" if name == MACHINE_ROLE_NAME else "timer_role",
            value=name,
            next=f"Remove or rename it, or tag it {TAG}={VALUE} if it is meant for this.",
        )


# The role of machines


def read_machine_role(aws: Aws, document: str) -> ProviderRole:
    """Return which parts of the role exist with the policy `document` (JSON), and in which account. Four calls."""
    account_id, caller_arn = caller_identity(aws)
    parts, profile = _read_parts(aws, MACHINE_ROLE_NAME, document), _profile(aws)
    profile_part = RolePart(
        PROFILE, MACHINE_ROLE_NAME, exists=_has_role(profile), is_ours=profile is None or _is_ours(profile)
    )
    return ProviderRole(
        f"AWS account {account_id}, as {caller_arn}", (*parts, profile_part), {"instance_profile": MACHINE_ROLE_NAME}
    )


def make_machine_role(aws: Aws, document: str) -> None:
    """Create what is missing and set the policy `document` (JSON). Idempotent; two processes may do it at once.

    Raises InvalidRequest for a role or profile of this name that is not ours, or for a profile that holds another
    role; AuthFailed naming the action.
    """
    _make_role(aws, MACHINE_ROLE_NAME, MACHINE_TRUST, _MACHINE_DESCRIPTION, document)
    profile = _profile(aws) or _create_part(
        aws, "CreateInstanceProfile", lambda: _profile(aws), InstanceProfileName=MACHINE_ROLE_NAME
    )
    _check_ours(PROFILE, MACHINE_ROLE_NAME, profile)
    if not _has_role(profile):
        names = {"InstanceProfileName": MACHINE_ROLE_NAME, "RoleName": MACHINE_ROLE_NAME}
        if _call_iam(aws, "AddRoleToInstanceProfile", MACHINE_ROLE_NAME, tolerated="LimitExceeded", **names) is None:
            _check_role(_profile(aws))  # it holds one role at most: ours, where another process was faster


def remove_machine_role(aws: Aws) -> None:
    """Delete the role, its policy and the profile, where they are ours. Idempotent.

    Raises InvalidRequest where AWS keeps one, because somebody attached something else to it.
    """
    profile = _profile(aws)
    if profile is not None and _is_ours(profile):
        for one in profile["Roles"]:
            names = {"InstanceProfileName": MACHINE_ROLE_NAME, "RoleName": one["RoleName"]}
            _call_iam(aws, "RemoveRoleFromInstanceProfile", MACHINE_ROLE_NAME, tolerated="NoSuchEntity", **names)
        _call_iam(
            aws,
            "DeleteInstanceProfile",
            MACHINE_ROLE_NAME,
            tolerated="NoSuchEntity",
            InstanceProfileName=MACHINE_ROLE_NAME,
        )
    _remove_role(aws, MACHINE_ROLE_NAME)


def _profile(aws: Aws) -> dict[str, Any] | None:
    answer = _call_iam(
        aws, "GetInstanceProfile", MACHINE_ROLE_NAME, tolerated="NoSuchEntity", InstanceProfileName=MACHINE_ROLE_NAME
    )
    return None if answer is None else dict(answer["InstanceProfile"])


def _check_role(profile: dict[str, Any] | None) -> None:
    """Raise InvalidRequest for a profile with another role: machines would get the rights of that one."""
    if not _has_role(profile):
        roles = ", ".join(one["RoleName"] for one in (profile or {}).get("Roles", [])) or "another role"
        raise InvalidRequest(
            f"The instance profile {MACHINE_ROLE_NAME} already holds {roles}, and a profile holds one role.",
            field="instance_profile",
            value=MACHINE_ROLE_NAME,
            next="Take that role out of the profile, and run it again.",
        )


def _has_role(profile: dict[str, Any] | None) -> bool:
    return profile is not None and any(one["RoleName"] == MACHINE_ROLE_NAME for one in profile.get("Roles", []))


# The role of timers


def read_timer_role(aws: Aws, document: str) -> ProviderRole:
    """Return what there is of the role of timers (not of machines, despite the type). Three calls; changes nothing."""
    account_id, caller_arn = caller_identity(aws)
    arn = f"arn:{_partition(caller_arn)}:iam::{account_id}:role/{TIMER_ROLE_NAME}"
    return ProviderRole(
        f"AWS account {account_id}, as {caller_arn}", _read_parts(aws, TIMER_ROLE_NAME, document), {"timer_role": arn}
    )


def make_timer_role(aws: Aws, document: str) -> None:
    """Create what is missing and set the policy. Idempotent. Raises InvalidRequest for somebody else's role."""
    account_id, caller_arn = caller_identity(aws)
    _make_role(aws, TIMER_ROLE_NAME, timer_trust(account_id, _partition(caller_arn)), _TIMER_DESCRIPTION, document)


def remove_timer_role(aws: Aws) -> None:
    """Delete the role and its policy, where they are ours. Idempotent."""
    _remove_role(aws, TIMER_ROLE_NAME)


def timer_trust(account_id: str, partition: str) -> dict[str, Any]:
    """Return the trust policy of the role: only schedules of our schedule group in this account may assume it.

    Source: EventBridge Scheduler user guide, Confused deputy prevention ("must be a schedule group").
    """
    condition = {
        "StringEquals": {"aws:SourceAccount": account_id},
        "ArnLike": {"aws:SourceArn": f"arn:{partition}:scheduler:*:{account_id}:schedule-group/{SCHEDULE_GROUP}"},
    }
    service = {"Service": "scheduler.amazonaws.com"}
    statement = {"Effect": "Allow", "Principal": service, "Action": "sts:AssumeRole", "Condition": condition}
    return {"Version": "2012-10-17", "Statement": [statement]}


def _partition(arn: str) -> str:
    """Return the partition of AWS in an ARN: `aws`, `aws-cn`, `aws-us-gov`."""
    return arn.split(":")[1]
