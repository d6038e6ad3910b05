"""What a policy means in sentences: every rule that holds is said, the strongest first, and none that does not."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta

import pytest

from cloudgpu.core.model.facts import MachineGuards, MachineSetup
from cloudgpu.core.model.launch import Setup, setup_to_json
from cloudgpu.core.policies.description import rules_for, rules_in_force, rules_of
from cloudgpu.core.policies.policy import (
    Idle,
    LabelRule,
    MachineBudget,
    Policy,
    Retention,
    Rule,
    RuleAction,
    Unknown,
    Unpausable,
)
from cloudgpu.core.policies.schedule import Schedule
from cloudgpu.core.values.money import Money
from tests.core.machines import machine

H = timedelta(hours=1)
NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
BARE = Policy("own", 8 * H, 72 * H)
FULL = Policy(
    "own",
    8 * H,
    72 * H,
    schedules=(Schedule("Europe/Paris", time(19)), Schedule("UTC", time(13), frozenset({4}))),
    budget=MachineBudget(Money.usd(5), RuleAction.STOP),
    unlabelled=LabelRule(("owner", "project"), H, RuleAction.STOP),
    stopped=Retention(timedelta(days=14), RuleAction.IMAGE),
    images=Retention(timedelta(days=60), RuleAction.REMOVE),
)
ROW = machine(
    expires="2026-11-20T18:00:00.000000Z",
    renew_until="2026-11-23T12:00:00.000000Z",
    stoppable=True,
    parkable=True,
)
KEEPS, LOSES = (MachineSetup.of(setup_to_json(Setup(keep_disk=keeps))) for keeps in (True, False))


def said(policy, rule):
    return [one.text for one in rules_of(policy, NOW) if one.rule is rule]


def test_every_rule_is_said_the_strongest_first():
    rules = [one.rule for one in rules_of(FULL, NOW)]
    assert rules == sorted(rules, key=list(Rule).index)
    assert set(rules) == set(Rule) - {Rule.NONE, Rule.REQUESTED, Rule.PART, Rule.NODE_LOSS}  # which are of no policy
    assert {one.rule for one in rules_of(BARE, NOW)} == {Rule.RENEW_UNTIL, Rule.HOLD, Rule.LEASE, Rule.IDLE}


def test_each_schedule_is_said_with_its_next_off():
    found = [(one.text, one.at) for one in rules_of(FULL, NOW) if one.rule is Rule.SCHEDULE]
    assert found == [
        ("ended at 19:00 daily by the clock of Europe/Paris, whoever uses it", NOW + 6 * H),
        ("ended at 13:00 on fri by the clock of UTC, whoever uses it", NOW + H),
    ]


@pytest.mark.parametrize(
    ("idle", "text"),
    [
        (Idle(do=RuleAction.DISABLED), "nothing ends it for idle time"),
        (Idle(do=RuleAction.WARN), "warned of after 1h without use, and not stopped"),
        (Idle(scratch=RuleAction.STOP), "warned after 1h without use, stopped 10m later unless it is used again"),
    ],
)
def test_idle_time_says_what_follows_from_it(idle, text):
    assert said(Policy("own", 8 * H, 72 * H, idle=idle), Rule.IDLE) == [text]


def test_what_is_not_known_is_said_with_the_lease():
    assert "or nobody knows whether it is" in said(BARE, Rule.LEASE)[0]
    assert "and that is known" in said(Policy("own", 8 * H, 72 * H, unknown=Unknown.END), Rule.LEASE)[0]


def test_breaks_are_said_as_they_would_be_written():
    days = frozenset({date(2026, 12, 24), date(2026, 12, 31), date(2027, 1, 1), date(2027, 1, 2)})
    policy = Policy("own", 8 * H, 72 * H, schedules=(Schedule("UTC", time(19), frozenset(range(5)), days),))
    (text,) = said(policy, Rule.SCHEDULE)
    assert "on weekdays by the clock of UTC, except 2026-12-24, 2026-12-31 to 2027-01-02" in text


def test_a_machine_is_told_its_own_moments():
    held = ROW._replace(hold_until="2026-11-20T15:00:00.000000Z")
    at = {one.rule: one.at for one in rules_in_force(FULL, held, NOW)}
    assert (at[Rule.LEASE], at[Rule.RENEW_UNTIL], at[Rule.HOLD]) == (NOW + 6 * H, NOW + 72 * H, NOW + 3 * H)
    assert Rule.HOLD not in {one.rule for one in rules_in_force(FULL, ROW, NOW)}
    rules = [one.rule for one in rules_in_force(FULL, held, NOW)]
    assert rules == sorted(rules, key=list(Rule).index)


def test_without_a_policy_the_lease_and_renew_until_alone_are_said():
    assert [one.rule for one in rules_in_force(None, ROW, NOW)] == [Rule.RENEW_UNTIL, Rule.LEASE]
    nothing = ROW._replace(expires=None, renew_until=None)
    assert [one.text for one in rules_in_force(None, nothing, NOW)] == ["it has none", "it has none"]


def test_a_schedule_that_only_warns_says_so():
    policy = Policy("own", 8 * H, 72 * H, Unpausable.WARN, schedules=(Schedule("UTC", time(19)),))
    texts = [[one.text for one in rules_in_force(policy, ROW._replace(stoppable=can), NOW)] for can in (True, False)]
    assert [any("it is only warned of" in text for text in one) for one in texts] == [False, True]


def test_what_can_be_neither_stopped_nor_parked_is_said_to_lose_its_disk():
    row = ROW._replace(stoppable=False, parkable=False, setup=LOSES)
    said = {one.rule: one.text for one in rules_in_force(Policy("own", 8 * H, 72 * H), row, NOW)}
    assert said[Rule.RENEW_UNTIL].startswith("terminated then, and its disk deleted, whoever uses it")
    assert said[Rule.LEASE].startswith("terminated then, and its disk deleted, unless it is in use")
    kept = {one.rule: one.text for one in rules_in_force(Policy("own", 8 * H, 72 * H), row._replace(setup=None), NOW)}
    assert kept[Rule.LEASE].startswith("only warned of then: it can be neither stopped nor kept as an image")


def test_a_plan_says_what_the_rules_do_to_this_machine():
    budget = MachineBudget(Money.usd(5), RuleAction.STOP)
    policy = Policy("own", 8 * H, 72 * H, schedules=(Schedule("UTC", time(19)),), budget=budget)
    row = ROW._replace(stoppable=False, parkable=False, setup=KEEPS)
    said = {one.rule: one.text for one in rules_for(policy, NOW, row)}
    assert said[Rule.IDLE] == "warned of after 1h without use, and not stopped"
    assert said[Rule.SCHEDULE].startswith("only warned of at 19:00")
    assert said[Rule.BUDGET].startswith("terminated once it has cost")
    said = {one.rule: one.text for one in rules_for(policy, NOW, row._replace(setup=LOSES))}
    assert said[Rule.IDLE].startswith("warned after 1h without use, terminated 10m later")
    assert rules_for(policy, NOW, ROW) == rules_of(policy, NOW)


def test_without_an_agent_no_rule_says_that_use_ends_it_however_it_would_end():
    bare = MachineGuards.of({"agent": "none", "timer": "none", "follows": False})
    for can, setup in ((True, None), (False, LOSES), (False, KEEPS)):
        row = ROW._replace(stoppable=can, parkable=can, setup=setup, guards=bare)
        said = {one.rule: one.text for one in rules_for(FULL, NOW, row)}
        assert said[Rule.UNLABELLED] == "after 1h without owner and project: warned of"
        assert said[Rule.IDLE] == "never: no agent runs on it, so its use is not known"


def test_what_is_said_of_machines_that_cannot_be_stopped_stays_so_for_one_that_is_terminated():
    policy = Policy("own", 8 * H, 72 * H, Unpausable.WARN, schedules=(Schedule("UTC", time(19)),))
    row = ROW._replace(stoppable=False, parkable=False, setup=LOSES)
    said = {one.rule: one.text for one in rules_for(policy, NOW, row)}
    for rule in (Rule.IDLE, Rule.SCHEDULE):
        assert said[rule].endswith("; for a machine that cannot be stopped, only a warning")
    assert "terminated 10m later" in said[Rule.IDLE]
