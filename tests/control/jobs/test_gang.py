"""Gangs of jobs on the fake cloud: never two of one attempt, none left, and what is refused before any is launched."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest

from cloudgpu.control.jobs.cancel import cancel
from cloudgpu.control.jobs.inputs.request import parse_run
from cloudgpu.control.jobs.listing import job_document
from cloudgpu.control.jobs.observer import NODE_QUERY_EVERY
from cloudgpu.control.jobs.plan import plan_run, record_request
from cloudgpu.control.jobs.reconcile import JobReconciler
from cloudgpu.control.jobs.store import job_by_id
from cloudgpu.control.reaper.reaper import ReapOptions, reap
from cloudgpu.control.session import guarding
from cloudgpu.core.billing.charges import spent_until_now
from cloudgpu.core.events.job_events import job_machine, job_placed
from cloudgpu.core.jobs.remote_state import Phase, RemoteState
from cloudgpu.core.jobs.shares import launched_for
from cloudgpu.core.values.money import Money, usd
from cloudgpu.errors import InvalidRequest, NoCapacity, QuotaExceeded
from tests.control.conftest import Lab

EACH = 'lacks = ["LaunchesTogether"]'
ALONE = 'agent = "tells"\nlacks = ["LaunchesTogether", "HasTimer", "Pausable", "Imageable", "Taggable"]\n'


@pytest.fixture
def lab(tmp_path, monkeypatch):
    (tmp_path / "work").mkdir()
    return Lab(tmp_path, monkeypatch, EACH)


def planned(lab, **more):
    words = {"gpu": "v100", "policy": "default", "name": "fox", "nodes": 3, **more}
    work = lab.home.parent / "work"
    return plan_run(lab.session, parse_run(workdir=work, argv=["true"], environ={}, **words), {})


def carried(lab, job):
    with JobReconciler(lab.session, job.id, {}) as carrier:
        return carrier.reconcile()


def cut_off(lab, monkeypatch, node):
    """A job whose watcher dies in the call that launches this node."""
    job, launch, calls = record_request(lab.session, planned(lab, restarts=0)), lab.cloud.launch, []

    def dies(*args, **more):
        calls.append(1)
        if len(calls) > node:
            raise KeyboardInterrupt
        return launch(*args, **more)

    with monkeypatch.context() as patched:
        patched.setattr(lab.cloud, "launch", dies)
        with pytest.raises(KeyboardInterrupt):
            carried(lab, job)
    return job


def test_budgets_count_all_nodes_of_a_job_with_a_deadline(lab):
    words = {"deadline": "10h", "work": "1h", "spot_policy": "on-demand"}
    three, one = (planned(lab, nodes=number, **words).deadline for number in (3, 1))
    assert (three.budget_nanos_per_hour, three.on_demand.nanos) == (
        3 * one.budget_nanos_per_hour,
        3 * one.on_demand.nanos,
    )


@pytest.mark.parametrize("node", [0, 2])
def test_the_next_watcher_completes_the_gang_of_one_that_died_in_its_launch(lab, monkeypatch, node):
    job = cut_off(lab, monkeypatch, node)
    for _ in range(3):
        job = carried(lab, job).job
    rows = lab.session.ledger.machines()  # no Slurm runs in this cloud, so what came up is ended again
    assert [(row.name, row.launch_status) for row in rows] == [(f"fox-{number}", "made") for number in range(3)]
    (attempt,) = job.attempts
    assert attempt.members == tuple(row.id for row in rows)
    assert (lab.machines(), str(job.state)) == ([], "lost")


@pytest.mark.parametrize("node", [0, 2])
def test_cancelling_it_leaves_no_part_of_a_gang(lab, monkeypatch, node):
    job = cut_off(lab, monkeypatch, node)
    cancel(lab.session, "fox", {})
    carried(lab, job)
    assert (lab.machines(), lab.rows()) == ([], [])
    assert job_by_id(lab.session, job.id).closed_at is not None


def test_a_watcher_asks_for_the_other_nodes_first_and_then_now_and_then(lab):
    job = record_request(lab.session, planned(lab))
    nodes = [lab.up(name=f"node-{number}").machine for number in range(3)]
    line = job_machine(job.id, 1, nodes[0].id, lab.clock(), cluster="fox", members=[one.id for one in nodes])
    lab.session.ledger.append([job_placed(job.id, 1, lab.clock(), key="fox", machine=None), line])
    job = job_by_id(lab.session, job.id)
    with JobReconciler(lab.session, job.id, {}) as carrier:

        def ended():
            return [one.terminated_at is not None for one in carrier._other_nodes(job, nodes[0])[0]]

        carrier.remote = RemoteState(Phase.RUNNING, lab.clock().timestamp())
        lab.cloud.terminate(nodes[1].provider_id)
        assert ended() == [True, False]
        lab.cloud.terminate(nodes[2].provider_id)
        assert ended() == [True, False]
        lab.clock.advance(NODE_QUERY_EVERY.total_seconds())
        assert ended() == [True, True]


def test_a_gang_that_is_refused_in_part_was_never_there(lab):
    job = record_request(lab.session, planned(lab))
    lab.cloud.fail_next("launch", lambda: None)
    lab.cloud.fail_next("launch", lambda: QuotaExceeded("no quota", field="quota"))
    with pytest.raises(QuotaExceeded):
        carried(lab, job)
    assert (lab.machines(), lab.rows()) == ([], [])
    job = job_by_id(lab.session, job.id)
    assert job.state == "not_launched"
    (ended,) = (row for row in lab.session.ledger.machines() if row.launch_status == "made")
    assert (job.attempts[0].machine, job.attempts[0].refused) == (None, (ended.id,))
    assert launched_for([job]) == {ended.id: job.id}
    value = job_document(lab.session, job)
    assert value["attempts"][0]["members"] == ["fox-0"]
    assert Decimal(value["spent_usd"]) == Decimal(usd(spent_until_now(ended, lab.session.clock())))


@pytest.mark.parametrize("node", [1, 2])
def test_a_gang_whose_guard_fell_silent_in_its_launch_ends_whole_before_the_job_was_not_launched(
    tmp_path, monkeypatch, node
):
    (tmp_path / "work").mkdir()
    (tmp_path / "power").mkdir()
    monkeypatch.setattr(guarding, "POWER_SUPPLY", tmp_path / "power")
    lab = Lab(tmp_path, monkeypatch, ALONE)
    reap(lab.opened(), ReapOptions(cron=True, interval=timedelta(minutes=10)))
    job = cut_off(lab, monkeypatch, node)
    assert len(lab.machines()) == node
    lab.later(hours=2)
    with pytest.raises(InvalidRequest) as refused:
        carried(lab, job)
    assert refused.value.field == "--no-guard"
    job, rows = job_by_id(lab.session, job.id), lab.session.ledger.machines()
    assert (lab.machines(), lab.rows()) == ([], [])
    assert (job.state, job.why) == ("not_launched", refused.value.message)
    assert [row.launch_status for row in rows] == ["made"] * node + ["void"] * (3 - node)
    assert job.attempts[0].refused == tuple(row.id for row in rows[:node])
    cost = sum(spent_until_now(row, lab.session.clock()).dollars for row in rows[:node])
    assert Decimal(job_document(lab.session, job)["spent_usd"]) == cost > 0


def test_the_plan_has_the_price_of_all_nodes_and_what_a_loss_means(lab):
    one, three = planned(lab, nodes=1, spot=True), planned(lab, spot=True)
    assert (one.spec.get("gang"), three.spec["gang"], three.spec["slurm"]["nodes"]) == (None, 3, 3)
    assert three.planned_max == Money(3 * one.planned_max.nanos)
    assert any("Any loss restarts all 3" in remark for remark in three.prepared.plan.remarks)
    with pytest.raises(InvalidRequest, match="less than the first hour of 3 machines"):
        planned(lab, max_cost=str(three.prepared.plan.highest_price.dollars))


@pytest.mark.parametrize(
    "words",
    [
        {"array": "0-3"},
        {"after": "7"},
        {"partition": "gpu"},
        {"slurm_account": "thesis"},
        {"keep": "1h"},
        {"data": ["/mnt/data:data"]},
        {"results_to": "s3://lab/runs"},
        {"nodes": 65},
        {"volume": "data"},
        {"nodes": 1, "once": True},
    ],
    ids=str,
)
def test_what_a_gang_cannot_do_is_refused_before_anything_is_launched(lab, words):
    with pytest.raises(InvalidRequest) as refused:
        planned(lab, **words)
    assert refused.value.exit_code == 2
    assert refused.value.next
    assert lab.session.ledger.machines() == []


def test_no_capacity_later_waits_and_leaves_nothing(lab):
    job = record_request(lab.session, planned(lab))
    for _ in range(40):
        lab.cloud.fail_next("launch", lambda: NoCapacity("nothing left", field="zone"))
    with pytest.raises(NoCapacity):
        carried(lab, job)
    assert lab.machines() == []
