"""Passes over clusters: judged as one by nodes and queue, ended whole or not at all, their people told once."""

from __future__ import annotations

import os

import pytest

from cloudgpu.control.api.show import show_document
from cloudgpu.control.lifecycle.lease import set_hold
from cloudgpu.core.clusters.layout import engine_directory
from cloudgpu.core.events.log import Draft
from cloudgpu.core.policies.policy import ReaperAction, Rule
from cloudgpu.core.reaper.result import lock_of
from cloudgpu.core.values.times import from_iso
from cloudgpu.errors import ProviderUnavailable
from cloudgpu.views.reaper import run_document
from tests.control.agents import Agents, patient
from tests.control.conftest import Fleet

QUEUE = {
    "runs": "12|RUNNING|ann|all|2|None|train.sh\n",
    "waits": "12|PENDING|ann|all|2|Priority|train.sh\n",
    "held": "12|PENDING|ann|all|2|JobHeldUser|train.sh\n",
    "impossible": "13|PENDING|ann|all|9|PartitionNodeLimit|train.sh\n",
}


@pytest.fixture
def engine(tmp_path, monkeypatch):
    """Stands where the engine's `squeue` would: on the PATH of every machine. It prints what a test writes."""
    path = tmp_path / "bin"
    path.mkdir()
    script = path / "squeue"
    script.write_text(
        f'#!/bin/sh\n[ -f "$SLURM_CONF" ] && cat {tmp_path}/queue || {{ echo "slurm_load_jobs error: no"; exit 1; }}\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{path}:{os.environ['PATH']}")
    return tmp_path / "queue"


@pytest.fixture
def agents(engine, tmp_path, monkeypatch):
    """The agents of all machines, behind one SSH server that finds the engine's command."""
    patient(monkeypatch)
    made = Agents(tmp_path / "agents", tmp_path / "home" / "keys")
    yield made
    made.end()


class Engine:
    """What node 0 of a cluster has of its engine, as far as a look asks it."""

    def __init__(self, agents, queue):
        self.queue, self.home = queue, agents.home
        self.says("")

    def set_up(self, row):
        directory = self.home / engine_directory(row.cluster.id)
        directory.mkdir(parents=True)
        (directory / "slurm.conf").write_text("ClusterName=cg\n")

    def says(self, text):
        self.queue.write_text(text)

    def dies(self):
        self.queue.unlink()


@pytest.fixture
def slurm(engine, agents):
    return Engine(agents, engine)


@pytest.fixture
def train(slurm, fleet):
    """Four machines in a cluster with an engine that has no job."""
    return gang(fleet, slurm)


def gang(fleet, slurm, *, nodes=4, **more):
    rows = fleet.up(**{"name": "train", "engine": "slurm"} | more, nodes=nodes).nodes
    slurm.set_up(rows[0])
    return [fleet.session.ledger.machine(row.id) for row in rows]


def states(fleet):
    return {one.name: one.state for one in fleet.session.ledger.machines() if one.cluster is not None}


def stop_order(fleet):
    """The names of the machines in the order in which their stops were asked."""
    lines = {one.name: fleet.session.ledger.events(one.id) for one in fleet.session.ledger.machines()}
    asked = [(line.seq, name) for name, some in lines.items() for line in some if line.kind == "stop_requested"]
    return [name for _, name in sorted(asked)]


def why(fleet, name="train-2"):
    return show_document(fleet.session, name, why=True, refresh=True)["why"]


def explained(found):
    return {one["name"]: (one["activity"], one["why"]) for one in run_document(found, explain=True)["explained"]}


def one_decision(found):
    (decision,) = {(one.do, one.rule, one.why, one.at, one.activity) for one in found.decisions}
    return decision


@pytest.mark.soak
def test_an_idle_cluster_is_warned_once_and_ended_whole_node_0_last(fleet, train):
    found = fleet.idle(hours=2)
    assert [(one.name, one.rule) for one in found.warned] == [("train", Rule.IDLE)]
    found = fleet.idle(minutes=10)
    assert {one.name: (one.do, one.rule, one.now) for one in found.ended} == {
        f"train-{number}": (ReaperAction.STOP, Rule.IDLE, "stopped") for number in range(4)
    }
    assert stop_order(fleet)[-1] == "train-0"
    assert fleet.machines() == []


@pytest.mark.soak
def test_a_job_that_waits_with_a_chance_keeps_a_cluster_that_its_nodes_say_is_idle(fleet, train, slurm):
    slurm.says(QUEUE["waits"])
    found = fleet.idle(hours=2)
    assert (found.warned, found.ended) == ((), ())
    expected = "in its queue job 12 waits"
    assert explained(found) == {f"train-{number}": ("ACTIVE", expected) for number in range(4)}
    assert why(fleet)["why"] == expected


@pytest.mark.soak
def test_a_job_that_is_held_or_impossible_keeps_nothing(fleet, train, slurm):
    slurm.says(QUEUE["held"] + QUEUE["impossible"])
    found = fleet.idle(hours=2)
    assert [one.name for one in found.warned] == ["train"]
    activity, because = explained(found)["train-3"]
    assert activity == "IDLE"
    assert "no job runs or waits (job 12 is held: JobHeldUser, job 13 can never run: PartitionNodeLimit)" in because
    assert len(fleet.idle(minutes=10).ended) == 4


def test_one_node_in_use_keeps_all(fleet, train):
    fleet.later(hours=3)
    fleet.cloud.report_activity(train[2].provider_id, fleet.clock())
    found = fleet.idle(minutes=10)
    assert one_decision(found)[-1] == "ACTIVE"
    assert explained(found)["train-0"] == ("ACTIVE", "train-2 is in use: it wrote 10m ago that it is in use")


@pytest.mark.soak
def test_one_silent_node_makes_all_unknown(fleet, train, agents):
    agents.runs("mkdir ~/.cloudgpu/silent 2>/dev/null && exit 1; cat ~/.cloudgpu/answer")
    found = fleet.idle(hours=2)
    assert (found.warned, found.ended, one_decision(found)[-1]) == ((), (), "UNKNOWN")
    assert "is not known to be idle: its agent does not answer" in explained(found)["train-0"][1]


@pytest.mark.soak
def test_a_node_that_falls_silent_at_the_last_look_spares_all(fleet, train, agents):
    fleet.idle(hours=2)
    fleet.later(minutes=10)
    agents.says(fleet.clock())
    agents.runs(
        "echo . >> ~/.cloudgpu/looks; "
        'if [ "$(wc -l < ~/.cloudgpu/looks)" -gt 7 ]; then exit 1; fi; cat ~/.cloudgpu/answer'
    )
    found = fleet.pass_()
    assert found.ended == ()
    assert {one.name for one in found.skipped} == set(states(fleet))
    assert len(fleet.machines()) == 4


@pytest.mark.soak
def test_a_dead_engine_makes_a_quiet_cluster_unknown(fleet, train, slurm):
    slurm.dies()
    found = fleet.idle(hours=2)
    assert (found.warned, found.ended, one_decision(found)[-1]) == ((), (), "UNKNOWN")
    assert explained(found)["train-1"][1].startswith("its queue is not known: the engine did not answer (")
    assert why(fleet)["activity"] == "UNKNOWN"


@pytest.mark.soak
def test_without_an_engine_the_nodes_alone_say_what_a_cluster_does(fleet, slurm):
    gang(fleet, slurm, engine="none")
    assert [one.name for one in fleet.idle(hours=2).warned] == ["train"]
    assert len(fleet.idle(minutes=10).ended) == 4


def test_a_dead_node_0_is_lost_and_the_rest_is_unknown_not_idle(fleet, train):
    fleet.cloud.die(train[0].provider_id)
    found = fleet.idle(hours=2)
    assert {one.activity for one in found.decisions} == {"UNKNOWN"}
    assert "its queue is not known: train-0, which has it, does not run" in explained(found)["train-1"][1]
    assert len(fleet.machines()) == 3
    alerts = [line.body for line in fleet.session.ledger.events("alerts") if line.kind == "alert_raised"]
    (lost,) = [one for one in alerts if one["key"].startswith("lost:")]
    price = fleet.machine("train-1").price.nanos_per_hour * 3 / 1e9
    assert lost["title"] == f"train has lost train-0; the rest costs ${price:.4f}/h"
    assert not [one for one in alerts if one["key"].startswith("ended:")]


def test_a_lost_node_stops_the_rest_in_the_pass_that_sees_it_where_the_launch_said_so(fleet, slurm, agents):
    rows = gang(fleet, slurm, on_node_loss="stop")
    fleet.cloud.die(rows[2].provider_id)
    fleet.later(minutes=20)
    agents.says(fleet.clock(), gpu=90)
    found = fleet.pass_()
    assert {one.name: one.rule for one in found.ended} == {f"train-{number}": Rule.NODE_LOSS for number in (0, 1, 3)}
    assert stop_order(fleet)[-1] == "train-0"
    assert fleet.machines() == []
    assert fleet.pass_().ended == ()


def test_a_hold_keeps_a_cluster_from_its_node_loss(fleet, slurm):
    rows = gang(fleet, slurm, on_node_loss="stop")
    set_hold(fleet.session, rows[1], fleet.clock.now.replace(hour=20))
    fleet.cloud.die(rows[2].provider_id)
    assert fleet.idle(minutes=20).ended == ()


@pytest.mark.soak
def test_a_lease_is_renewed_for_all_nodes_while_a_job_runs(fleet, slurm):
    fleet.policy("short", "lease: 2h\nrenew_until: 5h\n")
    gang(fleet, slurm, policy="short")
    slurm.says(QUEUE["runs"])
    found = fleet.idle(hours=1, minutes=55)
    assert {one.name for one in found.renewed} == set(states(fleet))
    assert len({fleet.machine(name).expires for name in states(fleet)}) == 1


@pytest.mark.soak
def test_renew_until_ends_all_nodes_in_use(fleet, train, slurm):
    slurm.says(QUEUE["runs"])
    for row in train:
        fleet.cloud.drop_timer(row.provider_id)
    last = max(from_iso(row.renew_until) for row in train)
    fleet.clock.advance((last - fleet.clock()).total_seconds())
    assert {(one.name, one.rule) for one in fleet.pass_().ended} == {
        (f"train-{number}", Rule.RENEW_UNTIL) for number in range(4)
    }


def test_a_node_is_explained_by_its_own_policy_as_a_run_evaluates_it(fleet, slurm):
    rows = gang(fleet, slurm, nodes=2)
    policy = {"place": "", "text": "x: 1", "tz": "UTC"}
    body = {"terms": {"home": "elsewhere", "policy": policy, "limits": [], "price_jump": "1.5"}}
    fleet.session.ledger.append([Draft("terms_set", rows[1].id, body, fleet.clock(), "of another version")])
    fleet.idle(minutes=9)
    fleet.idle(minutes=60)
    decision = one_decision(fleet.idle(minutes=1))
    said = why(fleet, "train-0")["decision"]
    assert (said["do"], said["why"]) == (decision[0].value, decision[2])
    assert "only its lease counts" in said["why"]


@pytest.mark.soak
def test_a_part_of_a_launch_is_ended_once_its_grace_is_over_and_nobody_works_on_it(tmp_path, monkeypatch, agents):
    one_by_one = f'{agents.options}timer = "moves"\nlacks = ["LaunchesTogether"]\n'
    fleet = Fleet(tmp_path, monkeypatch, one_by_one, agents)
    fault = ProviderUnavailable("silence", field="provider")
    for turn in range(4):
        fleet.cloud.fail_next("launch", lambda turn=turn: fault if turn == 3 else None)
    with pytest.raises(ProviderUnavailable):
        fleet.up(name="train", nodes=4, engine="none")
    row = fleet.machine("train-0")
    assert len(fleet.machines()) == 3
    assert fleet.idle(minutes=9).ended == ()
    with fleet.session.lock(lock_of(row), wait=False):
        found = fleet.idle(minutes=9)
        assert (found.ended, {one.do for one in found.decisions}) == ((), {ReaperAction.KEEP})
    for _ in range(3):
        found = fleet.idle(minutes=10)
        if found.ended:
            break
    assert {one.name: (one.do, one.rule) for one in found.ended} == {
        f"train-{number}": (ReaperAction.TERMINATE, Rule.PART) for number in range(3)
    }
    assert "train-3 was" in found.ended[0].why
    assert "a cluster is all of its machines or none" in found.ended[0].why
    assert fleet.machines() == []
