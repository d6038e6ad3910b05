"""One lease and one hold for all nodes of a cluster, on the fake cloud: admitted at once, set on each."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest

from cloudgpu.control.budgets.commands import BudgetOptions, budget_of_options
from cloudgpu.control.budgets.store import set_budget
from cloudgpu.control.clusters.lease import extend_all, hold_all, plan_extension_of_all
from cloudgpu.control.lifecycle.lease import set_lease
from cloudgpu.core.launch.plan import Lease
from cloudgpu.core.values.times import from_iso, iso
from cloudgpu.errors import BudgetRefused, InvalidRequest, ProviderUnavailable

HOURS = timedelta(hours=3)


def leases(lab):
    return {(row.expires, row.renew_until) for row in lab.session.find_all_nodes("train", "extend")}


def tags(lab, key):
    return {one.tags.get(key) for one in lab.cloud.list().instances}


def test_an_extension_moves_the_lease_of_all_nodes_to_one_moment(lab, gang):
    plan = plan_extension_of_all(lab.session, gang, HOURS)
    assert plan.lease.expires == from_iso(gang[0].expires) + HOURS
    done = extend_all(lab.session, plan)
    assert done.errors == ()
    assert leases(lab) == {(iso(plan.lease.expires), iso(plan.lease.renew_until))}
    assert len(tags(lab, "cloudgpu-expires")) == 1


def test_the_node_whose_lease_ends_last_says_from_when_on_it_is_extended(lab, gang):
    late = from_iso(gang[0].expires) + timedelta(hours=5)
    set_lease(lab.session, gang[2], Lease(late, from_iso(gang[2].renew_until)), "a test")
    plan = plan_extension_of_all(lab.session, lab.session.find_all_nodes("train", "extend"), HOURS)
    assert plan.lease.expires == late + HOURS


def test_it_costs_what_all_nodes_cost(lab, gang):
    one = plan_extension_of_all(lab.session, gang[:1], HOURS).added_cost
    assert plan_extension_of_all(lab.session, gang, HOURS).added_cost.nanos == 4 * one.nanos


def test_a_budget_that_carries_three_nodes_extends_none(lab, gang):
    hourly, day = Decimal(gang[0].price.nanos_per_hour) / 10**9, timedelta(hours=24)
    end, renew = from_iso(gang[0].expires), from_iso(gang[0].renew_until)
    lives = Decimal((renew - from_iso(gang[0].launched_at)).total_seconds()) / 3600
    most = f"{4 * hourly * lives + hourly * 24 * 7 / 2:.4f}"
    set_budget(lab.session, budget_of_options(lab.session, BudgetOptions("lab", most, "total")), overwrite=True)
    plan = plan_extension_of_all(lab.session, gang, renew - end + day)
    assert plan.moves_renew_until
    before = leases(lab)
    with pytest.raises(BudgetRefused):
        extend_all(lab.session, plan)
    assert leases(lab) == before
    assert len(tags(lab, "cloudgpu-expires")) == 1
    assert extend_all(lab.session, plan_extension_of_all(lab.session, gang[:3], renew - end + day)).errors == ()


def test_a_node_that_does_not_take_it_keeps_its_lease_and_is_said(lab, gang):
    plan = plan_extension_of_all(lab.session, gang, HOURS)
    lab.cloud.fail_next("tag", InvalidRequest("it takes no tags now"))
    done = extend_all(lab.session, plan)
    assert [fault.exit_code for fault in done.errors] == [2]
    assert sorted(row.expires for row in done.machines) == [gang[0].expires, *[iso(plan.lease.expires)] * 3]


def test_a_node_that_is_not_answered_about_is_said_and_the_others_are_extended(lab, gang):
    lab.cloud.fail_next("get", ProviderUnavailable("no answer"))
    plan = plan_extension_of_all(lab.session, gang, HOURS)
    assert len(plan.machines) == 3
    done = extend_all(lab.session, plan)
    assert done.worst.exit_code == 8
    rows = lab.session.find_all_nodes("train", "extend")
    assert extend_all(lab.session, plan_extension_of_all(lab.session, rows, HOURS)).errors == ()
    assert len(leases(lab)) == 1


def test_a_hold_and_its_release_are_of_all_nodes(lab, gang):
    until = lab.clock().replace(microsecond=0) + HOURS
    assert {row.hold_until for row in hold_all(lab.session, gang, until).machines} == {iso(until)}
    assert len(tags(lab, "cloudgpu-hold-until") - {None, ""}) == 1
    done = hold_all(lab.session, gang, None)
    assert done.errors == ()
    assert {row.hold_until for row in done.machines} == {None}


def test_a_hold_that_one_node_does_not_take_is_said_and_the_rest_is_held(lab, gang):
    until = lab.clock().replace(microsecond=0) + HOURS
    lab.cloud.fail_next("tag", ProviderUnavailable("no answer"))
    done = hold_all(lab.session, gang, until)
    assert [fault.exit_code for fault in done.errors] == [8]
    assert sum(row.hold_until == iso(until) for row in done.machines) == 3
