"""A stopped machine whose disk costs more for it: told of each day, and terminated at its renew-until."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from cloudgpu.core.policies.policy import ReaperAction, Retention, RuleAction
from cloudgpu.core.values.times import iso
from tests.core.deciding import DEFAULT, Machine, minute

DAY = 24 * 60
COST = {"what": "/workspace while it is stopped", "nanos_per_month": 10_000_000_000, "at_most": False}
STOPPED_ONLY = {**COST, "running": False, "kept": True, "named": False}
ALWAYS = {**COST, "what": "disk", "running": True, "kept": True, "named": False}


def stopped(*costs, **more):
    """Return a machine that stopped an hour after its launch; its renew-until is three days after that."""
    machine = Machine(attached_costs=list(costs), **more)
    machine.see(60, "stopped", billed=False)
    return machine


def what(decision):
    return str(decision.do), str(decision.rule)


def test_it_is_told_of_once_a_day_with_its_price_and_its_end():
    machine = stopped(STOPPED_ONLY)
    first = machine.decided(70)
    assert what(first) == ("warn", "stopped")
    assert "/workspace while it is stopped costs $10.00 a month" in first.why
    assert "renew-until ends it" in first.why
    assert what(machine.decided(80)) == ("keep", "stopped")
    assert what(machine.decided(70 + DAY)) == ("warn", "stopped")


def test_it_is_announced_a_day_before_and_terminated_at_its_renew_until():
    machine = stopped(STOPPED_ONLY)
    machine.decided(70)
    announced = machine.decided(2 * DAY + 1)
    assert (what(announced), announced.at) == (("warn", "stopped"), minute(3 * DAY + 1))
    assert machine.decided(3 * DAY - 5).do is ReaperAction.KEEP
    assert what(machine.decided(3 * DAY + 1)) == ("terminate", "stopped")


def test_a_pass_that_comes_late_still_gives_a_day():
    machine = stopped(STOPPED_ONLY)
    assert machine.decided(9 * DAY).at == minute(10 * DAY)
    assert machine.decided(10 * DAY - 5).do is ReaperAction.KEEP
    assert machine.decided(10 * DAY).do is ReaperAction.TERMINATE


def test_a_held_one_stays_and_a_started_one_is_warned_anew():
    machine = stopped(STOPPED_ONLY)
    machine.tell(61, "hold_set", until=iso(minute(20 * DAY)))
    assert machine.decided(9 * DAY).do is ReaperAction.KEEP
    again = stopped(STOPPED_ONLY)
    again.decided(2 * DAY + 1)
    again.see(2 * DAY + 10, "running", billed=True)
    again.see(2 * DAY + 20, "stopped", billed=False)
    assert again.decided(3 * DAY + 1).do is not ReaperAction.TERMINATE


def test_one_that_is_extended_after_its_end_was_announced_stays_until_its_new_renew_until():
    machine = stopped(STOPPED_ONLY)
    machine.decided(2 * DAY + 1)
    machine.tell(2 * DAY + 5, "lease_set", expires=iso(minute(9 * DAY)), renew_until=iso(minute(9 * DAY)))
    told = machine.decided(2 * DAY + 10)
    assert (what(told), told.at) == (("warn", "stopped"), None)
    assert machine.decided(3 * DAY + 1).do is not ReaperAction.TERMINATE
    announced = machine.decided(8 * DAY + 1)
    assert (what(announced), announced.at) == (("warn", "stopped"), minute(9 * DAY + 1))
    machine.tell(8 * DAY + 5, "lease_set", expires=iso(minute(9 * DAY + 60)), renew_until=iso(minute(9 * DAY + 60)))
    assert machine.decided(9 * DAY + 2).do is ReaperAction.KEEP
    assert what(machine.decided(9 * DAY + 60)) == ("terminate", "stopped")


@pytest.mark.parametrize("costs", [(), (ALWAYS,)])
def test_one_whose_disk_costs_the_same_is_left_alone(costs):
    assert stopped(*costs).decided(9 * DAY).do is ReaperAction.KEEP


def test_the_shorter_limit_of_a_policy_still_holds():
    policy = replace(DEFAULT, stopped=Retention(timedelta(hours=10), RuleAction.TERMINATE))
    machine = stopped(STOPPED_ONLY, policy=policy)
    machine.decided(60 + 10 * 60)
    assert machine.decided(60 + 10 * 60 + DAY).do is ReaperAction.TERMINATE
