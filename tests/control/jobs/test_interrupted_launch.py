"""A job whose launch was cut off, before or after the cloud had made its machine: one machine for it, or none."""

from __future__ import annotations

import shutil
from datetime import timedelta
from functools import partial

import pytest

from cloudgpu.control.cost.cost import job_spent
from cloudgpu.control.inventory.sync import sync_all
from cloudgpu.control.jobs.cancel import cancel
from cloudgpu.control.jobs.inputs.request import parse_run
from cloudgpu.control.jobs.plan import plan_run, record_request
from cloudgpu.control.jobs.reconcile import JobReconciler
from cloudgpu.control.jobs.store import job_by_id
from cloudgpu.control.launch.launch import launch
from cloudgpu.core.billing.charges import spent_until_now as bill_spent
from cloudgpu.core.events.job_events import job_began, job_machine, job_placed
from cloudgpu.core.jobs.remote_state import Phase, RemoteState
from cloudgpu.core.jobs.steps import JobAction, Step
from cloudgpu.core.values.money import Money
from cloudgpu.errors import InvalidRequest
from cloudgpu.testing.helpers import make_attempt
from tests.control.conftest import Lab


@pytest.fixture
def lab(tmp_path, monkeypatch):
    return Lab(tmp_path, monkeypatch)


@pytest.fixture(params=["before", "after"])
def cut_off(lab, tmp_path, monkeypatch, request):
    """A job whose first watcher died in the call that launches its machine."""
    (tmp_path / "work").mkdir()
    asked = parse_run(workdir=tmp_path / "work", argv=["true"], environ={}, gpu="v100", policy="default", name="fox")
    job = record_request(lab.session, plan_run(lab.session, asked, {}))
    launch = lab.cloud.launch

    def dies(*args, **more):
        if request.param == "after":
            launch(*args, **more)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(lab.cloud, "launch", dies)
        with JobReconciler(lab.session, job.id, {}) as carrier, pytest.raises(KeyboardInterrupt):
            carrier.reconcile()
    assert job_by_id(lab.session, job.id).attempts[0].machine is None
    return job


def settled(lab):
    """The one machine of the job in the ledger; its launch is not in doubt any more, and the cloud has no other."""
    (row,) = lab.session.ledger.machines()
    assert row.launch_status != "open"
    there = [one.id for one in lab.machines()]
    assert there == ([row.provider_id] if row.terminated_at is None else [])
    return row


def test_cancelling_it_settles_its_launch_and_launches_nothing(lab, cut_off):
    found = cancel(lab.session, "fox", {})
    row = settled(lab)
    if row.launch_status == "made":  # its command had not begun, so nothing is waited for: its machine ends
        assert (found["job"]["machine"]["id"], found["job"]["why"]) == (row.id, "cancelled by ada")
        assert lab.machines() == []
    assert (found["job"]["state"], found["waits"]) == ("cancelled", None)


def test_a_machine_that_is_known_and_not_settled_is_settled_first(lab, cut_off):
    (row,) = lab.rows()
    lab.session.ledger.append([job_machine(cut_off.id, 1, row.id, lab.clock())])
    with JobReconciler(lab.session, cut_off.id, {}) as carrier:
        carrier.reconcile()
    assert settled(lab).launch_status == "made"


def test_the_next_watcher_sends_the_same_launch_again(lab, cut_off):
    with JobReconciler(lab.session, cut_off.id, {}) as carrier:
        carried = carrier.reconcile()
    row = settled(lab)
    assert (row.launch_status, row.key) == ("made", f"{cut_off.id}-1")
    assert len(carried.job.attempts) == 1


def test_what_a_machine_has_cost_before_a_job_came_counts_not_against_its_max_cost(lab, tmp_path):
    (tmp_path / "work").mkdir()
    lab.up(name="fox", policy="never", renew_until=timedelta(days=30))
    lab.later(hours=100)
    words = {"argv": ["true"], "environ": {}, "on": "fox", "max_cost": "10"}
    job = record_request(lab.session, plan_run(lab.session, parse_run(workdir=tmp_path / "work", **words), {}))
    with JobReconciler(lab.session, job.id, {}) as carrier:
        carrier.reconcile()
        lab.later(minutes=6)
        spent = job_spent(lab.session, job_by_id(lab.session, job.id))
    (row,) = lab.session.ledger.machines()
    assert bill_spent(row, lab.clock()) > Money.usd(10)
    assert Money(0) < spent < Money.usd(1)


def test_max_cost_is_refused_on_a_machine_whose_price_is_not_known(lab, tmp_path, monkeypatch):
    (tmp_path / "work").mkdir()
    lab.up(name="owl")  # the ledger begins with its first line
    item = lab.prepare().offers[0].configuration
    attempt = make_attempt(item, key="lost", name="fox", ledger=lab.session.ledger.id, now=lab.clock())
    lab.cloud.launch(attempt, deadline=lab.clock() + timedelta(minutes=1))
    monkeypatch.setattr(lab.cloud, "prices", lambda offers: [None for _ in offers])
    sync_all(lab.session)
    assert lab.session.ledger.machine(attempt.machine).price is None
    asked = parse_run(workdir=tmp_path / "work", argv=["true"], environ={}, on="fox", max_cost="10")
    with pytest.raises(InvalidRequest, match="that of fox is not known"):
        plan_run(lab.session, asked, {})


def test_a_computer_that_has_not_the_files_of_a_job_launches_nothing_for_it(lab, tmp_path):
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "train.py").write_text("pass")
    asked = parse_run(workdir=tmp_path / "work", argv=["true"], environ={}, gpu="v100", policy="default", name="fox")
    job = record_request(lab.session, plan_run(lab.session, asked, {}))
    shutil.rmtree(lab.home / "jobs" / "snapshots")
    with JobReconciler(lab.session, job.id, {}) as carrier:
        found = carrier.reconcile()
    assert found.why == "The files of fox are not on this computer, so it cannot be started from here."
    assert (lab.session.ledger.machines(), lab.machines()) == ([], [])


@pytest.mark.parametrize("cut_off", ["before"], indirect=True)
def test_a_computer_that_has_not_the_files_of_a_job_launches_none_for_one_that_was_never_made(lab, cut_off):
    for one in (lab.home / "jobs" / "snapshots", lab.session.home.attempts):
        shutil.rmtree(one)
    lab.later(hours=1)
    with JobReconciler(lab.session, cut_off.id, {}) as carrier:
        found = carrier.reconcile()
    assert settled(lab).launch_status == "void"
    assert "are not on this computer" in found.why
    assert found.job.is_open


def test_a_computer_that_has_not_the_files_of_a_job_leaves_the_last_copy_before_another_attempt_to_the_one_that_has(
    lab, tmp_path
):
    (tmp_path / "work").mkdir()
    asked = parse_run(workdir=tmp_path / "work", argv=["true"], environ={}, gpu="v100", policy="default", name="fox")
    job = record_request(lab.session, plan_run(lab.session, asked, {}))
    machine = lab.up(name="fox", key=f"{job.id}-1").machine
    lab.session.ledger.append(
        [
            job_placed(job.id, 1, lab.clock(), key=machine.key, machine=None),
            job_machine(job.id, 1, machine.id, lab.clock()),
            job_began(job.id, 1, None, lab.clock()),
        ]
    )
    shutil.rmtree(lab.home / "jobs" / "snapshots")
    with JobReconciler(lab.session, job.id, {}) as carrier:
        carrier.remote = RemoteState(Phase.LOST, lab.clock().timestamp())
        found = carrier._execute(job_by_id(lab.session, job.id), Step(JobAction.RETRY, "it failed"))
    assert found.why == "The files of fox are not on this computer, so it cannot be started from here."
    assert job_by_id(lab.session, job.id).attempt is not None


def test_launches_in_a_row_that_made_no_machine_are_waited_between_and_alerted_on(lab, tmp_path, monkeypatch):
    monkeypatch.setattr("cloudgpu.control.jobs.attempt.launch", partial(launch, wait=False))
    (tmp_path / "work").mkdir()
    asked = parse_run(workdir=tmp_path / "work", argv=["true"], environ={}, gpu="v100", policy="default", name="fox")
    job = record_request(lab.session, plan_run(lab.session, asked, {}))
    void = Step(JobAction.RETRY, "the launch of fox made no machine", interrupted=True, nothing_made=True)
    with JobReconciler(lab.session, job.id, {}) as carrier:
        told = []
        for number in (1, 2):
            key = f"{job.id}-{number}"
            lab.session.ledger.append([job_placed(job.id, number, lab.clock(), key=key, machine=None)])
            carrier._execute(job_by_id(lab.session, job.id), void)
            told.append([line.kind for line in lab.session.ledger.events("alerts")])
        assert told == [[], ["alert_raised"]]
        assert "2 launches in a row made no machine" in carrier.reconcile().why
        assert lab.machines() == []
        lab.later(minutes=1)
        carrier.reconcile()
    assert len(lab.machines()) == 1
    assert [line.kind for line in lab.session.ledger.events("alerts")] == ["alert_raised", "alert_cleared"]


def test_every_action_of_a_job_has_a_method():
    missing = [one for one in JobAction if one is not JobAction.WAIT and not hasattr(JobReconciler, f"_execute_{one}")]
    assert missing == []
