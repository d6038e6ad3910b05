"""Stops and ends a cluster as one, on the fake cloud: others first, node 0 last, each proved, each failure told."""

from __future__ import annotations

import pytest

from cloudgpu.control.api.down import end_machines, machines_to_end
from cloudgpu.control.clusters.power import end_all, stop_all
from cloudgpu.control.clusters.start import start_all
from cloudgpu.control.inventory.sync import sync_all
from cloudgpu.control.lifecycle.lifecycle import stop
from cloudgpu.control.lifecycle.start import new_lease
from cloudgpu.control.reaper.reaper import ReapOptions, reap
from cloudgpu.core.model.launch import Setup
from cloudgpu.core.model.resources import Kind
from cloudgpu.core.policies.policy import ReaperAction
from cloudgpu.core.values.times import from_iso
from cloudgpu.errors import EndRefused, InstanceNotFound, InvalidRequest, ProviderUnavailable

PROTECTED = EndRefused("it is protected", lifts="unlock")


def seqs(lab, row, kind):
    return [line.seq for line in lab.session.ledger.events(row.id) if line.kind == kind]


def test_a_stop_is_proved_of_all_nodes_and_node_0_comes_last(lab, gang):
    done = stop_all(lab.session, gang, why="a test")
    assert done.errors == ()
    assert [row.state for row in done.machines] == ["stopped"] * 4
    assert lab.machines() == []
    proofs = [seqs(lab, row, "instance_observed")[-1] for row in gang[1:]]
    assert max(seqs(lab, row, "stop_requested")[-1] for row in gang) < min(proofs)
    assert seqs(lab, gang[0], "instance_observed")[-1] > max(proofs)


def test_one_refusal_is_said_and_the_rest_is_stopped_with_the_gravest_code(lab, gang):
    lab.cloud.fail_next("stop", PROTECTED)
    done = stop_all(lab.session, gang, why="a test")
    assert sorted(lab.states().values()) == ["running", "stopped", "stopped", "stopped"]
    assert [fault.exit_code for fault in done.errors] == [9]
    (left,) = [row.name for row in done.machines if row.billed]
    assert left in done.errors[0].message
    assert done.worst is done.errors[0]


def test_a_node_that_has_ended_by_itself_counts_as_stopped(lab, gang):
    lab.cloud.terminate(gang[2].provider_id)
    done = stop_all(lab.session, gang, why="a test")
    assert done.errors == ()
    assert [row.state for row in done.machines] == ["stopped", "stopped", "terminated", "stopped"]


def test_a_cluster_that_cannot_be_stopped_is_refused_before_any_node_is(lab):
    rows = [row._replace(stoppable=False, market="spot") for row in lab.gang(2)]
    with pytest.raises(InvalidRequest, match="Cluster train cannot be stopped: node train-0") as refused:
        stop_all(lab.session, rows, why="a test")
    assert "cloudgpu down train " in refused.value.next
    assert len(lab.machines()) == 2


def test_down_ends_all_nodes_and_node_0_last(lab, gang):
    outcomes = end_all(lab.session, gang, why="a test")
    assert [one.machine.terminated_at is not None for one in outcomes] == [True] * 4
    assert lab.states() == {}
    assert not lab.session.home.known_hosts.exists(), "no pinned key outlives the machines"
    latest = lab.session.ledger.machine(gang[0].id)
    others = [lab.session.ledger.machine(row.id) for row in gang[1:]]
    assert from_iso(latest.terminated_at) > max(from_iso(row.terminated_at) for row in others)


def test_down_by_name_has_each_node_in_its_answer_and_says_which_one_is_left(lab, gang):
    lab.cloud.fail_next("terminate", PROTECTED)
    document, gravest = end_machines(lab.session, machines_to_end(lab.session, ["train"]))
    assert len(document["terminated"]) == 3
    assert gravest.exit_code == 9
    assert len(document["failed"]) == 1
    again, fault = end_machines(lab.session, machines_to_end(lab.session, ["train"]))
    assert fault is None
    assert len(again["terminated"]) == 1
    assert lab.machines() == []


def test_down_all_ends_clusters_and_machines_of_their_own(lab, gang):
    lab.up(name="fox")
    document, gravest = end_machines(lab.session, machines_to_end(lab.session, [], all_=True))
    assert gravest is None
    assert sorted(one["name"] for one in document["terminated"]) == ["fox", *(row.name for row in gang)]
    assert lab.machines() == []


@pytest.mark.parametrize("verb", ["stop", "start", "down", "extend", "hold"])
def test_a_part_of_a_cluster_is_refused_with_the_command_for_all_of_it(lab, gang, verb):
    for name in (gang[3].name, gang[3].id):
        with pytest.raises(InvalidRequest, match="train-3 is one of the 4 nodes of train") as refused:
            lab.session.find_all_nodes(name, verb)
        assert refused.value.next == f"For all of it: cloudgpu {verb} train"
        assert refused.value.exit_code == 2


def test_a_clusters_name_means_node_0_where_one_machine_is_meant(lab, gang):
    assert lab.session.find("train").name == "train-0"
    assert lab.session.find("train-1").name == "train-1"
    assert lab.session.find(None).name == "train-0"
    assert lab.session.find(gang[0].cluster.id).name == "train-0"
    assert len(lab.session.find_machine_or_nodes("train")) == 4
    with pytest.raises(InvalidRequest, match="train is a cluster, and a rehearsal is about one machine"):
        lab.session.find_one("train", "a rehearsal")


def test_a_lost_node_0_is_not_replaced_by_the_next(lab, gang):
    lab.cloud.terminate(gang[0].provider_id)
    with pytest.raises(InstanceNotFound):
        stop(lab.session, gang[0], why="a look")
    with pytest.raises(InstanceNotFound, match="train-0 is gone") as unknown:
        lab.session.find("train")
    assert "train-1, train-2, train-3" in unknown.value.next
    assert [row.name for row in lab.session.find_all_nodes("train", "down")] == ["train-1", "train-2", "train-3"]


def test_a_cloud_that_says_nothing_of_one_node_keeps_no_other_one_on(lab, gang):
    lab.cloud.fail_next("stop", ProviderUnavailable("no answer"), times=1)
    done = stop_all(lab.session, gang, why="a test")
    assert done.errors == ()
    assert lab.machines() == []


@pytest.fixture
def spot_gang(lab):
    """The rows of a cluster of two one-time spot machines, whose lease ends unless somebody is known to use them."""
    own = lab.session.home.policies / "own.yaml"
    own.parent.mkdir()
    own.write_text("lease: 1h\nrenew_until: 4h\nunknown: end\n")
    return lab.gang(2, spot=True, policy="own")


def test_what_a_run_keeps_of_a_spot_cluster_is_used_by_up_and_deleted_by_down(lab, spot_gang):
    lab.later(minutes=61)
    assert [one.do for one in reap(lab.session, ReapOptions()).ended] == [ReaperAction.PARK] * 2
    sync_all(lab.session)
    nodes = lab.session.find_all_nodes("train", "start")
    (image,) = [entry.id for entry in nodes[0].retained if entry.kind == Kind.IMAGE]
    with pytest.raises(InvalidRequest, match="Cluster train cannot be started: node train-0") as refused:
        start_all(lab.session, nodes, new_lease(lab.session, nodes[0], None), wait=False)
    assert f"cloudgpu up --image {image}. To delete its disks: cloudgpu down train " in refused.value.next
    lab.up(name="back", nodes=2, engine="none", setup=Setup(image=image))
    assert len(lab.machines()) == 2
    end_all(lab.session, nodes, why="a test")
    assert {row.name for row in lab.session.ledger.machines() if row.retained} == set()


def test_a_start_of_a_spot_cluster_that_runs_is_no_stop_and_not_refused(lab, spot_gang):
    assert start_all(lab.session, spot_gang, new_lease(lab.session, spot_gang[0], None), wait=False).errors == ()


def test_the_plan_of_a_spot_cluster_says_that_start_does_not_bring_it_back(lab):
    told = "start does not bring the cluster back"
    remarks = [str(lab.prepare(nodes=nodes, spot=True).plan.remarks) for nodes in (2, 1)]
    assert [told in one for one in remarks] == [True, False]
