"""IAM's policy simulator, which moto lacks: what the policies of a role allow on one resource.

Of conditions it knows what `iam` knows. Boundaries and policies of an organisation are not modelled.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import unquote
from xml.sax.saxutils import escape

from moto.iam.models import iam_backends

from tests.clouds.aws import iam
from tests.clouds.aws.calls import Call
from tests.clouds.aws.errors import AwsError
from tests.clouds.aws.model import ACCOUNT

NAMESPACE = "https://iam.amazonaws.com/doc/2010-05-08/"


def answer(call: Call) -> tuple[int, str, bytes]:
    """Answer SimulatePrincipalPolicy for a role."""
    asked = call.parameters
    statements = list(_statements(asked["PolicySourceArn"]))
    keys = {one["ContextKeyName"]: one["ContextKeyValues"] for one in asked.get("ContextEntries", [])}
    (arn,) = asked.get("ResourceArns", ["*"])
    results = "".join(_result(statements, iam.Touched(action, arn, keys)) for action in asked["ActionNames"])
    name = "SimulatePrincipalPolicy"
    text = (
        f"<{name}Result><IsTruncated>false</IsTruncated><EvaluationResults>{results}</EvaluationResults></{name}Result>"
    )
    body = f'<{name}Response xmlns="{NAMESPACE}">{text}</{name}Response>'
    return 200, "text/xml", body.encode()


def _statements(arn: str) -> Iterator[Mapping[str, Any]]:
    roles = iam_backends[ACCOUNT][arn.split(":")[1]].roles.values()
    found = next((one for one in roles if one.arn == arn), None)
    if found is None:
        raise AwsError("NoSuchEntity", f"Role {arn} does not exist.", 404)
    texts = [*found.policies.values(), *(one.document for one in found.managed_policies.values())]
    for text in texts:
        statements = json.loads(unquote(text))["Statement"]
        yield from statements if isinstance(statements, list) else [statements]


def _result(statements: list[Mapping[str, Any]], one: iam.Touched) -> str:
    about = [statement for statement in statements if _is_about(statement, one)]
    missing = {key for statement in about for key in _keys(statement)} - set(one.keys)
    holding = {statement["Effect"] for statement in about if iam.holds(statement, one)}
    decision = "explicitDeny" if "Deny" in holding else "allowed" if holding else "implicitDeny"
    names = "".join(f"<member>{escape(key)}</member>" for key in sorted(missing))
    return (
        f"<member><EvalActionName>{one.action}</EvalActionName><EvalDecision>{decision}</EvalDecision>"
        f"<EvalResourceName>*</EvalResourceName><ResourceSpecificResults><member>"
        f"<EvalResourceName>{escape(one.arn)}</EvalResourceName><EvalResourceDecision>{decision}</EvalResourceDecision>"
        f"<MissingContextValues>{names}</MissingContextValues></member></ResourceSpecificResults></member>"
    )


def _keys(statement: Mapping[str, Any]) -> Iterator[str]:
    for wanted in statement.get("Condition", {}).values():
        yield from wanted


def _is_about(statement: Mapping[str, Any], one: iam.Touched) -> bool:
    return any(fnmatchcase(one.action.lower(), name.lower()) for name in iam.listed(statement["Action"])) and any(
        fnmatchcase(one.arn, pattern) for pattern in iam.listed(statement["Resource"])
    )
