"""IAM roles that cloudgpu creates: that of machines, which report when they were last in use, and that of timers.

A role and its policy have the same name, and the machines' instance profile, too. What has such a name but not our tag
is somebody else's: it is never changed or removed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from cloudgpu.core.model.account import ProviderRole, RolePart
from cloudgpu.core.model.instances import TAG_ID
from cloudgpu.errors import InvalidRequest, ProviderUnavailable
from cloudgpu.providers.aws.client import Aws, call_tolerating
from cloudgpu.providers.aws.compute.schedules import SCHEDULE_GROUP

TAG, VALUE = "cloudgpu-made-by", "init"  # the tag of what `cloudgpu init` created
MAX_READS = 20  # a second apart, until IAM shows what was just created
ROLE, TRUST, POLICY, PROFILE = "IAM role", "trust policy of the role", "policy of the role", "instance profile"
MACHINE_ROLE_NAME, TIMER_ROLE_NAME = "cloudgpu-machine", "cloudgpu-timer"  # the names of roles and what belongs to them
TIMER_ACTIONS = ("ec2:StopInstances", "ec2:TerminateInstances")  # what the role of timers is for
_NO_TIMER = "so no timer in the cloud ends a machine"
NO_ROLE = f"is not there, {_NO_TIMER}"
_DESCRIPTIONS = {
    MACHINE_ROLE_NAME: "Lets a GPU machine write its own cloudgpu-last-active tag, and nothing else",
    TIMER_ROLE_NAME: "Lets EventBridge Scheduler stop and end machines that bear a cloudgpu-id, and nothing else",
}
_ABSENT = "NoSuchEntity"
_NAME_KEYS = ("InstanceProfileName", "RoleName", "PolicySourceArn")  # by which calls name what they are about
Part = dict[str, Any]  # a role or an instance profile, as IAM returns it: what `cloudgpu init` creates


def caller_identity(aws: Aws) -> tuple[str, str]:
    """Return the account's number and the ARN of the caller. One call, which needs no permission."""
    with aws.calling("sts:GetCallerIdentity", aws.options.home_region):
        found = aws.client("sts", aws.options.home_region).get_caller_identity()
    return found["Account"], found["Arn"]


@dataclass(frozen=True, slots=True)
class _PlannedRole:
    """A role as it is to be in the caller's account (in words): who may assume it (`trust`), what it may (`policy`)."""

    name: str
    account: str
    arn: str
    trust: Mapping[str, Any]
    policy: Mapping[str, Any]


def _planned_role(aws: Aws, name: str, document: str) -> _PlannedRole:
    """Return the role with the policy `document` (JSON), whose ARNs are rewritten for the caller's partition.

    IAM refuses an ARN of another partition, or it would match nothing.
    """
    account_id, caller_arn = caller_identity(aws)
    partition = _partition(caller_arn)
    return _PlannedRole(
        name,
        f"AWS account {account_id}, as {caller_arn}",
        f"arn:{partition}:iam::{account_id}:role/{name}",
        machine_trust(partition) if name == MACHINE_ROLE_NAME else timer_trust(account_id, partition),
        json.loads(document.replace("arn:aws:", f"arn:{partition}:")),
    )


def _read_parts(aws: Aws, role: _PlannedRole) -> tuple[RolePart, ...]:
    """Return whether a role exists, and has its policy. Two calls; changes nothing.

    The trust policy is a part of its own where the role is ours and has another one.
    """
    found = _role(aws, role.name)
    is_ours = found is None or _is_ours(found)
    is_current = found is not None and is_ours and _policy(aws, role.name) == role.policy
    has_other_trust = found is not None and is_ours and not is_same_policy(_trust(found), role.trust)
    return (
        RolePart(ROLE, role.name, exists=found is not None, is_ours=is_ours),
        *(RolePart(TRUST, role.name, exists=False, is_ours=True),) * has_other_trust,
        RolePart(POLICY, role.name, exists=is_current, is_ours=is_ours),
    )


def _make_role(aws: Aws, role: _PlannedRole) -> None:
    """Create the role where there is none, and set its policies."""
    name, trust_text, description = role.name, json.dumps(role.trust), _DESCRIPTIONS[role.name]
    new = {"RoleName": name, "AssumeRolePolicyDocument": trust_text, "Description": description}
    found = _role(aws, name) or _create_part(aws, "CreateRole", lambda: _role(aws, name), **new)
    _check_ours(ROLE, name, found)
    if not is_same_policy(_trust(found), role.trust):
        _call_iam(aws, "UpdateAssumeRolePolicy", RoleName=name, PolicyDocument=trust_text)
    if _policy(aws, name) != role.policy:
        _call_iam(aws, "PutRolePolicy", RoleName=name, PolicyName=name, PolicyDocument=json.dumps(role.policy))


def _remove_role(aws: Aws, name: str) -> None:
    """Delete the role and its policy, where they are ours."""
    found = _role(aws, name)
    if found is not None and _is_ours(found):
        _call_iam(aws, "DeleteRolePolicy", tolerated=_ABSENT, RoleName=name, PolicyName=name)
        _call_iam(aws, "DeleteRole", tolerated=_ABSENT, RoleName=name)


def _role(aws: Aws, name: str) -> Part | None:
    """Return the role of this name, None for none."""
    return _read_part(aws, "GetRole", "Role", RoleName=name)


def _policy(aws: Aws, name: str) -> Part | None:
    return _read_part(aws, "GetRolePolicy", "PolicyDocument", RoleName=name, PolicyName=name)


def _profile(aws: Aws) -> Part | None:
    return _read_part(aws, "GetInstanceProfile", "InstanceProfile", InstanceProfileName=MACHINE_ROLE_NAME)


def _read_part(aws: Aws, action: str, key: str, **parameters: Any) -> Part | None:
    answer: Mapping[str, Any] | None = _call_iam(aws, action, tolerated=_ABSENT, **parameters)
    return None if answer is None else answer[key]


def _trust(role: Part) -> Any:
    """Return the document that says who may assume a role: the SDK decodes it."""
    return role["AssumeRolePolicyDocument"]


def is_same_policy(document: Any, other: Any) -> bool:
    """Say whether two IAM documents mean the same: one value may be a list of one, and no list has an order."""
    return bool(_normal_form(document) == _normal_form(other))


def _normal_form(value: Any) -> Any:
    """Return a part of an IAM document without the names of its statements, with all lists sorted, those of one opened.

    Sources: IAM user guide, "Grammar of the IAM JSON policy language" (a list of one may be its value alone), "IAM JSON
    policy elements: Sid" (a name, nothing else).
    """
    if isinstance(value, Mapping):
        return {key: _normal_form(one) for key, one in value.items() if key != "Sid"}
    if not isinstance(value, list):
        return value
    ordered = sorted((_normal_form(one) for one in value), key=lambda one: json.dumps(one, sort_keys=True))
    return ordered[0] if len(ordered) == 1 else ordered


def _create_part(aws: Aws, action: str, read: Callable[[], Part | None], **parameters: Any) -> Part:
    """Create a tagged part; one that somebody created meanwhile is read, so that its tag is checked too."""
    tags, name = [{"Key": TAG, "Value": VALUE}], parameters.get("RoleName") or parameters["InstanceProfileName"]
    if _call_iam(aws, action, tolerated="EntityAlreadyExists", Tags=tags, **parameters) is not None:
        return {"Tags": tags, "AssumeRolePolicyDocument": json.loads(parameters.get("AssumeRolePolicyDocument", "{}"))}
    for _ in range(MAX_READS):  # what was made a moment ago may not be shown at once
        part = read()
        if part is not None:
            return part
        aws.pause(1)
    raise ProviderUnavailable(f"AWS says that {name} exists and does not show it.", field="provider", next="Try again.")


def _call_iam(aws: Aws, action: str, *, tolerated: str = "", **parameters: Any) -> Any:
    """Call IAM about a role or a profile; return None where it answers with the error `tolerated`."""
    region = aws.options.home_region  # IAM has one endpoint for all of them
    name = next(str(parameters[key]) for key in _NAME_KEYS if key in parameters)
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


def machine_trust(partition: str) -> dict[str, Any]:
    """Return the trust policy of the machines' role. EC2's principal has a name of its own in China.

    Source: Terraform's AWS provider, aws_service_principal (pull request 47141); IAM's console in China writes it so.
    """
    service = "ec2.amazonaws.com.cn" if partition == "aws-cn" else "ec2.amazonaws.com"
    return _trust_policy({"Service": service})


def _trust_policy(principal: Mapping[str, str], **more: Any) -> dict[str, Any]:
    statement = {"Effect": "Allow", "Principal": principal, "Action": "sts:AssumeRole", **more}
    return {"Version": "2012-10-17", "Statement": [statement]}


def read_machine_role(aws: Aws, document: str) -> ProviderRole:
    """Return which parts of the role exist with the policy `document` (JSON), and in which account. Four calls."""
    role, name = _planned_role(aws, MACHINE_ROLE_NAME, document), MACHINE_ROLE_NAME
    parts, profile = _read_parts(aws, role), _profile(aws)
    part = RolePart(PROFILE, name, exists=_has_role(profile), is_ours=profile is None or _is_ours(profile))
    return ProviderRole(role.account, (*parts, part), {"instance_profile": name})


def make_machine_role(aws: Aws, document: str) -> None:
    """Create what is missing and set the policy `document` (JSON). Idempotent; two processes may do it at once.

    Raises InvalidRequest for a role or profile of this name that is not ours, or for a profile that holds another
    role; AuthFailed naming the action.
    """
    _make_role(aws, _planned_role(aws, MACHINE_ROLE_NAME, document))
    named = {"InstanceProfileName": MACHINE_ROLE_NAME}
    profile = _profile(aws) or _create_part(aws, "CreateInstanceProfile", lambda: _profile(aws), **named)
    _check_ours(PROFILE, MACHINE_ROLE_NAME, profile)
    if not _has_role(profile):
        added = _call_iam(
            aws, "AddRoleToInstanceProfile", tolerated="LimitExceeded", **named, RoleName=MACHINE_ROLE_NAME
        )
        if added is None:
            _check_role(_profile(aws))  # it holds one role at most: ours, where another process was faster


def remove_machine_role(aws: Aws) -> None:
    """Delete the role, its policy and the profile, where they are ours. Idempotent.

    Raises InvalidRequest where AWS keeps one, because somebody attached something else to it.
    """
    profile, named = _profile(aws), {"InstanceProfileName": MACHINE_ROLE_NAME}
    if profile is not None and _is_ours(profile):
        for one in profile["Roles"]:
            _call_iam(aws, "RemoveRoleFromInstanceProfile", tolerated=_ABSENT, **named, RoleName=one["RoleName"])
        _call_iam(aws, "DeleteInstanceProfile", tolerated=_ABSENT, **named)
    _remove_role(aws, MACHINE_ROLE_NAME)


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
    role = _planned_role(aws, TIMER_ROLE_NAME, document)
    return ProviderRole(role.account, _read_parts(aws, role), {"timer_role": role.arn})


def make_timer_role(aws: Aws, document: str) -> None:
    """Create what is missing and set the policy. Idempotent. Raises InvalidRequest for somebody else's role."""
    _make_role(aws, _planned_role(aws, TIMER_ROLE_NAME, document))


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
    return _trust_policy({"Service": "scheduler.amazonaws.com"}, Condition=condition)


def timer_role_state(aws: Aws, arn: str) -> tuple[bool | None, str]:
    """Return whether AWS's scheduler can end machines by the role `arn`, and a clause that says so or why not.

    None: only AWS can evaluate that. Two calls. Raises AuthFailed where this credential may not read the role.
    """
    role = _role(aws, arn.rpartition("/")[2])
    if role is None or role["Arn"] != arn:
        return False, NO_ROLE
    may_assume = _schedules_may_assume(arn, _trust(role))
    if may_assume is None:
        return None, "has a trust policy that only AWS can evaluate"
    if not may_assume:
        return False, f"cannot be assumed by AWS's scheduler, {_NO_TIMER}"
    rights = _timer_rights(aws, arn)
    if denied := [action for action in TIMER_ACTIONS if rights.get(action) is False]:
        return False, f"may not do {' and '.join(denied)}, by its policies, its boundary or the organisation's"
    if not all(map(rights.get, TIMER_ACTIONS)):
        return None, "has policies that only AWS can evaluate"
    return True, "lets AWS's scheduler stop and end machines of cloudgpu"


def _schedules_may_assume(arn: str, trust: Mapping[str, Any]) -> bool | None:
    """Return whether the trust policy of the role `arn` lets schedules of our group assume it; None: not known."""
    (expected,) = timer_trust(arn.split(":")[4], _partition(arn))["Statement"]
    known_conditions, statements = _conditions(expected), _listed(trust.get("Statement", []))
    allowing = [one for one in statements if one.get("Effect") == "Allow" and _names_scheduler(one)]
    if not allowing and not any(_may_name_everybody(one) for one in statements):
        return False
    has_deny = any(one.get("Effect") == "Deny" for one in statements)
    return True if not has_deny and any(_conditions(one) <= known_conditions for one in allowing) else None


def _timer_rights(aws: Aws, arn: str) -> dict[str, bool | None]:
    """Return which of TIMER_ACTIONS the role `arn` may do to a machine of cloudgpu; None: only AWS can evaluate that.

    IAM's policy simulator evaluates all policies of the role, its permissions boundary and the organisation's service
    control policies, without those that have a condition (IAM user guide, "IAM policy simulator").
    """
    _, partition, _, _, account_id, _ = arn.split(":")
    machine_arn = f"arn:{partition}:ec2:{aws.options.home_region}:{account_id}:instance/i-0123456789abcdef0"
    tag = {"ContextKeyName": f"aws:ResourceTag/{TAG_ID}", "ContextKeyValues": ["cg-1"], "ContextKeyType": "string"}
    named: dict[str, Any] = {"PolicySourceArn": arn, "ActionNames": list(TIMER_ACTIONS), "ResourceArns": [machine_arn]}
    results = _call_iam(aws, "SimulatePrincipalPolicy", **named, ContextEntries=[tag])["EvaluationResults"]
    return {one["EvalActionName"]: _decision(one) for one in results}


def _decision(result: Mapping[str, Any]) -> bool | None:
    """Return whether the simulator allows an action; None where it lacked a value of the request to decide that."""
    if result["EvalDecision"] == "allowed":
        return True
    each = (result, *result.get("ResourceSpecificResults", ()))
    return None if any(one.get("MissingContextValues") for one in each) else False


def _names_scheduler(statement: Mapping[str, Any]) -> bool:
    """Say whether a statement of a trust policy is about EventBridge Scheduler assuming the role.

    Names of actions are read without regard to case, with `*` and `?` (IAM user guide, "Action"). NotAction is about
    all other actions.
    """
    principal = statement.get("Principal")
    services = _listed(principal.get("Service", [])) if isinstance(principal, Mapping) else []
    return "scheduler.amazonaws.com" in services and (
        _covers_assume_role(statement.get("Action", []))
        or ("NotAction" in statement and not _covers_assume_role(statement["NotAction"]))
    )


def _may_name_everybody(statement: Mapping[str, Any]) -> bool:
    principal = statement.get("Principal")
    return not isinstance(principal, Mapping) or any("*" in _listed(names) for names in principal.values())


def _covers_assume_role(actions: Any) -> bool:
    return any(fnmatchcase("sts:assumerole", str(pattern).casefold()) for pattern in _listed(actions))


def _conditions(statement: Mapping[str, Any]) -> set[tuple[str, str, str]]:
    """Return the conditions of a statement: operator, key, and the values as text."""
    conditions = statement.get("Condition", {}).items()
    return {
        (operator, key, json.dumps(_normal_form(values))) for operator, of in conditions for key, values in of.items()
    }


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _partition(arn: str) -> str:
    """Return the partition of AWS in an ARN: `aws`, `aws-cn`, `aws-us-gov`."""
    return arn.split(":")[1]
