"""Checks what in an AWS account makes the machines of this ledger less safe. Changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cloudgpu.core.model.instances import TAG_LEDGER
from cloudgpu.errors import AuthFailed, CloudgpuError
from cloudgpu.providers.account_abilities import AccountFinding
from cloudgpu.providers.aws.account import roles
from cloudgpu.providers.aws.client import Aws, describe_all
from cloudgpu.providers.aws.market.availability import check_region
from cloudgpu.providers.aws.network import security_group
from cloudgpu.providers.shared.rules import OPEN_RULES_FINDING, open_rules_finding, unknown_finding

NO_OPEN_RULE_TEXT = "no security group of this ledger lets everybody in by one"
TIMER_ROLE_FINDING = "timer role"


def findings(aws: Aws, region: str | None) -> Sequence[AccountFinding]:
    """Return whether timers in the cloud can act by their role, and whether somebody has opened our security groups.

    Two calls for the role, none where the settings name none; one per region for groups, none without a ledger. Raises
    InvalidRequest for a region that the account does not use.
    """
    if region is not None:
        check_region(aws, region)
    return [*_timer_role_findings(aws), _open_rules_finding(aws, region)]


def _timer_role_findings(aws: Aws) -> Sequence[AccountFinding]:
    """Return whether AWS's scheduler may act under the role that the settings name; nothing where they name none.

    AWS checks the trust policy when a timer is set, and what the role may do not at all. A role that is changed or
    deleted leaves all timers without effect.
    """
    arn, remedy = aws.options.timer_role, "Run: cloudgpu init aws"
    if not arn:
        return []
    is_ours = arn.rpartition("/")[2] == roles.TIMER_ROLE_NAME
    try:
        is_ok, clause = roles.timer_role_state(aws, arn)
    except CloudgpuError as error:
        message = f"whether timers in the cloud can act is not known: {error.message}"
        remedy = f"{error.next or 'Run it again.'} cloudgpu init aws sets its own role right."
        if isinstance(error, AuthFailed) and not is_ours:
            remedy += f" cloudgpu's policies allow to read {roles.TIMER_ROLE_NAME} alone: add {arn} to them."
        return [AccountFinding(TIMER_ROLE_FINDING, is_ok=None, message=message, next=remedy)]
    if is_ok:
        remedy = ""
    elif clause != roles.NO_ROLE and not is_ours:
        remedy = "Correct its policies (docs/timer.md), or use another role: cloudgpu init aws"
    message = f"the role that accounts.{aws.account}.timer_role names {clause}"
    return [AccountFinding(TIMER_ROLE_FINDING, is_ok=is_ok, message=message, next=remedy)]


def _open_rules_finding(aws: Aws, region: str | None) -> AccountFinding:
    if not aws.ledger:
        return open_rules_finding((), NO_OPEN_RULE_TEXT)
    try:
        regions = aws.regions() if region is None else (region,)
        answers, unanswered = aws.ask_each(regions, lambda one: _groups(aws, one))
    except CloudgpuError as error:
        return unknown_finding(OPEN_RULES_FINDING, error)
    open_rules = [
        one
        for region_name, groups in answers.items()
        for group in groups
        for one in security_group.open_rules(group, region_name)
    ]
    if open_rules or not unanswered:
        return open_rules_finding(open_rules, NO_OPEN_RULE_TEXT)
    message = f"{unanswered[0].scope} did not answer: {unanswered[0].why}"
    return AccountFinding(OPEN_RULES_FINDING, is_ok=None, message=message, next="Run it again.")


def _groups(aws: Aws, region: str) -> list[Mapping[str, Any]]:
    filters = [{"Name": f"tag:{TAG_LEDGER}", "Values": [aws.ledger]}]
    return describe_all(aws, "DescribeSecurityGroups", region, Filters=filters)
