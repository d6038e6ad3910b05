"""Starts a cluster as one, on the fake cloud: all nodes or none, under one lease that budgets admit at once."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest

from cloudgpu.cli.clusters.acting import start as start_and_show
from cloudgpu.cli.launch.options import StartOptions
from cloudgpu.cli.output import Format
from cloudgpu.control.budgets.commands import BudgetOptions, budget_of_options
from cloudgpu.control.budgets.store import set_budget
from cloudgpu.control.clusters.power import stop_all
from cloudgpu.control.clusters.start import check_no_move_option, start_all
from cloudgpu.control.lifecycle.start import new_lease
from cloudgpu.errors import BudgetRefused, EndRefused, InvalidRequest, NoCapacity, ProviderUnavailable, StopUnproved

FULL = NoCapacity("the zone is full.")


@pytest.fixture
def stopped(lab, gang):
    return stop_all(lab.session, gang, why="a test").machines


def start(lab, rows, **more):
    lease = new_lease(lab.session, rows[0], timedelta(hours=2))
    return start_all(lab.session, rows, lease, wait=False, **more)


def test_all_nodes_start_under_one_new_lease(lab, stopped):
    done = start(lab, stopped)
    assert done.errors == ()
    assert {row.state for row in done.machines} == {"running"}
    assert len({(row.expires, row.renew_until) for row in done.machines}) == 1
    assert len({one.tags["cloudgpu-expires"] for one in lab.cloud.list().instances}) == 1


@pytest.mark.parametrize("times", [1, 2, 4])
def test_without_capacity_for_one_node_none_runs(lab, stopped, times):
    lab.cloud.fail_next("start", FULL, times=times)
    with pytest.raises(NoCapacity) as refused:
        start(lab, stopped)
    assert refused.value.message.startswith("train did not start: train-")
    assert refused.value.message.endswith("the zone is full. The nodes that had started are stopped again.")
    assert refused.value.exit_code == 4
    assert "cloudgpu start train" in refused.value.next
    assert lab.machines() == []
    rows = lab.session.find_all_nodes("train", "start")
    assert [(row.state, row.billed, row.pending_action) for row in rows] == [("stopped", False, None)] * 4


@pytest.mark.soak
def test_after_a_refusal_the_same_start_succeeds(lab, stopped):
    lab.cloud.fail_next("start", FULL)
    with pytest.raises(NoCapacity):
        start(lab, stopped)
    assert {row.state for row in start(lab, stopped).machines} == {"running"}


def test_a_node_that_started_and_cannot_be_stopped_again_is_named_and_known_to_be_billed(lab, stopped):
    lab.cloud.fail_next("start", FULL)
    lab.cloud.fail_next("stop", EndRefused("it is protected", lifts="unlock"))
    with pytest.raises(StopUnproved) as left:
        start(lab, stopped)
    assert left.value.message.startswith("train did not start: train-")
    assert "the zone is full. A part of it may run and be billed: " in left.value.message
    assert left.value.exit_code == 9
    assert left.value.next == "Run: cloudgpu stop train"
    (name,) = [name for name, state in lab.states().items() if state == "running"]
    assert name in left.value.message
    assert [row.name for row in lab.session.find_all_nodes("train", "stop") if row.billed] == [name]


def test_a_lost_answer_is_no_refusal_where_the_node_is_seen_to_run(lab, stopped):
    lab.cloud.lose_reply("start")
    assert {row.state for row in start(lab, stopped).machines} == {"running"}


def test_a_node_of_which_nobody_knows_leaves_nothing_started(lab, stopped):
    lab.cloud.fail_next("get", ProviderUnavailable("no answer."))
    with pytest.raises(ProviderUnavailable) as unknown:
        start(lab, stopped)
    assert unknown.value.message.endswith(": no answer. No node of train was started.")
    assert lab.machines() == []


def test_what_runs_already_is_left_alone(lab, gang):
    before = lab.cloud.calls["start"]
    done = start(lab, gang)
    assert {row.state for row in done.machines} == {"running"}
    assert lab.cloud.calls["start"] == before
    assert done.machines[0].expires == gang[0].expires


def test_a_cluster_that_was_stopped_outside_is_not_started_without_a_question(lab, gang):
    """The ledger has all its nodes as running, which would cost nothing to start."""
    for row in gang:
        lab.cloud.stop(row.provider_id)
    options = StartOptions(None, None, None, verbose=False, yes=False)
    with pytest.raises(InvalidRequest) as unasked:
        start_and_show(lab.session, gang, options, wait=False, output=Format.TEXT)
    assert unasked.value.field == "--yes"
    assert lab.machines() == []


def test_a_node_that_ran_before_runs_on_and_is_named(lab, stopped):
    lab.cloud.start(stopped[1].provider_id)
    lab.cloud.fail_next("start", FULL)
    with pytest.raises(NoCapacity) as refused:
        start(lab, stopped)
    assert refused.value.message.endswith(" train-1 ran before, and still runs.")
    assert {name for name, state in lab.states().items() if state == "running"} == {"train-1"}


def test_a_budget_for_three_nodes_starts_none(lab, stopped):
    hourly = Decimal(stopped[0].price.nanos_per_hour) / 10**9
    most = f"{hourly * 2 * 7 / 2 + Decimal('0.05'):.4f}"  # for two hours; a start counts a little beside
    set_budget(lab.session, budget_of_options(lab.session, BudgetOptions("lab", most, "total")), overwrite=True)
    lease = new_lease(lab.session, stopped[0], timedelta(hours=2), timedelta(hours=2))
    with pytest.raises(BudgetRefused) as refused:
        start_all(lab.session, stopped, lease, wait=False)
    assert refused.value.exit_code == 3
    assert lab.machines() == []
    now = lab.session.find_all_nodes("train", "start")
    assert [row.expires for row in now] == [row.expires for row in stopped]
    assert start_all(lab.session, stopped[:3], lease, wait=False).errors == ()


def test_a_cluster_of_which_a_disk_alone_is_kept_is_not_started(lab, stopped):
    kept = stopped[1]._replace(terminated_at="2026-11-20T11:00:00.000000Z", parked=True)
    with pytest.raises(InvalidRequest, match="clusters cannot be restored from images"):
        start(lab, (stopped[0], kept))
    with pytest.raises(InvalidRequest, match="train cannot be moved"):
        check_no_move_option(stopped[0], move=True)
