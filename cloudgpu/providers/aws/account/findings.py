"""Checks what in an AWS account makes the machines of this ledger less safe. Changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cloudgpu.core.model.instances import TAG_LEDGER
from cloudgpu.errors import AuthFailed, CloudgpuError
from cloudgpu.providers.account_abilities import AccountFinding
from cloudgpu.providers.aws.account import roles
from cloudgpu.providers.aws.client import Aws, describe_all
from cloudgpu.providers.aws.network import security_group
from cloudgpu.providers.shared.rules import OPEN_RULES_FINDING, open_rules_finding

NO_OPEN_RULE_TEXT = "no security group of this ledger lets everybody in by one"
TIMER_ROLE_FINDING = "timer role"


def findings(aws: Aws, region: str | None) -> Sequence[AccountFinding]:
    """Return whether schedules may assume the role of timers, and whether somebody has opened our security groups.

    One call for the role, none where the settings name none; one per region for groups, none without a ledger.
    """
    return [*_timer_role_findings(aws), *_open_rules_findings(aws, region)]


def _timer_role_findings(aws: Aws) -> Sequence[AccountFinding]:
    """Return whether AWS's scheduler may act under the role that the settings name; nothing where they name none.

    AWS checks that when a timer is set. A role that is changed or deleted later leaves all timers without effect.
    """
    arn, setting = aws.options.timer_role, f"accounts.{aws.account}.timer_role"
    if not arn:
        return []
    remedy = "Run: cloudgpu init aws"
    try:
        exists, is_ok = roles.schedules_may_assume(aws, arn)
    except CloudgpuError as error:
        message = f"whether timers in the cloud can act is not known: {error.message}"
        remedy = f"{error.next or 'Run it again.'} cloudgpu init aws sets its own role right."
        if isinstance(error, AuthFailed) and arn.rpartition("/")[2] != roles.TIMER_ROLE_NAME:
            remedy = (
                f"{remedy} cloudgpu's policies allow iam:GetRole on {roles.TIMER_ROLE_NAME} alone: add {arn} to them."
            )
        return [AccountFinding(TIMER_ROLE_FINDING, is_ok=None, message=message, next=remedy)]
    if is_ok:
        return [AccountFinding(TIMER_ROLE_FINDING, is_ok=True, message="AWS's scheduler may act under it")]
    if not exists:
        message = f"the role that {setting} names is not there, so no timer in the cloud ends a machine"
        return [AccountFinding(TIMER_ROLE_FINDING, is_ok=False, message=message, next=remedy)]
    if arn.rpartition("/")[2] != roles.TIMER_ROLE_NAME:
        remedy = "Correct its trust policy (docs/timer.md), or use another role: cloudgpu init aws"
    message = f"AWS's scheduler may not assume the role that {setting} names, so no timer in the cloud ends a machine"
    if is_ok is None:
        message = f"only AWS can tell whether its scheduler may assume the role that {setting} names"
    return [AccountFinding(TIMER_ROLE_FINDING, is_ok=is_ok, message=message, next=remedy)]


def _open_rules_findings(aws: Aws, region: str | None) -> Sequence[AccountFinding]:
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
