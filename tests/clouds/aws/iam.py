"""A reading of IAM documents for the calls that cloudgpu makes: which statement allows what a captured call touches.

AWS decides by more than this (defaults, boundaries, the keys that each resource really has): that a document is enough
on AWS is belief until `doctor --live` has run there. Here conditions on tags are evaluated, which moto's IAM ignores.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from tests.clouds.aws import ec2
from tests.clouds.aws.calls import Call
from tests.clouds.aws.errors import PERMISSIONS

KINDS = {
    "ami": "image",
    "eipalloc": "elastic-ip",
    "eni": "network-interface",
    "i": "instance",
    "key": "key-pair",
    "sg": "security-group",
    "sir": "spot-instances-request",
    "snap": "snapshot",
    "subnet": "subnet",
    "vol": "volume",
    "vpc": "vpc",
}
_ID = re.compile(rf"({'|'.join(KINDS)})-[0-9a-z]+")
_ARN = {"ssm": "arn:aws:ssm:us-east-1:123456789012:parameter{}", "iam": "arn:aws:iam::123456789012:{}"}


@dataclass(frozen=True)
class Touched:
    """One thing that a call touches: its ARN, and the values of the condition keys, each a list."""

    action: str
    arn: str
    keys: Mapping[str, list[str]] = field(default_factory=dict)


def touched(call: Call) -> list[Touched]:
    """Return all that a call touches: what is there with its tags of now, what it makes with those of the request."""
    action = f"{call.service}:{call.action}"
    action = PERMISSIONS.get(action, action)
    if call.service != "ec2":
        return [Touched(action, arn) for arn in _arns(call)] or [Touched(action, "*")]
    if call.action.startswith(("Describe", "Get")):  # EC2 has no narrower way for what reads
        return [Touched(action, "*")]
    return [*_existing(action, call), *_made(action, call)]


def _arns(call: Call) -> Iterator[str]:
    if call.service == "budgets":
        name = call.parameters.get("BudgetName") or call.parameters["Budget"]["BudgetName"]
        yield f"arn:aws:budgets::123456789012:budget/{name}"
    if call.service == "scheduler" and call.action != "ListSchedules":
        name, group = call.parameters["Name"], call.parameters.get("GroupName", "default")
        of_group = call.action.endswith("Group")
        place = f"schedule-group/{name}" if of_group else f"schedule/{group}/{name}"
        yield f"arn:aws:scheduler:us-east-1:123456789012:{place}"
        return
    if call.action == "SimulatePrincipalPolicy":
        yield call.parameters["PolicySourceArn"]
    for name in call.parameters.get("Names", []):
        yield _ARN["ssm"].format(name)
    for key, kind in (("InstanceProfileName", "instance-profile"), ("RoleName", "role")):
        if call.service == "iam" and key in call.parameters:
            yield _ARN["iam"].format(f"{kind}/{call.parameters[key]}")
            return  # AddRoleToInstanceProfile and its like are decided by the profile


def _existing(action: str, call: Call) -> Iterator[Touched]:
    tags = ec2.backend(call.region).tags
    sent = {"aws:TagKeys": [tag["Key"] for tag in call.parameters.get("Tags", [])]}
    for one in sorted(set(_ids(call.parameters))):
        keys = {f"aws:ResourceTag/{key}": [str(value)] for key, value in tags.get(one, {}).items()}
        yield Touched(action, _arn(KINDS[one.rpartition("-")[0]], one), keys | sent)
    if call.action == "RunInstances":
        yield Touched(action, _arn("key-pair", call.parameters["KeyName"]))
    placed = call.parameters if call.action == "DeletePlacementGroup" else call.parameters.get("Placement", {})
    if name := placed.get("GroupName"):
        group = ec2.Ec2.model.placement_groups.get((call.region, name))
        of = tags.get(group.id, {}) if group else {}
        keys = {f"aws:ResourceTag/{key}": [str(value)] for key, value in of.items()}
        yield Touched(action, _arn("placement-group", name), keys)


def _made(action: str, call: Call) -> Iterator[Touched]:
    for one in call.parameters.get("TagSpecifications", []):
        tags = {tag["Key"]: [tag["Value"]] for tag in one["Tags"]}
        keys = {f"aws:RequestTag/{key}": value for key, value in tags.items()} | {"aws:TagKeys": list(tags)}
        yield Touched(action, _arn(one["ResourceType"], "new"), keys)
        yield Touched("ec2:CreateTags", _arn(one["ResourceType"], "new"), keys | {"ec2:CreateAction": [call.action]})


def _ids(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        value = [one for key, one in value.items() if key not in {"UserData", "TagSpecifications", "ClientToken"}]
    if isinstance(value, list):
        for one in value:
            yield from _ids(one)
    elif isinstance(value, str) and _ID.fullmatch(value):
        yield value


def _arn(kind: str, id_: str) -> str:
    return f"arn:aws:ec2:us-east-1:123456789012:{kind}/{id_}"


class Judge:
    """One document: which of its statements allowed something, and what none of them did."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.statements = document["Statement"]
        self.used: set[str] = set()  # Sids
        self.actions: set[str] = set()
        self.faults: list[str] = []

    def see(self, call: Call) -> None:
        """Judge a call by all that it touches."""
        for one in touched(call):
            by = [statement["Sid"] for statement in self.statements if _allows(statement, one)]
            self.used.update(by)
            self.actions.add(one.action)
            if not by:
                self.faults.append(f"{one.action} on {one.arn} with {dict(one.keys)}")


def actions(document: Mapping[str, Any]) -> set[str]:
    """Return every action that a document allows on something."""
    return {action for statement in document["Statement"] for action in listed(statement["Action"])}


def _allows(statement: Mapping[str, Any], one: Touched) -> bool:
    named = one.action in listed(statement["Action"])
    placed = any(fnmatchcase(one.arn, pattern) for pattern in listed(statement["Resource"]))
    return named and placed and holds(statement, one)


def holds(statement: Mapping[str, Any], one: Touched) -> bool:
    """Say whether the conditions of a statement hold."""
    return all(_holds(kind, wanted, one) for kind, wanted in statement.get("Condition", {}).items())


def _holds(kind: str, wanted: Mapping[str, Any], one: Touched) -> bool:
    """Evaluate a block of conditions: a key that is absent fails, but for the operators over all values."""
    over_all, _, operator = kind.rpartition(":")
    assert operator in {"StringEquals", "StringLike"}, operator
    assert over_all in {"", "ForAllValues"}, over_all
    for key, patterns in wanted.items():
        values = one.keys.get(key, [])
        if not over_all and not values:
            return False
        if not all(any(fnmatchcase(value, pattern) for pattern in listed(patterns)) for value in values):
            return False
    return True


def listed(value: Any) -> list[Any]:
    """Return a value of a document as a list: one may stand alone."""
    return value if isinstance(value, list) else [value]
