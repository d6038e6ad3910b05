"""Says which policy a machine is under, and what a policy means, in sentences.

The policy is the one named at its launch, its project's, its tag's, or the default. Its rules are told in their order
of precedence, in general and for one machine now.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

from cloudgpu.core.model.machine import Machine
from cloudgpu.core.policies import guards
from cloudgpu.core.policies.guards import has_no_agent
from cloudgpu.core.policies.policy import Policy, ReaperAction, Rule, RuleAction, Unknown, Unpausable
from cloudgpu.core.policies.schedule import Schedule, next_scheduled_end, off_until
from cloudgpu.core.values.naming import tag_value
from cloudgpu.core.values.times import duration_text, from_iso

SELECTOR_KEYS = (
    "owner",
    "project",
    "template",
    "provider",
    "account",
    "market",
    "name",
)  # facts of a machine by which its policy is chosen


@dataclass(frozen=True, slots=True)
class Choices:
    """What [policies] of config.toml says: the policy's name by project, and by `KEY=VALUE`: a fact of a machine."""

    projects: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Chosen:
    """The name of a policy, and the option or setting that chose it: `--policy`, `policy of config.toml`."""

    name: str
    why: str


# Two values of `Chosen.why`.
BY_OPTION = "--policy"
DEFAULT = "policy of config.toml"
NO_CHOICES = Choices()


def choose(typed: str | None, facts: Mapping[str, str | None], choices: Choices | None, default: str) -> Chosen:
    """Return the policy of a machine with these facts (some of SELECTOR_KEYS): the most specific setting wins.

    `typed` is the name given with --policy, `default` that of config.toml. A project is more specific than a tag, and
    of two tags the one that stands first counts. Facts that were read from a cloud's tags are compared in their tag
    form (`tag_value`).
    """
    choices = choices or NO_CHOICES
    if typed is not None:
        return Chosen(typed, BY_OPTION)
    for project, policy in choices.projects.items():
        if _matches(project, facts.get("project")):
            return Chosen(policy, f"policies.projects.{project} of config.toml")
    for tag, policy in choices.tags.items():
        key, _, value = tag.partition("=")
        if _matches(value, facts.get(key)):
            return Chosen(policy, f'policies.tags."{tag}" of config.toml')
    return Chosen(default, DEFAULT)


def _matches(wanted: str, value: str | None) -> bool:
    return value is not None and (wanted == value or (value != "" and tag_value(wanted) == value))


_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_DAY_GROUPS = {tuple(range(7)): "daily", tuple(range(5)): "on weekdays", (5, 6): "on weekends"}
HOLD = (
    "protects a machine from the rules below until the hold ends; renew-until and schedules ignore it, "
    "and a budget waits for at most two warnings"
)
_OUTCOME_TEXTS = {
    RuleAction.WARN: "warned of",
    RuleAction.IMAGE: "kept as an image, then terminated",
    RuleAction.TERMINATE: "terminated",
    RuleAction.REMOVE: "removed",
}


@dataclass(frozen=True, slots=True)
class DescribedRule:
    """One rule: what it says, and when it would act next (None: nobody can say, or it does not)."""

    rule: Rule
    text: str
    at: datetime | None = None


def rules_of(policy: Policy, now: datetime) -> tuple[DescribedRule, ...]:
    """Return the rules of a policy for any machine, the strongest first; `now` is for the next scheduled end."""
    return tuple(_rules_of_policy(policy, now))


def rules_for(policy: Policy, now: datetime, machine: Machine) -> tuple[DescribedRule, ...]:
    """Return the rules of a policy for a machine to be launched, worded by how that ends."""
    ending = guards.automatic_ending(machine, policy)
    budget_ending, no_agent = guards.gentlest_ending(machine), has_no_agent(machine)
    return tuple(
        _without_agent(rule)
        if no_agent and rule.rule in _RULES_BY_USE
        else _for_ending(rule, policy, ending, budget_ending)
        for rule in _rules_of_policy(policy, now)
    )


_RULES_BY_USE = (Rule.IDLE, Rule.UNLABELLED)


def _without_agent(rule: DescribedRule) -> DescribedRule:
    """Return what a rule of _RULES_BY_USE says of a machine without an agent: as use is not known, it ends nothing."""
    if rule.rule is Rule.IDLE:
        return replace(rule, text="never: no agent runs on it, so its use is not known")
    return replace(rule, text=rule.text.replace("stopped once nobody uses it", "warned of"))


def _for_ending(
    rule: DescribedRule, policy: Policy, ending: ReaperAction | None, budget_ending: ReaperAction
) -> DescribedRule:
    if rule.rule is Rule.BUDGET and budget_ending is ReaperAction.TERMINATE:
        return replace(rule, text=rule.text.replace("stopped once", "terminated once"))
    if rule.rule not in (Rule.IDLE, Rule.UNLABELLED, Rule.SCHEDULE) or ending in (ReaperAction.STOP, ReaperAction.PARK):
        return rule
    if ending is None:
        return replace(rule, text=_only_warned_text(rule, policy))
    text = rule.text.removesuffix(_warned_only(policy))
    return replace(rule, text=text.replace("stopped", "terminated") + rule.text[len(text) :])


def _only_warned_text(rule: DescribedRule, policy: Policy) -> str:
    if rule.rule is Rule.IDLE and policy.idle.do is RuleAction.STOP:
        return _idle_text(replace(policy, idle=replace(policy.idle, do=RuleAction.WARN)))
    return rule.text.replace("stopped once nobody uses it", "warned of").replace("ended at", "only warned of at")


def rules_in_force(policy: Policy | None, machine: Machine, now: datetime) -> tuple[DescribedRule, ...]:
    """Return what holds for one machine now, the strongest rule first. Without a policy, only its lease counts."""
    rules = (
        []
        if policy is None
        else [described for described in rules_for(policy, now, machine) if described.rule not in _PER_MACHINE_RULES]
    )
    rules += _rules_of_machine(policy, machine, now)
    return tuple(sorted(rules, key=lambda rule: list(Rule).index(rule.rule)))


_PER_MACHINE_RULES = (Rule.RENEW_UNTIL, Rule.SCHEDULE, Rule.HOLD, Rule.LEASE)


def schedule_notes(policy: Policy | None, machine: Machine, now: datetime) -> tuple[str, ...]:
    """Return notes on a machine that is started while its schedule keeps machines off; none at other times."""
    until = None if policy is None else off_until(policy.schedules, now)
    if policy is None or until is None:
        return ()
    grace, off_text = duration_text(policy.idle.grace), f"its schedule keeps it off until {until:%a %Y-%m-%d %H:%M} UTC"
    if guards.only_warned(machine, policy):
        return (f"{off_text}: the reaper only warns of that",)
    return (f"{off_text}: the next run warns, and ends it {grace} later unless it is held (cloudgpu hold)",)


def _rules_of_policy(policy: Policy, now: datetime) -> Iterator[DescribedRule]:
    if policy.budget is not None:
        outcome = "stopped" if policy.budget.do is RuleAction.STOP else "warned of"
        yield DescribedRule(Rule.BUDGET, f"{outcome} once it has cost {policy.budget.limit.text()} in all")
    renew = duration_text(policy.renew_until)
    yield DescribedRule(
        Rule.RENEW_UNTIL, f"ended {renew} after its launch or start, whoever uses it; warned 60m and 10m before"
    )
    for schedule in policy.schedules:
        yield DescribedRule(
            Rule.SCHEDULE, f"{_off_text(schedule)}{_warned_only(policy)}", next_scheduled_end((schedule,), now)
        )
    yield DescribedRule(Rule.HOLD, HOLD)
    yield DescribedRule(Rule.LEASE, _lease_text(policy))
    yield DescribedRule(Rule.IDLE, _idle_text(policy))
    yield from _other_rules(policy)


def _other_rules(policy: Policy) -> Iterator[DescribedRule]:
    if policy.unlabelled is not None:
        required, after = " and ".join(policy.unlabelled.require), duration_text(policy.unlabelled.after)
        outcome = "stopped once nobody uses it" if policy.unlabelled.do is RuleAction.STOP else "warned of"
        yield DescribedRule(Rule.UNLABELLED, f"after {after} without {required}: {outcome}")
    if policy.stopped is not None:
        yield DescribedRule(
            Rule.STOPPED, f"{_OUTCOME_TEXTS[policy.stopped.do]} once stopped for {duration_text(policy.stopped.after)}"
        )
    if policy.images is not None:
        yield DescribedRule(
            Rule.IMAGES, f"an image is {_OUTCOME_TEXTS[policy.images.do]} after {duration_text(policy.images.after)}"
        )


def _lease_text(policy: Policy) -> str:
    unknown = ", or nobody knows whether it is" if policy.unknown is Unknown.RENEW else " and that is known"
    renewed = f"then renewed by the hour while it is in use{unknown}"
    return f"{duration_text(policy.lease)}, {renewed}, up to renew-until; warned 60m and 10m before"


def _idle_text(policy: Policy) -> str:
    idle = policy.idle
    if idle.do is RuleAction.DISABLED:
        return "nothing ends it for idle time"
    after = duration_text(idle.after)
    if idle.do is RuleAction.WARN:
        return f"warned of after {after} without use, and not stopped"
    spared = " (warning only, if stopping would erase data on scratch disks)"
    scratch = spared if idle.scratch is RuleAction.WARN else ""
    warned = f"warned after {after} without use, stopped {duration_text(idle.grace)} later"
    return f"{warned} unless it is used again{scratch}{_warned_only(policy)}"


def _warned_only(policy: Policy) -> str:
    if policy.unpausable is not Unpausable.WARN:
        return ""
    return "; for a machine that cannot be stopped, only a warning"


def _off_text(schedule: Schedule) -> str:
    days = _DAY_GROUPS.get(tuple(sorted(schedule.days))) or "on " + ", ".join(
        _DAYS[day] for day in sorted(schedule.days)
    )
    except_text = f", except {_exception_dates(schedule)}" if schedule.excepted_dates else ""
    until = schedule.until
    until_text = f", and kept off until {_DAYS[until[0]]} {until[1]:%H:%M} unless held" if until else ""
    return (
        f"ended at {schedule.off:%H:%M} {days} by the clock of {schedule.tz}{except_text}, whoever uses it{until_text}"
    )


def _exception_dates(schedule: Schedule) -> str:
    """Return the dates on which nothing is ended; consecutive dates are one range, `2026-12-24 to 2027-01-03`."""
    days = sorted(schedule.excepted_dates)
    gaps = [(day, next_day) for day, next_day in pairwise(days) if next_day - day > timedelta(days=1)]
    begins, ends = [days[0], *(next_day for _, next_day in gaps)], [*(day for day, _ in gaps), days[-1]]
    return ", ".join(
        f"{first}" if first == last else f"{first} to {last}" for first, last in zip(begins, ends, strict=True)
    )


def _rules_of_machine(policy: Policy | None, machine: Machine, now: datetime) -> Iterator[DescribedRule]:
    """Yield the rules whose times each machine has for itself: renew-until, hold, lease, schedules."""
    if machine.renew_until:
        text = f"{_ending_text(guards.ending_at_renew_until(machine, policy))}, whoever uses it; extend moves it"
        yield DescribedRule(Rule.RENEW_UNTIL, text, from_iso(machine.renew_until))
    else:
        yield DescribedRule(Rule.RENEW_UNTIL, "it has none")
    held_until = from_iso(machine.hold_until) if machine.hold_until else None
    if held_until is not None and held_until > now:
        yield DescribedRule(Rule.HOLD, "until then its lease and idle time do not end it", held_until)
    if machine.expires:
        unknown_ends = policy is not None and policy.unknown is Unknown.END
        use = "is in use" if unknown_ends else "is in use or nobody knows"
        ending = guards.automatic_ending(machine, policy)
        text = f"{_ending_text(ending)}, unless it {use}: then it is renewed" if ending else _WARN_TO_KEEP_DISK
        yield DescribedRule(Rule.LEASE, text, from_iso(machine.expires))
    else:
        yield DescribedRule(Rule.LEASE, "it has none")
    if policy is not None:
        yield from _schedules_of(policy, machine, now)


def _schedules_of(policy: Policy, machine: Machine, now: datetime) -> Iterator[DescribedRule]:
    keeps_disk, only_warned = guards.only_warns_to_keep_disk(machine, policy), guards.only_warned(machine, policy)
    for schedule in policy.schedules:
        at = next_scheduled_end((schedule,), now)
        next_text = (
            f"the next is {at.astimezone(ZoneInfo(schedule.tz)):%a %Y-%m-%d %H:%M} there" if at else "there is none"
        )
        until = off_until((schedule,), now)
        local = None if until is None else until.astimezone(ZoneInfo(schedule.tz))
        off_text = "" if local is None else f"; it is kept off now, until {local:%a %Y-%m-%d %H:%M} there"
        text = f"{_off_text(schedule)}; {next_text}{off_text}"
        why = guards.NOTHING_GENTLER if keeps_disk else "it cannot be stopped"
        yield DescribedRule(Rule.SCHEDULE, text + (f"; it is only warned of: {why}" * only_warned), at)


_WARN_TO_KEEP_DISK = f"only warned of then: {guards.NOTHING_GENTLER}, and its policy is to keep its disk"


def _ending_text(ending: ReaperAction) -> str:
    return "terminated then, and its disk deleted" if ending is ReaperAction.TERMINATE else "ended then"
