from __future__ import annotations

from dataclasses import replace
from datetime import datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pytest

from cloudgpu.core.budgets import enforcement as budget_stops
from cloudgpu.core.policies.policy import (
    Idle,
    LabelRule,
    MachineBudget,
    Policy,
    ReaperAction,
    Retention,
    Rule,
    RuleAction,
    Unknown,
    Unpausable,
)
from cloudgpu.core.policies.schedule import Schedule
from cloudgpu.core.reaper import decide as deciding_module, rules as rules_module
from cloudgpu.core.reaper.cases import Stage
from cloudgpu.core.reaper.decide import MAX_IDLE_STOPS, decide
from cloudgpu.core.reaper.decisions import Decision
from cloudgpu.core.reaper.rules import RULES, ReaperRule, finders_at
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.times import iso
from tests.core.deciding import DEFAULT, KEEPS_DISK, LOSES_DISK, TEN, UNKNOWN, Machine, active, idle, minute
from tests.core.lives import HOUR_NANOS, START, line, price

SCRATCH = (("/mnt/nvme0", 12_000_000_000),)
OFF_AT_NINETEEN = replace(DEFAULT, schedules=(Schedule("UTC", time(19)),))  # START is 11:00, so minute 480
SPOT = {"stoppable": False, "setup": KEEPS_DISK}


def what(decision: Decision) -> tuple[str, str]:
    return str(decision.do), str(decision.rule)


def over(machine: Machine, do: ReaperAction = ReaperAction.STOP) -> budget_stops.PlannedStop:
    return budget_stops.PlannedStop(machine.id, machine.id, "lab", do, "the budget lab is passed: $301.00 of $300.00")


# --- the rules -----------------------------------------------------------------------------------------------------


def test_the_rules_are_every_rule_once_the_strongest_first() -> None:
    assert [one.rule for one in RULES] == list(Rule)


def test_the_rules_are_tried_in_the_order_in_which_they_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Rule] = []
    spies = [replace(one, find=(lambda _, rule=one.rule: asked.append(rule),), stages=tuple(Stage)) for one in RULES]
    monkeypatch.setattr(rules_module, "RULES", spies)
    monkeypatch.setattr(deciding_module, "finders_at", finders_at.__wrapped__)
    assert what(Machine().decided(100, idle(62))) == ("keep", "none")
    assert asked == list(Rule)


@pytest.mark.parametrize("rule", [one for one in RULES if one.waits], ids=lambda one: one.rule)
def test_a_rule_that_waits_for_a_hold_is_not_tried_of_a_held_machine(rule: ReaperRule) -> None:
    for stage in Stage:
        assert set(rule.find).isdisjoint(finders_at(stage, held=True))
        assert set(rule.find).isdisjoint(finders_at(stage, held=False)) is (stage not in rule.stages)


# --- idle time -----------------------------------------------------------------------------------------------------


def test_an_idle_machine_is_warned_waited_for_and_stopped() -> None:
    machine = Machine()
    first = machine.decided(100, idle(62))
    assert what(first) == ("warn", "idle")
    assert first.at == minute(110)
    assert [(one.rule, one.due) for one in first.warnings] == [(Rule.IDLE, minute(110))]
    between = machine.decided(105, idle(67))
    assert (what(between), between.warnings) == (("keep", "idle"), ())
    assert between.at == minute(110)
    last = machine.decided(110, idle(72))
    assert what(last) == ("stop", "idle")
    assert last.why == "idle for 1h 12m (limit 1h): kernel, 1h 12m ago; warned 12:40 UTC"


def test_a_pass_that_comes_seconds_early_waits_them_out() -> None:
    machine = Machine()
    machine.decided(100, idle())
    decision = machine.decided(109.5, idle(70))
    assert (what(decision), decision.after) == (("stop", "idle"), minute(110))
    assert what(machine.decided(108.9, idle(69)))[0] == "keep"


def test_use_after_a_warning_lifts_it_and_says_so() -> None:
    machine = Machine()
    machine.decided(100, idle())
    decision = machine.decided(110, active())
    assert what(decision) == ("keep", "none")
    assert [(one.rule, one.why) for one in decision.withdrawn] == [(Rule.IDLE, "ACTIVE: GPU, 0s ago")]
    assert not machine.machine.warnings
    assert what(machine.decided(180, idle(65))) == ("warn", "idle")  # and the next stop is warned anew


def test_use_between_a_warning_and_a_later_silence_makes_the_warning_void() -> None:
    short = replace(DEFAULT, idle=Idle(after=timedelta(minutes=5), grace=timedelta(minutes=30)))
    machine = Machine(policy=short)
    machine.decided(100, idle(6))
    decision = machine.decided(131, idle(10))  # used at 121, and idle long enough again
    assert (what(decision), decision.at) == (("warn", "idle"), minute(161))


def test_a_warning_of_an_earlier_run_is_no_warning_of_this_one() -> None:
    machine = Machine()
    machine.decided(100, idle())
    machine.see(104, "running", billed=True)  # started again in the provider's console, before anybody looked
    assert what(machine.decided(170, idle(61))) == ("warn", "idle")


@pytest.mark.parametrize("judged", [None, UNKNOWN])
def test_what_is_not_known_is_never_stopped_for_idle_time(judged: Any) -> None:
    machine = Machine()
    machine.decided(100, idle())
    decision = machine.decided(111, judged, unknown_reason="No route to host.")
    assert (decision.do, decision.activity) == (ReaperAction.KEEP, "UNKNOWN")
    assert machine.machine.warnings["idle"].times == 1  # one look that learns nothing takes no warning back
    assert what(machine.decided(121, idle(80))) == ("stop", "idle")


def test_an_old_warning_is_lifted_when_nothing_is_known_for_long() -> None:
    machine = Machine()
    machine.decided(100, idle())
    decision = machine.decided(161, UNKNOWN)
    assert [one.rule for one in decision.withdrawn] == [Rule.IDLE]
    assert what(machine.decided(171, idle(130))) == ("warn", "idle")


def test_people_hear_when_nothing_is_known_for_long_and_the_machine_stays() -> None:
    machine = Machine()
    assert what(machine.decided(50, active())) == ("keep", "none")
    assert [what(machine.decided(number, UNKNOWN))[0] for number in range(60, 120, 10)] == ["keep"] * 6
    decision = machine.decided(120, UNKNOWN)
    assert what(decision) == ("warn", "none")
    assert "not known for 1h" in decision.warnings[0].why
    told = [number for number in range(130, 2000, 10) if machine.decided(number, UNKNOWN).warnings]
    assert told == [120 + 24 * 60]  # once a day


def test_nobody_hears_of_a_machine_that_nobody_had_to_ask() -> None:
    machine = Machine()
    assert {what(machine.decided(number, None)) for number in range(50, 300, 10)} == {("keep", "none")}


def test_a_recent_word_of_its_own_makes_a_machine_active_without_a_probe() -> None:
    decision = Machine().decided(100, None, last_active=minute(41))
    assert (what(decision), decision.activity) == (("keep", "none"), "ACTIVE")


@pytest.mark.parametrize("said", [39, 120])
def test_an_old_word_or_one_of_the_future_means_nothing_by_itself(said: float) -> None:
    machine = Machine()
    assert machine.decided(100, None, last_active=minute(said)).activity == "UNKNOWN"
    assert machine.decided(100, idle(61), last_active=minute(said), reached_at=minute(100)).activity == "IDLE"


def test_samples_that_were_read_after_the_word_say_more() -> None:
    machine = Machine()
    assert machine.decided(100, idle(61), last_active=minute(45), reached_at=minute(100)).activity == "IDLE"
    assert machine.decided(100, idle(61), last_active=minute(99), reached_at=minute(98)).activity == "ACTIVE"
    assert machine.decided(100, UNKNOWN, last_active=minute(99), reached_at=minute(100)).activity == "ACTIVE"


def test_what_a_stop_would_erase_makes_idle_time_a_warning() -> None:
    machine = Machine()
    decision = machine.decided(100, idle(), scratch=SCRATCH)
    assert what(decision) == ("warn", "idle")
    assert "/mnt/nvme0 (12.0 GB)" in decision.warnings[0].why
    assert decision.warnings[0].due is None
    assert what(machine.decided(120, idle(80), scratch=SCRATCH)) == ("keep", "idle")
    assert what(machine.decided(130, idle(90))) == ("warn", "idle")  # it was emptied: now it is warned of the end
    bold = Machine(policy=replace(DEFAULT, idle=Idle(scratch=RuleAction.STOP)))
    bold.decided(100, idle(), scratch=SCRATCH)
    assert what(bold.decided(110, idle(70), scratch=SCRATCH)) == ("stop", "idle")


def test_scratch_that_fills_after_a_warning_takes_the_end_back_and_says_so() -> None:
    machine = Machine()
    machine.decided(100, idle())
    decision = machine.decided(110, idle(70), scratch=SCRATCH)
    assert (what(decision), decision.warnings[0].due) == (("warn", "idle"), None)


@pytest.mark.soak
def test_a_policy_that_only_warns_never_stops_and_tells_again_a_day_later() -> None:
    policy = replace(DEFAULT, idle=Idle(do=RuleAction.WARN), lease=timedelta(days=30))
    machine = Machine(policy=policy, expires=iso(minute(90_000)), renew_until=iso(minute(99_000)))
    told = [number for number in range(100, 3100, 10) if machine.decided(number, idle(number)).warnings]
    assert told == [100, 100 + 24 * 60, 100 + 48 * 60]


def test_a_policy_without_idle_rule_keeps_an_idle_machine() -> None:
    machine = Machine(policy=replace(DEFAULT, idle=Idle(do=RuleAction.DISABLED)))
    assert what(machine.decided(100, idle())) == ("keep", "none")


def test_a_machine_that_is_shut_down_and_billed_on_is_used_by_nobody() -> None:
    machine = Machine()
    machine.see(50, "stopped", billed=True)
    assert what(machine.decided(51, None)) == ("stop", "idle")


def test_a_machine_that_is_shut_down_and_billed_on_ends_by_any_policy_and_not_while_it_is_held() -> None:
    machine = Machine(policy=replace(DEFAULT, idle=Idle(do=RuleAction.DISABLED)))
    machine.tell(40, "hold_set", until=iso(minute(60)))
    machine.see(50, "stopped", billed=True)
    assert what(machine.decided(51, None)) == ("keep", "hold")
    assert what(machine.decided(61, None)) == ("stop", "idle")


def test_idle_stops_are_capped_and_the_longest_idle_goes_first() -> None:
    machines = [Machine(f"cg-{number}") for number in range(5)]
    for machine in machines:
        machine.decided(200, idle())
    known = [machine.known(idle(70 + number)) for number, machine in enumerate(machines)]
    found = decide(known, (), minute(210), interval=TEN, max_idle_stops=2)
    assert [one.do for one in found] == [
        ReaperAction.KEEP,
        ReaperAction.KEEP,
        ReaperAction.KEEP,
        ReaperAction.STOP,
        ReaperAction.STOP,
    ]
    assert found[0].why.endswith("it waits for a later run, as one run stops at most 2 machines for idle time")
    assert found[0].at == minute(220)


def test_stops_of_idle_machines_without_a_label_are_capped_too() -> None:
    """What was judged wrongly for all of them must not stop all of them."""
    policy = replace(
        DEFAULT,
        idle=Idle(do=RuleAction.DISABLED),
        unlabelled=LabelRule(("owner",), timedelta(hours=2), RuleAction.STOP),
    )
    machines = [Machine(f"cg-{number}", policy=policy, owner="") for number in range(3)]
    for machine in machines:
        machine.decided(200, idle(65))
    found = decide([one.known(idle(75)) for one in machines], (), minute(210), interval=TEN, max_idle_stops=2)
    assert sorted(str(one.do) for one in found) == ["keep", "stop", "stop"]


def test_only_idle_stops_are_capped() -> None:
    machines = [Machine(f"cg-{number}", renew_until=iso(minute(90))) for number in range(MAX_IDLE_STOPS + 5)]
    found = decide([one.known(idle()) for one in machines], (), minute(100), interval=TEN)
    assert {what(one) for one in found} == {("stop", "renew-until")}


# --- lease and renew-until -----------------------------------------------------------------------------------------


def test_a_lease_is_renewed_by_the_hour_while_the_machine_is_used() -> None:
    machine = Machine(policy=DEFAULT)
    assert what(machine.decided(465, active())) == ("keep", "none")
    decision = machine.decided(471, active())
    assert (what(decision), decision.at, decision.urgent) == (("renew", "lease"), minute(540), False)


def test_a_renewal_ends_at_renew_until() -> None:
    machine = Machine(renew_until=iso(minute(500)))
    assert machine.decided(480, active()).at == minute(500)


def test_an_unknown_machine_is_renewed_with_an_alert_or_ended_as_its_policy_says() -> None:
    decision = Machine().decided(480, UNKNOWN)
    assert (what(decision), decision.urgent) == (("renew", "lease"), True)
    ending = Machine(policy=replace(DEFAULT, unknown=Unknown.END))
    assert what(ending.decided(479, UNKNOWN))[0] == "warn"
    assert what(ending.decided(480, UNKNOWN)) == ("stop", "lease")


def test_an_idle_machine_ends_with_its_lease_and_was_told_at_60_and_at_10_minutes() -> None:
    machine = Machine(policy=replace(DEFAULT, idle=Idle(do=RuleAction.DISABLED)))
    told = [number for number in range(0, 480, 10) if machine.decided(number, idle(60)).warnings]
    assert told == [420, 470]
    assert what(machine.decided(480, idle(60))) == ("stop", "lease")


def test_a_lease_is_not_delayed_by_a_missing_warning() -> None:
    assert what(Machine().decided(481, idle())) == ("stop", "lease")


def test_renew_until_ends_whatever_is_used_held_or_unknown() -> None:
    for judged in (active(), idle(), UNKNOWN, None):
        machine = Machine(renew_until=iso(minute(600)), expires=iso(minute(600)), policy=DEFAULT)
        machine.tell(10, "hold_set", until=iso(minute(9000)))
        assert what(machine.decided(600, judged)) == ("stop", "renew-until")


def test_renew_until_is_told_at_60_and_at_10_minutes_also_to_who_works() -> None:
    machine = Machine(renew_until=iso(minute(600)), expires=iso(minute(600)))
    told = [number for number in range(0, 600, 10) if machine.decided(number, active()).warnings]
    assert told == [540, 590]


def test_an_end_that_was_moved_a_little_is_told_anew() -> None:
    machine = Machine(renew_until=iso(minute(600)), expires=iso(minute(600)))
    machine.decided(560, active())
    machine.tell(565, "lease_set", expires=iso(minute(620)), renew_until=iso(minute(620)), why="extend")
    decision = machine.decided(570, active())
    assert [one.due for one in decision.warnings] == [minute(620)]


def test_an_end_that_was_moved_lifts_its_warning() -> None:
    machine = Machine(renew_until=iso(minute(600)), expires=iso(minute(600)))
    machine.decided(540, active())
    machine.tell(550, "lease_set", expires=iso(minute(900)), renew_until=iso(minute(900)), why="extend")
    assert [one.rule for one in machine.decided(560, active()).withdrawn] == [Rule.RENEW_UNTIL]
    told = [number for number in range(570, 900, 10) if machine.decided(number, active()).warnings]
    assert told == [840, 890]


def test_without_a_policy_only_the_lease_counts_and_that_is_said() -> None:
    machine = Machine(policy=None)
    decision = machine.decided(100, idle(90))
    assert what(decision) == ("keep", "none")
    assert "only its lease counts" in decision.why
    assert what(machine.decided(480, idle(90))) == ("stop", "lease")
    assert what(machine.decided(480, active())) == ("renew", "lease")
    assert what(machine.decided(480, UNKNOWN)) == ("renew", "lease")


# --- holds ---------------------------------------------------------------------------------------------------------


def test_a_hold_keeps_a_machine_from_lease_and_idle_time_until_it_ends() -> None:
    machine = Machine()
    machine.decided(400, idle())
    machine.tell(405, "hold_set", until=iso(minute(500)))
    decision = machine.decided(410, idle(70))
    assert what(decision) == ("keep", "hold")
    assert decision.why.startswith("held until 19:20 UTC")
    assert [one.rule for one in decision.withdrawn] == [Rule.IDLE]
    assert what(machine.decided(490, idle(150))) == ("keep", "hold")
    assert what(machine.decided(501, idle(160))) == ("stop", "lease")


def test_a_hold_covers_an_unlabelled_machine_too() -> None:
    rule = LabelRule(("owner",), timedelta(hours=2), RuleAction.STOP)
    machine = Machine(policy=replace(DEFAULT, unlabelled=rule), owner="")
    machine.tell(5, "hold_set", until=iso(minute(3000)))
    assert what(machine.decided(200, idle(65))) == ("keep", "hold")


# --- schedules -----------------------------------------------------------------------------------------------------


def test_an_off_time_is_told_before_and_ends_a_machine_that_is_used_or_held() -> None:
    machine = Machine(policy=OFF_AT_NINETEEN)
    machine.tell(5, "hold_set", until=iso(minute(3000)))
    assert what(machine.decided(459, active())) == ("keep", "hold")
    decision = machine.decided(460, active())
    assert (what(decision), decision.at) == (("warn", "schedule"), minute(480))
    assert what(machine.decided(470, active())) == ("keep", "schedule")
    assert what(machine.decided(480, active())) == ("stop", "schedule")


def test_a_missed_off_time_catches_up_after_a_warning() -> None:
    machine = Machine(policy=OFF_AT_NINETEEN, expires=iso(minute(900)))
    decision = machine.decided(600, active())
    assert (what(decision), decision.at) == (("warn", "schedule"), minute(610))
    assert what(machine.decided(610, active())) == ("stop", "schedule")


def test_a_start_after_the_off_time_survives_until_the_next() -> None:
    machine = Machine(policy=OFF_AT_NINETEEN, renew_until=iso(minute(9000)), expires=iso(minute(8000)))
    machine.see(490, "stopped", billed=False)
    machine.see(500, "running", billed=True)
    decision = machine.decided(510, active())
    assert (what(decision), decision.at) == (("keep", "none"), minute(480 + 1440))
    assert what(machine.decided(480 + 1440 - 20, active())) == ("warn", "schedule")


def test_yesterdays_warning_is_none_of_today() -> None:
    machine = Machine(policy=OFF_AT_NINETEEN, renew_until=iso(minute(9000)), expires=iso(minute(8000)))
    machine.decided(460, active())
    for number in range(470, 1920, 50):  # its region said nothing from before the off time on
        machine.decided(number, None, answered=False)
    assert machine.machine.warnings["schedule"].due == iso(minute(480))
    decision = machine.decided(480 + 1440 + 5, active())
    assert (what(decision), decision.at) == (("warn", "schedule"), minute(480 + 1440 + 15))


def test_who_starts_after_the_warning_is_warned_too() -> None:
    machine = Machine(policy=OFF_AT_NINETEEN, expires=iso(minute(900)))
    machine.decided(460, active())
    machine.see(475, "running", billed=True)  # started again in the provider's console
    decision = machine.decided(480, active())
    assert (what(decision), decision.at) == (("warn", "schedule"), minute(490))


def off_all_weekend(begin: datetime) -> Policy:
    """Off since an hour after `begin`, for two days and a half."""
    off, back = begin + timedelta(hours=1), begin + timedelta(days=2, hours=12)
    days, until = frozenset({off.weekday()}), (back.weekday(), back.time())
    return replace(DEFAULT, schedules=(Schedule("UTC", off.time(), days, until=until),))


def test_a_machine_that_is_started_while_its_schedule_keeps_it_off_is_warned_and_stopped() -> None:
    machine = Machine(policy=off_all_weekend(START), renew_until=iso(minute(9000)), expires=iso(minute(8000)))
    machine.see(60, "stopped", billed=False)
    machine.see(1440, "running", billed=True)  # on Saturday, say
    decision = machine.decided(1450, active())
    assert (what(decision), decision.at) == (("warn", "schedule"), minute(1460))
    assert "its schedule keeps it off until" in decision.why
    assert what(machine.decided(1460, active())) == ("stop", "schedule")


def test_a_hold_keeps_on_what_was_started_on_a_weekend_off() -> None:
    machine = Machine(policy=off_all_weekend(START), renew_until=iso(minute(9000)), expires=iso(minute(8000)))
    machine.see(60, "stopped", billed=False)
    machine.see(1440, "running", billed=True)
    assert what(machine.decided(1450, active())) == ("warn", "schedule")
    machine.tell(1451, "hold_set", until=iso(minute(1600)))
    assert what(machine.decided(1460, active())) == ("keep", "hold")
    assert what(machine.decided(1610, active())) == ("warn", "schedule"), "the hold is over: it is warned anew"
    assert what(machine.decided(1620, active())) == ("stop", "schedule")


def test_after_a_weekend_off_a_machine_may_run() -> None:
    machine = Machine(policy=off_all_weekend(START), renew_until=iso(minute(9000)), expires=iso(minute(8000)))
    machine.see(60, "stopped", billed=False)
    machine.see(60 * 60 + 5, "running", billed=True)
    assert what(machine.decided(60 * 60 + 30, active())) == ("keep", "none")


# --- budgets -------------------------------------------------------------------------------------------------------


def test_a_passed_budget_is_stronger_than_anything() -> None:
    machine = Machine(renew_until=iso(minute(90)))
    decision = machine.decided(100, active(), stops=[over(machine)])
    assert (what(decision), decision.urgent) == (("stop", "budget"), True)


def test_a_budgets_warning_is_counted_and_does_not_hide_other_rules() -> None:
    machine = Machine()
    machine.tell(10, "hold_set", until=iso(minute(3000)))
    machine.decided(100, active(), stops=[over(machine, ReaperAction.WARN)])
    machine.decided(110, active(), stops=[over(machine, ReaperAction.WARN)])
    assert machine.machine.warnings["budget"].times == 2
    assert [one.rule for one in machine.decided(120, active()).withdrawn] == [Rule.BUDGET]


def test_what_cannot_be_stopped_is_parked_for_a_budget_and_never_terminated() -> None:
    machine = Machine(**SPOT | {"setup": LOSES_DISK})
    assert what(machine.decided(100, active(), stops=[over(machine, ReaperAction.PARK)])) == (
        "park",
        "budget",
    )


@pytest.mark.parametrize(("do", "expected"), [(RuleAction.STOP, "stop"), (RuleAction.WARN, "warn")])
def test_a_machine_that_costs_more_than_its_policy_lets_it(do: RuleAction, expected: str) -> None:
    policy = replace(DEFAULT, budget=MachineBudget(Money.usd(Decimal(5)), do))
    machine = Machine(policy=policy, price=price(HOUR_NANOS))  # 3.6 USD an hour
    assert what(machine.decided(80, active()))[0] == "keep"
    assert what(machine.decided(90, active())) == (expected, "budget")


def test_a_held_machine_is_warned_twice_before_its_own_budget_stops_it() -> None:
    policy = replace(DEFAULT, budget=MachineBudget(Money.usd(Decimal(5)), RuleAction.STOP))
    machine = Machine(policy=policy, price=price(HOUR_NANOS))
    machine.tell(10, "hold_set", until=iso(minute(3000)))
    assert [what(machine.decided(number, active()))[0] for number in (90, 100, 110)] == ["warn", "warn", "stop"]


# --- how it ends ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setup", "unpausable", "expected"),
    [
        (KEEPS_DISK, Unpausable.PARK, ReaperAction.PARK),
        (LOSES_DISK, Unpausable.TERMINATE, ReaperAction.TERMINATE),
        (None, Unpausable.TERMINATE, ReaperAction.TERMINATE),
        (None, Unpausable.PARK, ReaperAction.PARK),
    ],
)
def test_what_cannot_be_stopped_ends_as_was_agreed(setup: Any, unpausable: Unpausable, expected: ReaperAction) -> None:
    policy = replace(DEFAULT, unpausable=unpausable)
    assert Machine(policy=policy, stoppable=False, setup=setup).decided(480, idle()).do is expected


def test_unpausable_warn_spares_from_idle_time_and_schedules_but_not_from_the_lease() -> None:
    policy = replace(OFF_AT_NINETEEN, unpausable=Unpausable.WARN)
    machine = Machine(policy=policy, **SPOT | {"expires": iso(minute(700))})
    assert [what(machine.decided(number, idle(60))) for number in (100, 110, 120)] == [
        ("warn", "idle"),
        ("keep", "idle"),
        ("keep", "idle"),
    ]
    assert what(machine.decided(490, idle(60))) == ("warn", "schedule")
    assert what(machine.decided(500, idle(60)))[0] == "keep"
    assert what(machine.decided(700, idle(60))) == ("park", "lease")


# --- what is not known, or not there -------------------------------------------------------------------------------


def test_silence_is_not_absence() -> None:
    machine = Machine(renew_until=iso(minute(90)))
    machine.decided(80, idle())
    decision = machine.decided(100, None, answered=False, stops=[over(machine)])
    assert (what(decision), decision.activity, decision.withdrawn) == (("keep", "none"), "UNKNOWN", ())
    assert decision.why.startswith("here did not answer, so nothing is known of it")
    assert decision.at == minute(90)
    machine.see(110, "stopped", billed=False)
    assert machine.decided(120, None, answered=False).at is None  # no timer ends what is stopped


def test_an_unsettled_launch_is_left_alone() -> None:
    machine = Machine(renew_until=iso(minute(90)))
    del machine.lines[1:]
    assert what(machine.decided(100, None, stops=[over(machine)])) == ("keep", "none")


def test_a_machine_that_stops_is_not_asked_again() -> None:
    machine = Machine(renew_until=iso(minute(90)))
    machine.see(95, "stopping", billed=True)
    assert what(machine.decided(100, None)) == ("keep", "none")


def test_a_machine_that_hangs_while_it_stops_is_stopped_again_as_it_is_billed_on() -> None:
    machine = Machine(renew_until=iso(minute(900)))
    machine.see(95, "stopping", billed=True)
    assert what(machine.decided(124, None)) == ("keep", "none")
    decision = machine.decided(125, None)
    assert what(decision) == ("stop", "idle")
    assert decision.why == "it has been stopping for 30m, and is billed on"
    machine.see(96, "stopping", billed=False)
    assert what(machine.decided(300, None)) == ("keep", "none")


def test_a_stopped_machine_has_no_lease_schedule_or_idle_time() -> None:
    machine = Machine(policy=OFF_AT_NINETEEN, renew_until=iso(minute(90)))
    machine.see(80, "stopped", billed=False)
    assert what(machine.decided(600, None)) == ("keep", "none")


@pytest.mark.parametrize(("do", "end"), [(RuleAction.TERMINATE, "terminate"), (RuleAction.IMAGE, "image")])
def test_a_long_stopped_machine_is_warned_a_day_and_then_kept_as_an_image_or_ended(do: RuleAction, end: str) -> None:
    machine = Machine(policy=replace(DEFAULT, stopped=Retention(timedelta(days=10), do)))
    machine.see(60, "stopped", billed=False)
    day = 24 * 60
    assert what(machine.decided(60 + 10 * day - 1, None)) == ("keep", "none")
    assert what(machine.decided(60 + 10 * day, None)) == ("warn", "stopped")
    assert what(machine.decided(60 + 11 * day - 2, None)) == ("keep", "stopped")
    assert what(machine.decided(60 + 11 * day, None)) == (end, "stopped")


def test_a_hold_covers_a_stopped_machine_too() -> None:
    machine = Machine(policy=replace(DEFAULT, stopped=Retention(timedelta(days=10), RuleAction.TERMINATE)))
    machine.see(60, "stopped", billed=False)
    machine.tell(61, "hold_set", until=iso(minute(90_000)))
    assert what(machine.decided(20_000, None)) == ("keep", "hold")


def test_a_long_stopped_machine_that_is_only_told_is_told_once_a_week() -> None:
    machine = Machine(policy=replace(DEFAULT, stopped=Retention(timedelta(days=10), RuleAction.WARN)))
    machine.see(0.1, "stopped", billed=False)
    day = 24 * 60
    told = [number for number in range(1, 30) if machine.decided(number * day, None).warnings]
    assert told == [11, 18, 25]


def test_a_long_kept_image_is_told_a_day_before_it_is_removed() -> None:
    machine = Machine(policy=replace(DEFAULT, images=Retention(timedelta(days=30), RuleAction.REMOVE)), **SPOT)
    entry = {"id": "img-1", "kind": "image", "made_at": iso(minute(60)), "size_gb": 9, "stored_as": "snapshot"}
    entry |= {"region": "here", "zone": None, "ready": True, "nanos_per_month": None}
    machine.tell(50, "park_requested", why="idle")
    machine.see(55, "terminated", billed=False)
    machine.lines.append(line(60 * 60, "resources_retained", {"retained": [entry]}, len(machine.lines)))
    day = 24 * 60
    assert what(machine.decided(30 * day, None)) == ("keep", "none")
    assert what(machine.decided(60 + 30 * day, None)) == ("warn", "images")
    assert what(machine.decided(60 + 31 * day, None)) == ("remove", "images")


def test_a_machine_that_is_gone_and_left_nothing_is_kept_in_peace() -> None:
    machine = Machine()
    machine.see(50, "terminated", billed=False)
    decision = machine.decided(100, None)
    assert (what(decision), decision.why) == (("keep", "none"), "it ended 11:50 UTC")


# --- who does not say whose a machine is ---------------------------------------------------------------------------


def test_an_unlabelled_machine_is_told_of_while_it_is_used_and_ended_when_nobody_uses_it() -> None:
    rule = LabelRule(("owner", "project"), timedelta(hours=2), RuleAction.STOP)
    machine = Machine(policy=replace(DEFAULT, idle=Idle(do=RuleAction.DISABLED), unlabelled=rule), owner="", project="")
    assert what(machine.decided(110, active()))[0] == "keep"
    decision = machine.decided(130, active())
    assert (what(decision), decision.warnings[0].due) == (("warn", "unlabelled"), None)
    assert what(machine.decided(160, UNKNOWN))[0] == "keep"
    assert what(machine.decided(200, idle(65))) == ("warn", "unlabelled")
    assert what(machine.decided(210, idle(75))) == ("stop", "unlabelled")


# --- all together --------------------------------------------------------------------------------------------------


def test_two_warnings_of_one_pass_are_both_given_and_the_nearer_end_is_said() -> None:
    machine = Machine(renew_until=iso(minute(150)), expires=iso(minute(150)))
    decision = machine.decided(100, idle())
    assert [one.rule for one in decision.warnings] == [Rule.RENEW_UNTIL, Rule.IDLE]
    assert (what(decision), decision.at) == (("warn", "idle"), minute(110))


def test_there_is_one_decision_per_machine_in_their_order_and_each_has_a_reason() -> None:
    machines = [Machine(f"cg-{number}") for number in range(4)]
    known = [machines[0].known(active()), machines[1].known(idle()), machines[2].known(UNKNOWN)]
    known.append(machines[3].known(None, answered=False))
    found = decide(known, (), minute(100), interval=TEN)
    assert [one.machine for one in found] == ["cg-0", "cg-1", "cg-2", "cg-3"]
    assert all(one.why for one in found)
