"""Where only runs of the reaper end a machine, a job that lost its machine gets another one only under such a run."""

from __future__ import annotations

from datetime import timedelta

import pytest

from cloudgpu.cli.jobs.text import job_text
from cloudgpu.control.jobs.inputs.request import parse_run
from cloudgpu.control.jobs.listing import job_document
from cloudgpu.control.jobs.plan import plan_run, record_request
from cloudgpu.control.jobs.reconcile import JobReconciler
from cloudgpu.control.jobs.store import job_by_id
from cloudgpu.control.reaper.reaper import ReapOptions, reap
from cloudgpu.control.session import guarding
from cloudgpu.core.events import job_events as lines
from cloudgpu.core.jobs.job import State

POOR = 'agent = "tells"\nlacks = ["HasTimer", "Pausable", "Imageable", "Taggable"]\n'  # as Lambda


@pytest.fixture
def lab(make_lab, tmp_path, monkeypatch):
    (tmp_path / "power").mkdir()
    monkeypatch.setattr(guarding, "POWER_SUPPLY", tmp_path / "power")
    (tmp_path / "work").mkdir()
    return make_lab(POOR)


def heard(lab):
    """Make a scheduled run, of a process of its own."""
    reap(lab.opened(), ReapOptions(cron=True, interval=timedelta(minutes=10)))


def carry(lab, job):
    with JobReconciler(lab.opened(), job.id, {}) as carrier:
        return carrier.reconcile()


def lost_its_machine(lab, tmp_path, **options):
    """Return a job whose machine its place took away while no run is heard any more."""
    heard(lab)
    asked = parse_run(
        workdir=tmp_path / "work", argv=["true"], environ={}, gpu="v100", policy="default", name="fox", **options
    )
    job = record_request(lab.session, plan_run(lab.session, asked, {}))
    machine = lab.up(name="fox", policy="default").machine
    began = [
        lines.job_placed(job.id, 1, lab.clock(), key=machine.key, machine=None),
        lines.job_machine(job.id, 1, machine.id, lab.clock()),
        lines.job_began(job.id, 1, None, lab.clock()),
    ]
    lab.session.ledger.append(began)
    lab.later(hours=3)  # who made those runs has left
    lab.cloud.terminate(machine.provider_id)
    return job


def launched(lab, found):
    """Return how many machines were launched so far, of which the job has the last one."""
    rows = lab.session.ledger.machines()
    assert found.job.attempt.machine in (None, rows[-1].id)
    return len(rows)


@pytest.mark.soak
def test_a_job_that_restarts_by_itself_gets_no_other_machine_while_no_run_would_end_it_and_says_so(lab, tmp_path):
    job = lost_its_machine(lab, tmp_path)
    for _ in range(3):
        found = carry(lab, job)
        assert (found.error.field, found.job.state, found.job.attempt.number) == ("--no-guard", State.PENDING, 2)
        assert lab.machines() == []
        lab.later(minutes=20)
    said = " ".join(job_text(job_document(lab.session, found.job), lab.clock()).split())
    assert "Only scheduled runs of the reaper can, and the last one, on" in said
    assert "should come every 10m" in said
    raised = [one.body for one in lab.session.ledger.events("alerts") if one.kind == "alert_raised"]
    assert [one["key"].partition(":")[0] for one in raised].count("job-waits") == 1
    heard(lab)
    found = carry(lab, job)
    assert (found.job.waits, found.job.attempt.number) == (None, 2)
    assert launched(lab, found) == 2


def test_after_a_day_without_a_run_the_job_is_lost_and_nothing_was_launched(lab, tmp_path):
    job = lost_its_machine(lab, tmp_path)
    assert (carry(lab, job).job.state, lab.machines()) == (State.PENDING, [])
    lab.later(hours=24, minutes=1)
    found = carry(lab, job)
    assert found.job.state is State.LOST
    assert "nothing on a machine can end its bill" in found.job.why
    heard(lab)
    assert launched(lab, carry(lab, job)) == 1
    assert job_by_id(lab.session, job.id).is_open is False


@pytest.mark.soak
def test_a_job_that_was_begun_with_no_guard_restarts_without_a_run(lab, tmp_path):
    job = lost_its_machine(lab, tmp_path, no_guard=True)
    found = carry(lab, job)
    assert launched(lab, found) == 2
    assert lab.session.ledger.machine(found.job.attempt.machine).guards.waived
