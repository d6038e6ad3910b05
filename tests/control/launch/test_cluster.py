"""Launches of several machines under one name: all of them, or none that goes on costing."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest

from cloudgpu.control.clusters.together import living_nodes
from cloudgpu.control.inventory.settle import settle_abandoned_launches
from cloudgpu.control.launch.launch import launch
from cloudgpu.control.lifecycle.lifecycle import terminate_one
from cloudgpu.core.model.instances import TAG_CLUSTER, TAG_ID, TAG_NAME, TAG_NODE
from cloudgpu.core.model.launch import Setup, Volume
from cloudgpu.errors import BudgetRefused, CloudgpuError, InvalidRequest, NoCapacity, ProviderUnavailable, QuotaExceeded
from cloudgpu.ledger import saved_calls as saved
from tests.control.budgets.test_admission import budget

HOUR = timedelta(hours=1)


@pytest.fixture
def lab(make_lab):
    """A lab whose cloud has no call for several machines: each node is a launch of its own."""
    return make_lab('lacks = ["LaunchesTogether"]')


def up(lab, nodes=4, **more):
    return lab.up(nodes=nodes, engine="none", **{"name": "train", **more})


def fail_at(lab, number, error):
    """Let the launch of the machine after so many others fail, once."""
    for turn in range(number + 1):
        lab.cloud.fail_next("launch", lambda turn=turn: error if turn == number else None)


def test_a_cluster_is_so_many_machines_of_one_type_and_zone_each_with_its_own_name_and_id(lab):
    done = up(lab)
    rows, machines = lab.rows(), lab.machines()
    assert [row.name for row in done.nodes] == [f"train-{node}" for node in range(4)]
    assert {(row.zone, row.instance_type) for row in rows} == {(rows[0].zone, rows[0].instance_type)}
    assert {row.cluster.name for row in rows} == {"train"}
    assert sorted(row.cluster.node for row in rows) == [0, 1, 2, 3]
    assert {one.tags[TAG_ID] for one in machines} == {f"{rows[0].cluster.id}-{node}" for node in range(4)}
    assert {(one.tags[TAG_NAME], one.tags[TAG_CLUSTER], one.tags[TAG_NODE]) for one in machines} == {
        (f"train-{node}", "4-none-wait", str(node)) for node in range(4)
    }


def test_all_intents_stand_in_the_ledger_before_the_first_call(lab):
    lab.cloud.fail_next("launch", ProviderUnavailable("silence", field="provider"))
    with pytest.raises(ProviderUnavailable):
        up(lab)
    rows = lab.rows()
    assert [row.launch_status for row in rows] == ["open"] * 4
    assert all(saved.load(lab.session.home.attempts, row.token).machine == row.id for row in rows)


def test_the_same_request_again_returns_the_same_cluster(lab):
    first, second = up(lab), up(lab)
    assert (first.already_existed, second.already_existed) == (False, True)
    assert [one.id for one in first.nodes] == [one.id for one in second.nodes]
    assert len(lab.machines()) == 4


def test_where_one_node_is_refused_those_before_it_are_ended_and_those_after_it_never_sent(lab):
    fail_at(lab, 2, QuotaExceeded("no quota", field="quota"))
    with pytest.raises(QuotaExceeded):
        up(lab)
    assert (lab.machines(), lab.rows()) == ([], [])
    outcomes = {row.name: row.launch_status for row in lab.session.ledger.machines()}
    assert outcomes == {"train-0": "made", "train-1": "made", "train-2": "refused", "train-3": "void"}
    assert not lab.session.home.attempts.exists()


def test_without_capacity_for_all_the_next_zone_is_tried_for_all(lab):
    fail_at(lab, 1, NoCapacity("nothing left here", field="zone"))
    done = up(lab)
    first = [row for row in lab.session.ledger.machines() if row.terminated_at is not None]
    assert len(done.nodes) == len(lab.machines()) == 4
    assert {row.zone for row in first}.isdisjoint({row.zone for row in done.nodes})


def test_an_interrupted_launch_is_completed_by_the_same_request(lab):
    fail_at(lab, 2, ProviderUnavailable("silence", field="provider"))
    with pytest.raises(ProviderUnavailable):
        up(lab)
    assert len(lab.machines()) == 2
    done = up(lab)
    assert not done.already_existed
    assert len(done.nodes) == len(lab.machines()) == 4
    assert {row.launch_status for row in lab.rows()} == {"made"}


def test_a_lost_reply_never_makes_more_machines_than_nodes(lab):
    lab.cloud.lose_reply("launch")
    with pytest.raises(ProviderUnavailable):
        up(lab)
    up(lab)
    assert len(lab.machines()) == len(lab.rows()) == 4


def test_an_interrupted_launch_that_finds_no_capacity_any_more_is_ended_and_launched_anew(lab):
    fail_at(lab, 1, ProviderUnavailable("silence", field="provider"))
    with pytest.raises(ProviderUnavailable):
        up(lab)
    first = {row.id for row in lab.rows()}
    lab.cloud.fail_next("launch", NoCapacity("nothing left here", field="zone"))
    done = up(lab)
    assert len(done.nodes) == len(lab.machines()) == 4
    assert first.isdisjoint(row.id for row in done.nodes)


def test_new_completes_an_interrupted_launch_and_leaves_no_part_of_it_running(lab):
    fail_at(lab, 2, ProviderUnavailable("silence", field="provider"))
    with pytest.raises(ProviderUnavailable):
        up(lab, name=None, new=True)
    assert len(lab.machines()) == 2
    done = up(lab, name=None, new=True)
    assert len(done.nodes) == len(lab.machines()) == 4
    assert len({row.cluster.id for row in lab.rows()}) == 1


def test_what_another_computer_settled_as_a_part_is_ended_by_the_next_launch(lab):
    fail_at(lab, 1, ProviderUnavailable("silence", field="provider"))
    with pytest.raises(ProviderUnavailable):
        up(lab)
    for file in lab.session.home.attempts.iterdir():
        file.unlink()
    lab.later(hours=1)
    settle_abandoned_launches(lab.session)
    assert sorted(row.launch_status for row in lab.session.ledger.machines()) == ["made", "void", "void", "void"]
    done = up(lab)
    assert not done.already_existed
    assert len(lab.machines()) == len(lab.rows()) == 4


def test_a_budget_is_asked_for_all_machines_at_once_and_says_how_many_would_fit(lab):
    price = Decimal(lab.prepare(nodes=4, engine="none", name="train").plan.offer.price.per_hour.nanos) / 10**9
    spans = {"lease": HOUR, "renew_until": HOUR}
    budget(lab, price * Decimal("3.5"), period="total")
    with pytest.raises(BudgetRefused) as refused:
        up(lab, **spans)
    assert "--nodes 3" in refused.value.next
    assert "the 4 machines of train" in refused.value.message
    assert lab.session.ledger.machines() == []
    assert len(up(lab, nodes=3, **spans).nodes) == 3


def test_the_name_of_a_cluster_and_of_its_nodes_is_taken_while_it_lives(lab):
    up(lab)
    for name in ("train", "train-0"):
        with pytest.raises(InvalidRequest, match="already there"):
            lab.up(name=name)
    lab.up(name="other-1")
    with pytest.raises(InvalidRequest, match="other-1 is already there"):
        up(lab, name="other")


def test_the_plan_counts_every_machine(lab):
    one = lab.prepare(name="one").plan
    four = lab.prepare(nodes=4, engine="none", name="train").plan
    assert four.nodes == 4
    assert four.to_renew_until.amount.nanos == 4 * one.to_renew_until.amount.nanos
    assert four.offer.price == one.offer.price


@pytest.mark.parametrize(
    ("wish", "field"),
    [
        ({"nodes": 0}, "--nodes"),
        ({"nodes": -1}, "--nodes"),
        ({"nodes": 65}, "--nodes"),
        ({"nodes": 10_000}, "--nodes"),
        ({"nodes": "four"}, "--nodes"),
        ({"nodes": 2, "engine": "ray"}, "--engine"),
        ({"nodes": 2, "on_node_loss": "replace"}, "--on-node-loss"),
        ({"nodes": 2, "setup": Setup(volume=Volume("data", 10))}, "--volume"),
        ({"nodes": 64, "name": "a" * 38}, "--name"),
        ({"nodes": 2, "key": "k" * 62}, "--key"),
    ],
)
def test_a_cluster_that_cannot_be_is_refused_before_anything_is_launched(lab, wish, field):
    with pytest.raises(InvalidRequest) as refused:
        lab.up(**wish)
    assert refused.value.field == field
    assert refused.value.next
    assert lab.session.ledger.machines() == []


def test_one_node_is_a_machine_of_its_own_unless_an_engine_queues_its_jobs(lab):
    assert lab.up(nodes=1, name="alone").machine.cluster is None
    queue = lab.up(nodes=1, engine="slurm", name="queue")
    assert (queue.machine.name, queue.machine.cluster.name, queue.machine.cluster.nodes) == ("queue", "queue", 1)


def test_a_key_launches_one_cluster_and_no_other_request_has_it(lab):
    first = up(lab, key="sweep")
    assert [one.id for one in up(lab, key="sweep").nodes] == [one.id for one in first.nodes]
    with pytest.raises(InvalidRequest, match="different request"):
        up(lab, nodes=2, key="sweep", name="other")


def test_a_key_finds_its_cluster_though_a_node_of_it_has_ended(lab):
    first, second = up(lab, nodes=2, key="sweep").nodes
    terminate_one(lab.session, first, why="test")
    again = up(lab, nodes=2, key="sweep")
    assert ([node.id for node in again.nodes], again.already_existed) == ([second.id], True)
    terminate_one(lab.session, second, why="test")
    with pytest.raises(InvalidRequest, match="a key can launch only one machine"):
        up(lab, nodes=2, key="sweep")


def test_a_key_that_another_request_has_taken_since_the_plan_launches_nothing(lab):
    prepared = lab.prepare(nodes=3, engine="none", name="other", key="mine")
    up(lab, nodes=2, key="mine")
    before = {one.id for one in lab.machines()}
    with pytest.raises(InvalidRequest, match="belongs to train-0"):
        launch(lab.session, prepared, wait=False)
    assert {one.id for one in lab.machines()} == before
    assert {row.provider_id for row in lab.rows()} == before


def test_nothing_else_is_launched_while_a_part_of_a_refused_cluster_could_not_be_ended(lab):
    fail_at(lab, 2, NoCapacity("nothing left here", field="zone"))
    lab.cloud.deny("terminate")
    with pytest.raises(CloudgpuError):
        up(lab)
    assert {row.name for row in lab.rows()} == {"train-0", "train-1"}
    assert len(lab.machines()) == 2
    lab.cloud.permit("terminate")
    assert len(up(lab).nodes) == len(lab.machines()) == 4


def test_a_node_that_is_gone_stands_for_its_cluster_where_no_other_lives(lab):
    first, _ = up(lab, nodes=2).nodes
    for row in reversed(lab.rows()):
        terminate_one(lab.session, row, why="test")
    gone = lab.session.ledger.machine(first.id)
    assert living_nodes(lab.session, gone) == (gone,)
