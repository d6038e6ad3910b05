"""A ledger that was put back from a backup: what this computer knows of a job's end is put back, too."""

from __future__ import annotations

import shutil

import pytest

from cloudgpu.control.jobs.inputs.request import parse_run
from cloudgpu.control.jobs.plan import plan_run, record_request
from cloudgpu.control.jobs.reconcile import JobReconciler
from cloudgpu.control.jobs.store import job_by_id
from cloudgpu.control.jobs.watch import living_jobs, reconcile_all
from cloudgpu.control.setup.ledger_admin import verify_document
from cloudgpu.core.events import job_events as lines
from cloudgpu.core.jobs.job import State
from cloudgpu.errors import InstanceNotFound, NoCapacity
from cloudgpu.ledger.sqlite.backup import restore, write_backup
from tests.control.conftest import Lab

ZONES = ("north-a", "north-b", "south-a", "south-b")


class Past:
    """A lab whose job is over; its ledger is put back to a moment before."""

    def __init__(self, tmp_path, monkeypatch, *, requested):
        self.lab, self.copy = Lab(tmp_path, monkeypatch), tmp_path / "copy.sqlite"
        (tmp_path / "work").mkdir()
        words = {"argv": ["true"], "environ": {}, "gpu": "v100", "policy": "default", "name": "fox"}
        planned = plan_run(self.lab.session, parse_run(workdir=tmp_path / "work", **words), {})
        if not requested:
            self.lab.session.ledger.append([lines.job_closed("job-0", "", self.lab.clock())])  # there is a ledger
            write_backup(self.lab.session.ledger, self.copy)
        self.job = record_request(self.lab.session, planned)
        if requested:
            write_backup(self.lab.session.ledger, self.copy)
        for zone in ZONES:
            self.lab.cloud.exhaust(zone)
        with JobReconciler(self.lab.session, self.job.id, {}) as carrier, pytest.raises(NoCapacity):
            carrier.reconcile()
        for zone in ZONES:
            self.lab.cloud.refill(zone)

    def restored(self):
        restore(self.lab.session.ledger, self.copy, even_if_older=True)
        self.lab.session.ledger.close()
        self.lab.session = self.lab.opened()
        verify_document(self.lab.session, agree=self.lab.session.report)
        return self.lab.session


@pytest.mark.parametrize("requested", [True, False])
def test_a_job_that_was_over_is_over_and_gets_no_machine(tmp_path, monkeypatch, requested):
    past = Past(tmp_path, monkeypatch, requested=requested)
    session = past.restored()
    if not requested:
        with pytest.raises(InstanceNotFound):
            job_by_id(session, past.job.id)
    reconcile_all(session, {})
    found = job_by_id(session, past.job.id)
    assert (found.state, found.is_open, past.lab.machines(), living_jobs(session)) == (
        State.NOT_LAUNCHED,
        False,
        [],
        [],
    )
    assert any("of its lines; this computer had them" in one for one in past.lab.said)
    count = session.ledger.last("jobs")
    reconcile_all(session, {})
    assert session.ledger.last("jobs") == count


def test_without_what_this_computer_wrote_down_the_job_is_carried_on_as_the_ledger_has_it(tmp_path, monkeypatch):
    past = Past(tmp_path, monkeypatch, requested=True)
    session = past.restored()
    shutil.rmtree(past.lab.home / "jobs" / past.job.id)
    assert [one.id for one in living_jobs(session)] == [past.job.id]
