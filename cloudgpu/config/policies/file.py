"""Reads policies from a file's tables, and a lab's limits from limits.yaml of a project and of a home.

It names the line and field of what is wrong. Half a policy is none. limits.yaml lies beside the policies.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

from cloudgpu.config.files.yaml import Table, read_yaml
from cloudgpu.config.policies.kinds import Kind, Misread
from cloudgpu.config.policies.schema import LIMITS, POLICY, Key, Keys, Section
from cloudgpu.core.policies.limits import Limits, Stoppers, narrowest_limits
from cloudgpu.core.policies.policy import Act, Idle, LabelRule, MachineBudget, Policy, Retention, Unknown, Unpausable
from cloudgpu.core.policies.schedule import EVERY_DAY, Schedule
from cloudgpu.core.values.naming import did_you_mean, near
from cloudgpu.core.values.times import duration_text

Values = dict[str, Any]
_SHARE = 100  # samples are written in percent
REMEMBERED = timedelta(days=1)  # by agents, and no more of it is asked for (`cloudgpu.agent.looking`)
# What somebody may look for here, and where it is.
_ELSEWHERE = {
    "on": "cloudgpu ends machines by the clock and starts none; cron can: cloudgpu start NAME --yes.",
    "hold": "A hold is set on a machine: cloudgpu hold NAME 2h.",
    "budgets": "Budgets of projects and people have files of their own: policies/budgets.",
}


def policy_from(table: Table, name: str, *, tz: str = "UTC") -> Policy:
    """Return the policy that a file's table describes; `tz` is the zone of a schedule that names none.

    Raises InvalidRequest with the line and field of a fault, also for what contradicts itself.
    """
    values = read(table, POLICY)
    lease, renew_until = values["lease"], values["renew_until"]
    if renew_until < lease:
        says = f"is shorter than the lease ({duration_text(lease)}): a machine could not live to the end of its lease"
        raise table.fault("renew_until", says, next="Make it at least as long as the lease.")
    _check_reached(table, values, renew_until)
    return Policy(
        name,
        lease,
        renew_until,
        Unpausable(values.get("spot", {}).get("unpausable", Unpausable.PARK)),
        values.get("description", ""),
        _idle(table, values.get("idle", {})),
        tuple(_schedule(one, tz) for one in values.get("schedule", ())),
        Unknown(values.get("unknown", Unknown.RENEW)),
        **_rules(values),
    )


def read(table: Table, keys: Keys) -> Values:
    """Return what a table says, each value read as its key's kind; raise InvalidRequest for the first fault."""
    _check_keys(table, table.values, keys, "")
    for name, key in keys.items():
        if isinstance(key, Key) and key.needed and name not in table.values:
            raise table.fault(name, "is missing", next=f"Add a line that begins with {name}:")
    return {name: _value(table, name, value, keys[name]) for name, value in table.values.items()}


def _value(table: Table, path: str, value: Any, key: Key | Section) -> Any:
    if isinstance(key, Key):
        return _read(table, path, value, key.kind)
    if not key.many:
        return _section(table, path, value, key)
    items = {f"{path}[{number}]": item for number, item in enumerate(value)} if isinstance(value, list) else None
    if items == {}:
        raise table.fault(path, "is an empty list", next="Write one, or remove the key.")
    return tuple(_section(table, option, item, key) for option, item in (items or {path: value}).items())


def _section(table: Table, path: str, value: Any, section: Section) -> Values:
    if not isinstance(value, dict):
        first = next(iter(section.keys))
        raise table.fault(path, "has to be a table", next=f"Write lines like `  {first}: ...` below it.")
    _check_keys(table, value, section.keys, f"{path}.")
    for name, key in section.keys.items():
        if key.needed and name not in value:
            raise table.fault(path, f"does not say {name}", next=f"Add a line `  {name}: ...` below it.")
    return {name: _read(table, f"{path}.{name}", one, section.keys[name].kind) for name, one in value.items()}


def _read(table: Table, path: str, value: Any, kind: Kind) -> Any:
    try:
        return kind.read(value)
    except Misread as error:
        raise table.fault(path, error.says, next=error.next) from None


def _check_keys(table: Table, values: Any, keys: Keys, prefix: str) -> None:
    for name in values:
        if name not in keys:
            says = "is not a known key" + did_you_mean(None if name in _ELSEWHERE else near(name, keys))
            way_out = _ELSEWHERE.get(name) or f"Use one of: {', '.join(keys)}."
            raise table.fault(f"{prefix}{name}", says, next=way_out)


def _check_reached(table: Table, values: Values, renew_until: timedelta) -> None:
    """Refuse a rule that could never hold, since the machine is ended before: whoever wrote it believes in it."""
    for section, key in (("idle", "after"), ("idle", "uptime"), ("unlabelled", "after")):
        span = values.get(section, {}).get(key)
        if span is not None and span > renew_until:
            says = f"is {duration_text(span)}, longer than renew_until ({duration_text(renew_until)}): it never comes"
            raise table.fault(f"{section}.{key}", says, next="Make it shorter, or renew_until longer.")


def _idle(table: Table, values: Values) -> Idle:
    """Return the rule about idle time; a grace that is left out is never longer than `after`."""
    usual = Idle()
    after = values.get("after", usual.after)
    grace = values.get("grace", min(usual.grace, after))
    if after > REMEMBERED:
        says = f"is {duration_text(after)}, and machines remember a day: none would ever be known to be idle so long"
        raise table.fault(
            "idle.after", says, next="Make it 24h or shorter; who wants no end for idle time says do: off."
        )
    if grace > after:
        _refuse_grace(table, grace, after)
    rest = {
        name: values[name] for name in ("gpu", "cpu", "network", "disk", "terminal_output", "uptime") if name in values
    }
    return Idle(
        after=after,
        grace=grace,
        do=Act(values.get("do", usual.do)),
        scratch=Act(values.get("scratch", usual.scratch)),
        share=values["samples"] / _SHARE if "samples" in values else usual.share,
        **rest,
    )


def _refuse_grace(table: Table, grace: timedelta, after: timedelta) -> NoReturn:
    says = f"is {duration_text(grace)}, longer than idle.after ({duration_text(after)})"
    raise table.fault("idle.grace", says, next="A warning is waited out for at most as long as it took to be given.")


def _schedule(values: Values, tz: str) -> Schedule:
    days, excepts = values.get("days", EVERY_DAY), values.get("except", frozenset())
    return Schedule(values.get("tz", tz), values["off"], days, excepts, values.get("until"))


def _rules(values: Values) -> Values:
    """Return the rules that only hold where they are written."""
    found: Values = {}
    if (rule := values.get("budget")) is not None:
        found["budget"] = MachineBudget(rule["amount"], Act(rule.get("do", Act.WARN)))
    if (rule := values.get("unlabelled")) is not None:
        required = rule.get("require", ("owner", "project"))
        found["unlabelled"] = LabelRule(required, rule["after"], Act(rule.get("do", Act.WARN)))
    for name in ("stopped", "images"):
        if (rule := values.get(name)) is not None:
            found[name] = Retention(rule["after"], Act(rule.get("do", Act.WARN)))
    return found


FILE = "limits.yaml"


def load_limits(search: Sequence[Path]) -> Limits:
    """Return the narrowest of what every `limits.yaml` in these directories says; without one, no limits.

    Raises InvalidRequest, with file and line, for the first fault.
    """
    tables = (read_yaml(directory / FILE) for directory in search)
    return narrowest_limits(limits_from(table) for table in tables if table is not None)


def limits_from(table: Table) -> Limits:
    """Return the limits that a file's table says; raise InvalidRequest with the line and field of a fault."""
    values = read(table, LIMITS)
    lease, renew_until, idle_after = values.get("lease"), values.get("renew_until"), values.get("idle_after")
    if lease and renew_until and lease > renew_until:
        says = f"is longer than renew_until ({duration_text(renew_until)})"
        raise table.fault("lease", says, next="No machine can have a lease longer than its renew-until.")
    if idle_after and renew_until and idle_after > renew_until:
        says = f"is longer than renew_until ({duration_text(renew_until)}), so it limits nothing"
        raise table.fault("idle_after", says, next="Make it shorter, or leave it out.")
    stop = Stoppers(values["stop"]) if "stop" in values else None
    return Limits(
        lease,
        renew_until,
        idle_after,
        values.get("policies"),
        values.get("payers", ()),
        stop,
        values.get("price_jump"),
        (str(table.path),),
    )
