"""Whatever a provider can do: what is decided can be carried out, and no machine outlives its renew-until."""

from __future__ import annotations

from dataclasses import replace
from datetime import time, timedelta
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from cloudgpu.core.budgets import enforcement as budget_stops
from cloudgpu.core.policies.guards import gentlest_ending
from cloudgpu.core.policies.policy import (
    Idle,
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
from cloudgpu.core.reaper.decisions import ENDINGS, Decision
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.times import iso
from tests.core.deciding import DEFAULT, KEEPS_DISK, LOSES_DISK, UNKNOWN, Machine, active, idle, minute
from tests.core.lives import HOUR_NANOS, price
from tests.examples import some

NOTHING = {"stoppable": False, "parkable": False, "setup": KEEPS_DISK}
LOSES = NOTHING | {"setup": LOSES_DISK}  # its policy is to terminate what cannot be stopped
_CARRIED_OUT_BY = {ReaperAction.STOP: "stoppable", ReaperAction.PARK: "parkable", ReaperAction.IMAGE: "parkable"}


def can(machine: Machine, do: ReaperAction) -> bool:
    """Say whether the machine's provider can carry this out; what nobody knows may be tried."""
    needs = _CARRIED_OUT_BY.get(do)
    return needs is None or getattr(machine.machine, needs) is not False


def passes(machine: Machine, *numbers: float, judged: Any = None, **more: Any) -> list[Decision]:
    return [machine.decided(number, judged or idle(), **more) for number in numbers]


def over(machine: Machine) -> tuple[budget_stops.PlannedStop, ...]:
    do = gentlest_ending(machine.machine)
    return (
        budget_stops.PlannedStop(machine.id, machine.id, "lab", do, "the budget lab is passed: $301.00 of $300.00"),
    )


def test_renew_until_and_budgets_terminate_where_nothing_gentler_exists() -> None:
    machine = Machine(**NOTHING | {"renew_until": iso(minute(600))})
    (decision,) = passes(machine, 600)
    assert (decision.do, decision.rule) == (ReaperAction.TERMINATE, Rule.RENEW_UNTIL)
    spent = Machine(**NOTHING)
    (decision,) = passes(spent, 20, judged=active(), stops=over(spent))
    assert (decision.do, decision.rule) == (ReaperAction.TERMINATE, Rule.BUDGET)
    assert "it can be neither stopped nor kept as an image" in decision.why
    own = replace(DEFAULT, budget=MachineBudget(Money.usd("0.01"), RuleAction.STOP))
    assert Machine(policy=own, price=price(HOUR_NANOS), **NOTHING).decided(300, active()).do is ReaperAction.TERMINATE


@pytest.mark.parametrize(("facts", "expected"), [(NOTHING, ReaperAction.WARN), (LOSES, ReaperAction.TERMINATE)])
def test_the_lease_ends_only_what_its_policy_lets_go(facts: dict[str, Any], expected: ReaperAction) -> None:
    machine = Machine(policy=replace(DEFAULT, idle=Idle(do=RuleAction.DISABLED)), **facts)
    decision = machine.decided(480, idle())
    assert (decision.do, decision.rule) == (expected, Rule.LEASE)
    if expected is ReaperAction.WARN:
        assert decision.why.endswith(
            "; it can be neither stopped nor kept as an image, and its policy is to keep its disk: "
            "its renew-until, 2026-11-23 11:00 UTC, or a budget ends it"
        )
        assert [one.due for one in decision.warnings] == [None]
        assert machine.decided(490, idle()).warnings == ()  # told once a day, and never an error


@pytest.mark.parametrize(("facts", "expected"), [(NOTHING, "warn keep keep"), (LOSES, "warn keep terminate")])
def test_idle_time_ends_only_what_its_policy_lets_go(facts: dict[str, Any], expected: str) -> None:
    found = passes(Machine(**facts), 100, 105, 110)
    assert " ".join(one.do for one in found) == expected
    told = found[0].warnings[0].why
    assert ("it is terminated then, and what is on its disk is deleted" in told) == (facts is LOSES)


@pytest.mark.parametrize(("facts", "ends"), [(NOTHING, False), (LOSES, True)])
def test_a_schedule_ends_only_what_its_policy_lets_go(facts: dict[str, Any], ends: bool) -> None:
    policy = replace(DEFAULT, lease=timedelta(hours=9), schedules=(Schedule("UTC", time(19)),))
    machine = Machine(policy=policy, **facts | {"expires": iso(minute(700))})
    found = passes(machine, 460, 470, 480, 490, judged=active())
    assert any(one.do is ReaperAction.TERMINATE for one in found) == ends
    assert any(warned.rule is Rule.SCHEDULE for one in found for warned in one.warnings)


def test_people_are_told_that_their_disk_goes() -> None:
    machine = Machine(**NOTHING | {"renew_until": iso(minute(600))})
    (decision,) = passes(machine, 545, judged=active())
    assert decision.warnings[0].why.endswith("; it is terminated then, and what is on its disk is deleted")
    stops = Machine(renew_until=iso(minute(600))).decided(545, active())
    assert "deleted" not in stops.warnings[0].why


def test_a_stopped_machine_that_cannot_be_kept_as_an_image_is_only_told_of() -> None:
    policy = replace(DEFAULT, stopped=Retention(timedelta(days=1), RuleAction.IMAGE))
    machine = Machine(policy=policy, parkable=False)
    machine.see(10, "stopped", billed=False)
    decision = machine.decided(10 + 1440)
    assert (decision.do, decision.rule) == (ReaperAction.WARN, Rule.STOPPED)
    assert "keeps no images, so it is only warned of" in decision.why
    assert machine.decided(10 + 3 * 1440).do is ReaperAction.KEEP


FACTS = st.fixed_dictionaries(
    {
        "stoppable": st.sampled_from([True, False, None]),
        "parkable": st.sampled_from([True, False, None]),
        "setup": st.sampled_from([None, KEEPS_DISK, LOSES_DISK]),
        "market": st.sampled_from(["on_demand", "spot"]),
    }
)
POLICIES = st.builds(
    Policy,
    name=st.just("own"),
    lease=st.just(timedelta(hours=8)),
    renew_until=st.just(timedelta(hours=12)),
    unpausable=st.sampled_from(Unpausable),
    idle=st.builds(Idle, do=st.sampled_from([RuleAction.STOP, RuleAction.WARN, RuleAction.DISABLED])),
    schedules=st.sampled_from([(), (Schedule("UTC", time(19)),)]),
    unknown=st.sampled_from(Unknown),
    budget=st.sampled_from(
        [None, MachineBudget(Money.usd("5"), RuleAction.STOP), MachineBudget(Money.usd("5"), RuleAction.WARN)]
    ),
)
USE = st.lists(st.sampled_from([active(), idle(), UNKNOWN, None]), min_size=1, max_size=6)


@settings(max_examples=some(120), deadline=None)
@given(FACTS, POLICIES | st.none(), USE, st.booleans(), st.booleans())
def test_every_end_can_be_carried_out_and_none_outlives_renew_until(
    facts: dict[str, Any], policy: Policy | None, use: list[Any], held: bool, spent: bool
) -> None:
    machine = Machine(policy=policy, **facts | {"renew_until": iso(minute(720))})
    if held:
        machine.tell(3, "hold_set", until=iso(minute(900)), why="asked")
    for number, at in enumerate(range(30, 800, 70)):
        decision = machine.decided(at, use[number % len(use)], stops=over(machine) if spent and at > 300 else ())
        assert can(machine, decision.do), (decision, facts)
        if decision.do is ReaperAction.TERMINATE:
            assert facts["stoppable"] is False
            agreed = facts["setup"] == LOSES_DISK or (
                facts["setup"] is None and policy is not None and policy.unpausable is Unpausable.TERMINATE
            )
            gentler = facts["parkable"] is not False
            assert (agreed and decision.rule is not Rule.BUDGET) or not gentler
            assert agreed or decision.rule in (Rule.BUDGET, Rule.RENEW_UNTIL)
        if decision.do in ENDINGS:
            return
    raise AssertionError("it outlives its renew-until")
