"""IAM roles that cloudgpu makes: a role and one policy of it, both of one name, found by their tag.

What bears such a name and not our tag is somebody else's: never changed, never removed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from cloudgpu.core.model.account import RolePart
from cloudgpu.errors import InvalidRequest, ProviderUnavailable
from cloudgpu.providers.aws.client import Aws, call_unless

TAG, VALUE = "cloudgpu-made-by", "init"
SHOWN_WITHIN_S = 20
ROLE, POLICY = "IAM role", "policy of the role"
Part = dict[str, Any]


def caller(aws: Aws) -> tuple[str, str]:
    """Return the account's number and the ARN of whoever asks. One call, which needs no permission."""
    with aws.calling("sts:GetCallerIdentity", aws.options.home_region):
        found = aws.client("sts", aws.options.home_region).get_caller_identity()
    return found["Account"], found["Arn"]


def read_parts(aws: Aws, name: str, document: str) -> tuple[RolePart, RolePart]:
    """Return what there is of a role and of its policy. Two calls; changes nothing."""
    found = role(aws, name)
    ours = found is None or is_ours(found)
    same = found is not None and ours and _policy(aws, name) == json.loads(document)
    return RolePart(ROLE, name, exists=found is not None, is_ours=ours), RolePart(
        POLICY, name, exists=same, is_ours=ours
    )


def make_role(aws: Aws, name: str, trust: Mapping[str, Any], why: str, document: str) -> None:
    """Make the role where there is none, and put its policy right."""
    known = role(aws, name) or create_part(aws, "CreateRole", lambda: role(aws, name), RoleName=name,
                                    AssumeRolePolicyDocument=json.dumps(trust), Description=why)  # fmt: skip
    check_ours(ROLE, name, known)
    if _policy(aws, name) != json.loads(document):
        call_iam(aws, "PutRolePolicy", name, RoleName=name, PolicyName=name, PolicyDocument=document)


def remove_role(aws: Aws, name: str) -> None:
    """Take the role and its policy away, where they are ours."""
    found = role(aws, name)
    if found is not None and is_ours(found):
        call_iam(aws, "DeleteRolePolicy", name, unless="NoSuchEntity", RoleName=name, PolicyName=name)
        call_iam(aws, "DeleteRole", name, unless="NoSuchEntity", RoleName=name)


def role(aws: Aws, name: str) -> Part | None:
    """Return the role of this name, None for none."""
    answer = call_iam(aws, "GetRole", name, unless="NoSuchEntity", RoleName=name)
    return None if answer is None else dict(answer["Role"])


def _policy(aws: Aws, name: str) -> Any:
    answer = call_iam(aws, "GetRolePolicy", name, unless="NoSuchEntity", RoleName=name, PolicyName=name)
    return None if answer is None else answer["PolicyDocument"]


def create_part(aws: Aws, action: str, look: Callable[[], Part | None], **parameters: Any) -> Part:
    """Make a tagged part; one that somebody made meanwhile is read back, so that its tag is checked too."""
    tags, name = [{"Key": TAG, "Value": VALUE}], parameters.get("RoleName") or parameters["InstanceProfileName"]
    if call_iam(aws, action, name, unless="EntityAlreadyExists", Tags=tags, **parameters) is not None:
        return {"Tags": tags}
    for _ in range(SHOWN_WITHIN_S):  # what was made a moment ago may not be shown at once
        found = look()
        if found is not None:
            return found
        aws.pause(1)
    raise ProviderUnavailable(f"AWS says that {name} exists and does not show it.", field="provider", next="Try again.")


def call_iam(aws: Aws, action: str, name: str, *, unless: str = "", **parameters: Any) -> Any:
    """Call IAM about the role or profile `name`; return None where it answers with the error `unless`."""
    region = aws.options.home_region  # IAM has one endpoint for all of them
    found = call_unless(aws, aws.client("iam", region), action, region, f"iam:{action}", name, (unless,), **parameters)
    return None if found == unless else found


def is_ours(part: Part) -> bool:
    """Say whether a part bears the tag of `cloudgpu init`."""
    return {"Key": TAG, "Value": VALUE} in part.get("Tags", [])


def check_ours(what: str, name: str, part: Part) -> None:
    """Raise InvalidRequest for a part of this name that is somebody else's."""
    if not is_ours(part):
        raise InvalidRequest(
            f"There is an {what} called {name} already that cloudgpu init did not create (it lacks the tag {TAG}).",
            field="instance_profile" if name == "cloudgpu-machine" else "timer_role",
            value=name,
            next=f"Remove or rename it, or tag it {TAG}={VALUE} if it is meant for this.",
        )
