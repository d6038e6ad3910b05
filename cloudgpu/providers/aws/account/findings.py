"""Checks what in an AWS account makes the machines of this ledger less safe. Changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cloudgpu.core.model.instances import TAG_LEDGER
from cloudgpu.providers.account_abilities import AccountFinding
from cloudgpu.providers.aws.client import Aws, describe_all
from cloudgpu.providers.aws.network import security_group
from cloudgpu.providers.shared.rules import OPEN_RULES_FINDING, open_rules_finding

NO_OPEN_RULE_TEXT = "no security group of this ledger lets everybody in by one"


def findings(aws: Aws, region: str | None) -> Sequence[AccountFinding]:
    """Return whether somebody has opened our own security groups. One call per region; none without a ledger."""
    if not aws.ledger:
        return [open_rules_finding((), NO_OPEN_RULE_TEXT)]
    answers, unanswered = aws.ask_each(aws.regions() if region is None else (region,), lambda one: _groups(aws, one))
    open_rules = [
        one
        for region_name, groups in answers.items()
        for group in groups
        for one in security_group.open_rules(group, region_name)
    ]
    if open_rules or not unanswered:
        return [open_rules_finding(open_rules, NO_OPEN_RULE_TEXT)]
    return [
        AccountFinding(
            OPEN_RULES_FINDING,
            is_ok=None,
            message=f"{unanswered[0].scope} did not answer: {unanswered[0].why}",
            next="Run it again.",
        )
    ]


def _groups(aws: Aws, region: str) -> list[Mapping[str, Any]]:
    filters = [{"Name": f"tag:{TAG_LEDGER}", "Values": [aws.ledger]}]
    return describe_all(aws, "DescribeSecurityGroups", region, Filters=filters)
