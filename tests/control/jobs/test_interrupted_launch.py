"""A job whose launch was cut off, before or after the cloud had made its machine: one machine for it, or none."""

from __future__ import annotations

import shutil
from datetime import timedelta

import pytest

from cloudgpu.control.jobs.cancel import cancel
from cloudgpu.control.jobs.inputs.request import parse_run
from cloudgpu.control.jobs.plan import begin, plan_run
from cloudgpu.control.jobs.reconcile import JobReconciler
from cloudgpu.control.jobs.store import the_job
from cloudgpu.core.billing.charges import spent_until_now as bill_spent
from cloudgpu.core.events.job_lines import job_machine
from cloudgpu.core.values.money import Money
from tests.control.conftest import Lab


@pytest.fixture
def lab(tmp_path, monkeypatch):
    return Lab(tmp_path, monkeypatch)


@pytest.fixture(params=["before", "after"])
def cut_off(lab, tmp_path, monkeypatch, request):
    """A job whose first watcher died in the call that launches its machine."""
    (tmp_path / "work").mkdir()
    asked = parse_run(workdir=tmp_path / "work", argv=["true"], environ={}, gpu="v100", policy="default", name="fox")
    job = begin(lab.session, plan_run(lab.session, asked, {}))
    launch = lab.cloud.launch

    def dies(*args, **more):
        if request.param == "after":
            launch(*args, **more)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(lab.cloud, "launch", dies)
        with JobReconciler(lab.session, job.id, {}) as carrier, pytest.raises(KeyboardInterrupt):
            carrier.reconcile()
    assert the_job(lab.session, job.id).attempts[0].machine is None
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
    job = begin(lab.session, plan_run(lab.session, parse_run(workdir=tmp_path / "work", **words), {}))
    with JobReconciler(lab.session, job.id, {}) as carrier:
        carrier.reconcile()
        lab.later(minutes=6)
        spent = carrier._spent(the_job(lab.session, job.id))
    (row,) = lab.session.ledger.machines()
    assert bill_spent(row, lab.clock()) > Money.usd(10)
    assert Money(0) < spent < Money.usd(1)


def test_a_computer_that_has_not_the_files_of_a_job_launches_nothing_for_it(lab, tmp_path):
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "train.py").write_text("pass")
    asked = parse_run(workdir=tmp_path / "work", argv=["true"], environ={}, gpu="v100", policy="default", name="fox")
    job = begin(lab.session, plan_run(lab.session, asked, {}))
    shutil.rmtree(lab.home / "jobs" / "snapshots")
    with JobReconciler(lab.session, job.id, {}) as carrier:
        found = carrier.reconcile()
    assert found.why == "The files of fox are not on this computer, so it cannot be started from here."
    assert (lab.session.ledger.machines(), lab.machines()) == ([], [])
