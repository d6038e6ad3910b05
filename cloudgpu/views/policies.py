"""Policies and limits as the plain values that `-o json` prints: durations in seconds, rates in bytes a second."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudgpu.core.policies.policy import NO_LIMITS, Limits
from cloudgpu.core.values.money import usd
from cloudgpu.core.values.times import iso

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import timedelta

    from cloudgpu.core.policies.description import DescribedRule
    from cloudgpu.core.policies.policy import Idle, Policy, Retention
    from cloudgpu.core.policies.schedule import Schedule
    from cloudgpu.views.documents.automation.policies import (
        IdleRule,
        PolicyDocument,
        PolicyLimits,
        PolicySummary,
        Publication,
        RetentionRule,
        Schedule as ScheduleDocument,
    )
    from cloudgpu.views.documents.parts import RuleText

_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


def policy_document(
    policy: Policy,
    rules: Iterable[DescribedRule],
    *,
    source: str,
    published: Publication | None,
    chosen_by: list[str],
    allowed: bool,
    limited_by: Iterable[str],
) -> PolicyDocument:
    """Return a policy as one plain value; `rules` are what it says now, the strongest first.

    `chosen_by` are the keys of config.toml that name it, `allowed`: the limits allow a launch under it, `limited_by` is
    what the limits change of it.
    """
    return {
        "name": policy.name,
        "description": policy.description,
        "lease_s": policy.lease.total_seconds(),
        "renew_until_s": policy.renew_until.total_seconds(),
        "unknown": str(policy.unknown),
        "unpausable": str(policy.unpausable),
        "idle": _idle(policy.idle),
        "schedules": [_schedule(schedule) for schedule in policy.schedules],
        "budget": None
        if policy.budget is None
        else {"amount_usd": usd(policy.budget.limit), "do": str(policy.budget.do)},
        "unlabelled": None
        if policy.unlabelled is None
        else {
            "require": list(policy.unlabelled.require),
            "after_s": policy.unlabelled.after.total_seconds(),
            "do": str(policy.unlabelled.do),
        },
        "stopped": None if policy.stopped is None else _retention(policy.stopped),
        "images": None if policy.images is None else _retention(policy.images),
        "source": source,
        "published": published,
        "chosen_by": chosen_by,
        "allowed": allowed,
        "limited_by": list(limited_by),
        "rules": rules_document(rules),
    }


def summary_document(
    policy: Policy, *, source: str, published: Publication | None, chosen_by: list[str], allowed: bool
) -> PolicySummary:
    """Return what a list says of a policy that can be read."""
    idle = policy.idle
    return {
        "name": policy.name,
        "allowed": allowed,
        "chosen_by": chosen_by,
        "published": published,
        "source": source,
        "error": None,
        "description": policy.description,
        "lease_s": policy.lease.total_seconds(),
        "renew_until_s": policy.renew_until.total_seconds(),
        "idle_after_s": idle.after.total_seconds() if idle.do != "off" else None,
        "idle_do": str(idle.do),
        "schedules": [_schedule(schedule) for schedule in policy.schedules],
    }


def unreadable_document(
    name: str, error: str, *, published: Publication | None, chosen_by: list[str], allowed: bool
) -> PolicySummary:
    """Return what a list says of a policy whose file has an error."""
    return {
        "name": name,
        "allowed": allowed,
        "chosen_by": chosen_by,
        "published": published,
        "source": None,
        "error": error,
        "description": "",
        "lease_s": None,
        "renew_until_s": None,
        "idle_after_s": None,
        "idle_do": None,
        "schedules": None,
    }


def limits_document(limits: Limits) -> PolicyLimits | None:
    """Return the limits as one plain value, None where there are none."""
    if limits == NO_LIMITS:
        return None
    return {
        "lease_s": _seconds(limits.lease),
        "renew_until_s": _seconds(limits.renew_until),
        "idle_after_s": _seconds(limits.idle_after),
        "policies": None if limits.policies is None else list(limits.policies),
        "payers": list(limits.payers),
        "stop": limits.stop and str(limits.stop),
        "price_jump": None if limits.price_jump is None else float(limits.price_jump),
        "sources": list(limits.sources),
    }


def rules_document(rules: Iterable[DescribedRule]) -> list[RuleText]:
    """Return each rule with its sentence, and when it acts next."""
    return [
        {"rule": str(rule.rule), "text": rule.text, "at": None if rule.at is None else iso(rule.at)} for rule in rules
    ]


def _seconds(duration: timedelta | None) -> float | None:
    return None if duration is None else duration.total_seconds()


def _idle(idle: Idle) -> IdleRule:
    return {
        "after_s": idle.after.total_seconds(),
        "grace_s": idle.grace.total_seconds(),
        "terminal_output_s": idle.terminal_output.total_seconds(),
        "uptime_s": idle.uptime.total_seconds(),
        "do": str(idle.do),
        "gpu": idle.gpu,
        "cpu": idle.cpu,
        "network": idle.network,
        "disk": idle.disk,
        "share": idle.share,
        "scratch": str(idle.scratch),
    }


def _retention(rule: Retention) -> RetentionRule:
    return {"after_s": rule.after.total_seconds(), "do": str(rule.do)}


def _schedule(schedule: Schedule) -> ScheduleDocument:
    return {
        "off": f"{schedule.off:%H:%M}",
        "tz": schedule.tz,
        "days": sorted(schedule.days),
        "except": [day.isoformat() for day in sorted(schedule.excepted_dates)],
        "until": None if schedule.until is None else f"{_DAYS[schedule.until[0]]} {schedule.until[1]:%H:%M}",
    }
